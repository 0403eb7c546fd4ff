#include "tests/engine/sentencepiece_library.h"

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace reprise {

SentencePieceLibrary::SentencePieceLibrary()
    : processor_(std::make_unique<sentencepiece::SentencePieceProcessor>()) {}

SentencePieceLibrary::~SentencePieceLibrary() = default;

std::string SentencePieceLibrary::Load(std::string_view model) {
  const auto status = processor_->LoadFromSerializedProto(model);
  return status.ok() ? "" : status.ToString();
}

std::vector<int> SentencePieceLibrary::Encode(std::string_view text) const {
  std::vector<int> ids;
  return processor_->Encode(text, &ids).ok() ? ids : std::vector<int>{-1};
}

std::string SentencePieceLibrary::Decode(const std::vector<int>& ids) const {
  std::string text;
  return processor_->Decode(ids, &text).ok() ? text : "error";
}

int SentencePieceLibrary::size() const { return processor_->GetPieceSize(); }

std::string SentencePieceLibrary::Train(const std::string& text,
                                        const std::string& options) {
  namespace fs = std::filesystem;
  const fs::path base = fs::temp_directory_path() /
                        ("reprise_sentencepiece_" + std::to_string(getpid()));
  const std::string corpus = base.string() + ".txt";
  std::ofstream(corpus) << text;
  const auto status = sentencepiece::SentencePieceTrainer::Train(
      "--model_type=bpe --minloglevel=2 --input=" + corpus +
      " --model_prefix=" + base.string() + " " + options);
  std::ostringstream model;
  model << std::ifstream(base.string() + ".model", std::ios::binary).rdbuf();
  for (const char* suffix : {".txt", ".model", ".vocab"}) {
    fs::remove(base.string() + suffix);
  }
  return status.ok() ? model.str() : "error: " + status.ToString();
}

}  // namespace reprise
