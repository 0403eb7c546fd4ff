// The library itself, for tests to compare with. No header of Abseil may come
// near it: the library's declares an absl::string_view of its own. And it may
// not be in a process with gRPC (see engine/sentencepiece_file.h).
#ifndef TESTS_ENGINE_SENTENCEPIECE_LIBRARY_H_
#define TESTS_ENGINE_SENTENCEPIECE_LIBRARY_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace reprise {

class SentencePieceLibrary {
 public:
  SentencePieceLibrary();
  ~SentencePieceLibrary();

  // An error, or empty.
  std::string Load(std::string_view model);
  std::vector<int> Encode(std::string_view text) const;
  std::string Decode(const std::vector<int>& ids) const;
  int size() const;

  // A model of BPE for `text`, or an error's text behind "error: ".
  static std::string Train(const std::string& text, const std::string& options);

 private:
  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
};

}  // namespace reprise

#endif  // TESTS_ENGINE_SENTENCEPIECE_LIBRARY_H_
