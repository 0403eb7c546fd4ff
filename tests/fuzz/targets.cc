#include "tests/fuzz/targets.h"

#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/log.h"
#include "engine/bpe_tokenizer.h"
#include "engine/model/safetensors_header.h"
#include "engine/model_summary.h"
#include "engine/state/snapshot.h"
#include "engine/template/template.h"
#include "engine/tokenizer_json.h"
#include "server/seal.h"
#include "tests/engine/state/resealed.h"
#include "tests/support/temp_dir.h"

namespace reprise {
namespace {

void RunSafetensorsHeader(std::string_view bytes) {
  constexpr uint64_t kDataBytes = 1 << 10;
  const auto entries = ParseSafetensorsHeader(bytes, kDataBytes);
  if (!entries.ok()) return;
  uint64_t covered = 0;
  for (const auto& [name, entry] : *entries) {
    CHECK(entry.begin <= entry.end && entry.end <= kDataBytes);
    covered += entry.end - entry.begin;
  }
  CHECK(covered == kDataBytes);
}

void RunTokenizerJson(std::string_view bytes) {
  constexpr int64_t kVocabSize = 4096;
  const auto spec = ParseTokenizerJson(bytes, kVocabSize);
  if (!spec.ok()) return;
  const auto tokenizer = CreateBpeTokenizer(*spec, kVocabSize);
  if (!tokenizer.ok()) return;
  for (const std::string text : {"Hello  world's 123\n\n<s>x",
                                 "\xc3\xa9\xe2\x82\xac\xf0\x9f\x8d\x8e "}) {
    for (const bool allow_special : {false, true}) {
      const auto ids = (*tokenizer)->Encode(text, allow_special);
      if (!ids.ok()) continue;
      for (const int32_t id : *ids) CHECK(id >= 0 && id < kVocabSize);
    }
  }
}

// Beside a checkpoint that fits one config: the others are read as far as they
// can be.
void RunConfig(std::string_view bytes) {
  static const TempDir dir;
  static const bool copied = std::filesystem::copy_file(
      REPRISE_TESTDATA "/golden/linear_attn_elu/model.safetensors",
      dir.Path("model.safetensors"));
  CHECK(copied);
  dir.Write("config.json", std::string(bytes));
  const auto summary = SummariseModel(dir.path());
  if (summary.ok()) CHECK(summary->vocab_size > 0 && summary->num_layers > 0);
}

void RunChatTemplate(std::string_view bytes) {
  const auto parsed = jinja::Template::Parse(bytes);
  if (!parsed.ok()) return;
  const auto text = [](std::string_view value) {
    return jinja::Value::String(jinja::FromUtf8(value, /*marked=*/true));
  };
  std::vector<jinja::Value> messages;
  for (const char* role : {"system", "user", "assistant"}) {
    messages.push_back(
        jinja::DictValue({{"role", text(role)}, {"content", text("a <b> c")}}));
  }
  jinja::RenderOptions options;
  options.limits = {.max_steps = 100'000,
                    .max_characters = 1 << 20,
                    .max_elements = 1 << 14,
                    .max_output_characters = 1 << 20};
  const auto rendered =
      parsed->Render({{"messages", jinja::ListValue(std::move(messages))},
                      {"bos_token", text("<s>")}},
                     options);
  if (rendered.ok()) {
    CHECK(std::ssize(*rendered) <= options.limits.max_output_characters);
  }
}

// The layouts of the snapshots in tests/testdata.
std::vector<StateLayout> Layouts() {
  std::vector<StateLayout> layouts(3);
  layouts[0].Add("0.kv", {2, 2});
  layouts[1].Add("0.kv", {2, 2});
  layouts[1].Add("1.kv", {8, 8});
  layouts[2].Add("0.recurrent", {2, 3, 1});
  layouts[2].Add("0.normaliser", {3});
  layouts[2].Add("10.scale", {});
  StateLayout& growing = layouts.emplace_back(/*max_context=*/8);
  growing.Add("0.kv", {2});
  growing.AddContext("1.attn_k", {1, 2});
  growing.AddContext("1.attn_v", {1, 2});
  growing.AddWindow("2.attn_k", 5, {1});
  growing.AddWindow("3.attn_k", 2, {1});
  StateLayout& rounded = layouts.emplace_back();
  rounded.Add("0.kv", {2, 4});
  rounded.AddContext("1.attn_k", {1});
  return layouts;
}

// With the length, the fingerprints and the checksum that bytes from a store
// would have: what comes behind them is what is looked for.
std::string Plausible(std::string bytes, const ModelFingerprints& expected) {
  const auto put = [&bytes](size_t offset, uint64_t value) {
    std::memcpy(bytes.data() + offset, &value, sizeof(value));
  };
  put(8, bytes.size());
  put(16, expected.model);
  put(24, expected.layout);
  put(32, expected.tokenizer);
  return Resealed(std::move(bytes));
}

void RunSnapshot(std::string_view bytes) {
  constexpr int64_t kVocabSize = 256;
  constexpr size_t kLeastBytes = 60;
  for (const StateLayout& layout : Layouts()) {
    const ModelFingerprints fingerprints{1, layout.fingerprint(), 2};
    std::vector<std::byte> slot(layout.slot_bytes(), std::byte{0});
    const std::vector<std::byte> zeros = slot;
    std::string blob(bytes);
    if (blob.size() >= kLeastBytes) blob = Plausible(blob, fingerprints);
    const auto record =
        DecodeSnapshot(blob, fingerprints, layout, kVocabSize, slot);
    if (!record.ok()) {
      // What came before a number that is not finite is in the slot.
      CHECK(slot == zeros ||
            SnapshotFaultOf(record.status()) == SnapshotFault::kNonfinite);
      continue;
    }
    CHECK(CheckSession(*record, layout, kVocabSize, slot).ok());
    const std::string again =
        EncodeSnapshot(fingerprints, *record, layout, slot);
    std::vector<std::byte> second = zeros;
    CHECK(DecodeSnapshot(again, fingerprints, layout, kVocabSize, second).ok());
    CHECK(second == slot);
  }
}

void RunSeal(std::string_view bytes) {
  static const SealKeys& keys = *[] {
    const TempDir dir;
    dir.Write("keys", "gcm-key aes-256-gcm " + std::string(64, 'a') +
                          "\nhmac-key hmac-sha-256 " + std::string(64, 'b'));
    chmod(dir.Path("keys").c_str(), 0600);
    return SealKeys::Load(dir.Path("keys"))->release();
  }();
  const SealReader reader = {
      .tenant = "tenant-1", .model = 0x1122334455667788, .now_unix_ms = 1};
  // Nobody guesses a key.
  CHECK(!OpenSnapshot(keys, bytes, reader).ok());
}

constexpr FuzzTarget kTargets[] = {
    {"safetensors_header", &RunSafetensorsHeader,
     "tests/fuzz/corpus/safetensors_header", ".json"},
    {"tokenizer_json", &RunTokenizerJson, "tests/fuzz/corpus/tokenizer_json",
     ".json"},
    {"config", &RunConfig, "tests/testdata/golden", "/config.json"},
    {"chat_template", &RunChatTemplate, "tests/testdata/chat_templates",
     ".jinja"},
    {"snapshot", &RunSnapshot, "tests/testdata/snapshots", ".rprs"},
    {"seal", &RunSeal, "tests/testdata/seals", ".rpse"},
};

}  // namespace

std::span<const FuzzTarget> FuzzTargets() { return kTargets; }

}  // namespace reprise
