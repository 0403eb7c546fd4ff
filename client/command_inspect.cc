#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/commands.h"
#include "client/format.h"
#include "engine/base/status_macros.h"
#include "engine/model_summary.h"

namespace reprise {
namespace {

std::string Bytes(int64_t bytes) {
  return FormatBytes(static_cast<uint64_t>(bytes));
}

std::string Count(int64_t count) {
  return FormatCount(static_cast<uint64_t>(count));
}

// "12.3 MFLOP".
std::string Flops(int64_t operations) {
  constexpr std::array<const char*, 4> kUnits = {"FLOP", "kFLOP", "MFLOP",
                                                 "GFLOP"};
  auto value = static_cast<double>(operations);
  size_t unit = 0;
  while (value >= 1000 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  std::array<char, 64> text;
  std::snprintf(text.data(), text.size(), "%.*f %s", unit == 0 ? 0 : 1, value,
                kUnits[unit]);
  return text.data();
}

// "recurrent 4 x 16 x 16", "k 2 x 64 a token, the last 512".
std::string FieldText(const FieldSummary& field) {
  std::string text =
      absl::StrCat(field.name, " ", absl::StrJoin(field.shape, " x "));
  if (field.growth != Growth::kNone) text += " a token";
  if (field.growth == Growth::kWindow) {
    absl::StrAppend(&text, ", the last ", field.window);
  }
  return text;
}

std::string StateText(const LayerSummary& layer) {
  std::vector<std::string> fields;
  for (const FieldSummary& field : layer.state) {
    fields.push_back(FieldText(field));
  }
  return fields.empty() ? "none" : absl::StrJoin(fields, "; ");
}

std::string LayersText(const ModelSummary& summary) {
  std::string text = Count(summary.num_layers);
  if (summary.repeats > 1 && summary.repeats < summary.num_layers) {
    absl::StrAppend(&text, ", ", summary.repeats, " times the ",
                    summary.num_layers / summary.repeats, " below");
  }
  return text;
}

std::string TensorsText(const ModelSummary& summary) {
  const std::string types = absl::StrJoin(
      summary.bytes_by_dtype, ", ", [](std::string* out, const auto& item) {
        absl::StrAppend(out, item.first, " ", Bytes(item.second));
      });
  if (summary.unused_tensors.empty()) return types;
  return absl::StrCat(types, "; not used: ", summary.unused_tensors.size(),
                      " tensors, ", Bytes(summary.unused_bytes));
}

std::string StateOfSession(const ModelSummary& summary) {
  std::string text = Bytes(summary.state_bytes);
  if (summary.state_bytes_per_token > 0) {
    absl::StrAppend(&text, ", and ", Bytes(summary.state_bytes_per_token),
                    " for each token");
  }
  return text;
}

std::string WorkText(const TokenWork& work) {
  std::string text =
      absl::StrCat(Flops(work.weights + work.state), " (weights ",
                   Flops(work.weights), ", state ", Flops(work.state), ")");
  if (work.per_context_token > 0) {
    absl::StrAppend(&text, ", and ", Flops(work.per_context_token),
                    " for each token before");
  }
  return text;
}

std::string ToText(const ModelSummary& summary) {
  std::vector<std::pair<std::string, std::string>> properties = {
      {"family", summary.family},
      {"parameters", Count(summary.num_parameters)},
      {"tensors", TensorsText(summary)},
      {"width", Count(summary.d_model)},
      {"vocabulary", Count(summary.vocab_size)},
      {"state of a session", StateOfSession(summary)},
      {"work per token", WorkText(summary.work)},
      {"layers", LayersText(summary)},
  };
  if (summary.max_positions.has_value()) {
    properties.emplace(
        properties.end() - 1, "made for",
        FormatTokens(static_cast<uint64_t>(*summary.max_positions)));
  }
  Table layers({{"LAYERS", Align::kRight},
                {"MIXERS", Align::kLeft},
                {"STATE OF EACH", Align::kLeft}});
  // Where all layers are equal, the table needs no remark about repetition.
  const int64_t times =
      summary.repeats == summary.num_layers ? summary.repeats : 1;
  for (const LayerRun& run : summary.period) {
    layers.AddRow({Count(times * run.count),
                   absl::StrJoin(run.layer.mixers, " + "),
                   StateText(run.layer)});
  }
  Table memory({{"TOKENS", Align::kRight},
                {"STATE", Align::kRight},
                {"KV CACHE", Align::kRight}});
  for (const SessionMemory& at : summary.memory) {
    memory.AddRow(
        {Count(at.tokens), Bytes(at.state_bytes), Bytes(at.kv_cache_bytes)});
  }
  const std::string smaller =
      summary.smaller_from_tokens.has_value()
          ? absl::StrCat("The state is smaller from token ",
                         Count(*summary.smaller_from_tokens), " on.\n")
          : "The state is never smaller.\n";
  return FormatProperties(properties) + layers.ToString() +
         "\nA session, beside a softmax model as deep and as wide, both "
         "f32:\n" +
         memory.ToString() + smaller;
}

nlohmann::ordered_json ToJson(const FieldSummary& field) {
  nlohmann::ordered_json json = {{"name", field.name}, {"shape", field.shape}};
  if (field.growth == Growth::kContext) json["growth"] = "context";
  if (field.growth == Growth::kWindow) {
    json["growth"] = "window";
    json["window"] = field.window;
  }
  return json;
}

nlohmann::ordered_json ToJson(const ModelSummary& summary) {
  using Json = nlohmann::ordered_json;
  Json runs = Json::array();
  for (const LayerRun& run : summary.period) {
    Json state = Json::array();
    for (const FieldSummary& field : run.layer.state) {
      state.push_back(ToJson(field));
    }
    runs.push_back({{"count", run.count},
                    {"mixers", run.layer.mixers},
                    {"state", std::move(state)}});
  }
  Json memory = Json::array();
  for (const SessionMemory& at : summary.memory) {
    memory.push_back({{"tokens", at.tokens},
                      {"state_bytes", at.state_bytes},
                      {"kv_cache_bytes", at.kv_cache_bytes}});
  }
  Json json = {
      {"family", summary.family},
      {"num_parameters", summary.num_parameters},
      {"bytes_by_dtype", summary.bytes_by_dtype},
      {"unused_tensors", summary.unused_tensors},
      {"unused_bytes", summary.unused_bytes},
      {"d_model", summary.d_model},
      {"vocab_size", summary.vocab_size},
      {"num_layers", summary.num_layers},
      {"layers", {{"repeats", summary.repeats}, {"period", std::move(runs)}}},
      {"state_bytes", summary.state_bytes},
      {"state_bytes_per_token", summary.state_bytes_per_token},
      {"memory", std::move(memory)},
      {"flop_per_token",
       {{"weights", summary.work.weights},
        {"state", summary.work.state},
        {"per_context_token", summary.work.per_context_token}}}};
  if (summary.smaller_from_tokens.has_value()) {
    json["smaller_from_tokens"] = *summary.smaller_from_tokens;
  }
  if (summary.max_positions.has_value()) {
    json["max_positions"] = *summary.max_positions;
  }
  return json;
}

absl::Status Inspect(const CommandLine& line, Terminal& terminal) {
  ASSIGN_OR_RETURN(const ModelSummary summary, SummariseModel(line.model_dir));
  terminal.Print(line.json ? ToJson(summary).dump() + "\n" : ToText(summary));
  return terminal.status();
}

}  // namespace

int RunInspect(const CommandLine& line, Terminal& terminal) {
  const absl::Status status = Inspect(line, terminal);
  return status.ok() ? 0 : ReportError(status, line, terminal);
}

}  // namespace reprise
