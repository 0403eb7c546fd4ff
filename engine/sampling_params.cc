// The ranges of SamplingParams (engine/sampler.h).
#include <array>
#include <charconv>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/sampler.h"

namespace reprise {
namespace {

constexpr size_t kMaxLogitBias = 1024;
constexpr float kMaxBias = 100;

// All the digits that tell a value from the others: 1.0000001 is not 1.
std::string Shown(float value) {
  std::array<char, 32> text;
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return std::string(text.data(), end);
}
std::string Shown(int32_t value) { return std::to_string(value); }

// `ok` is false for a value that is not a number: comparisons with it are.
template <typename T>
absl::Status Check(const char* field, T value, bool ok, const char* range) {
  if (ok) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "sampling.", field, " is ", Shown(value), ", not in ", range));
}

absl::Status CheckLogitBias(const SamplingParams& params, int64_t vocab_size) {
  if (params.logit_bias.size() > kMaxLogitBias) {
    return absl::InvalidArgumentError(
        absl::StrCat("sampling.logit_bias has ", params.logit_bias.size(),
                     " entries (at most ", kMaxLogitBias, ")"));
  }
  for (const auto& [token, bias] : params.logit_bias) {
    if (token < 0 || token >= vocab_size) {
      return absl::InvalidArgumentError(
          absl::StrCat("sampling.logit_bias has token ", token, ", not in [0, ",
                       vocab_size, ")"));
    }
    if (!(std::abs(bias) <= kMaxBias)) {
      return absl::InvalidArgumentError(
          absl::StrCat("sampling.logit_bias of token ", token, " is ",
                       Shown(bias), ", not in [-100, 100]"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateSamplingParams(const SamplingParams& params,
                                    int64_t vocab_size) {
  const auto within = [](float value, float low, float high) {
    return value >= low && value <= high;
  };
  const auto above_zero = [](float value, float high) {
    return value > 0 && value <= high;
  };
  RETURN_IF_ERROR(Check("temperature", params.temperature,
                        within(params.temperature, 0, 2), "[0, 2]"));
  if (params.top_k < 0 || params.top_k > vocab_size) {
    return absl::InvalidArgumentError(absl::StrCat(
        "sampling.top_k is ", params.top_k, ", not in [1, ", vocab_size, "]"));
  }
  RETURN_IF_ERROR(
      Check("top_p", params.top_p, above_zero(params.top_p, 1), "(0, 1]"));
  RETURN_IF_ERROR(Check("min_p", params.min_p,
                        params.min_p >= 0 && params.min_p < 1, "[0, 1)"));
  RETURN_IF_ERROR(Check("typical_p", params.typical_p,
                        above_zero(params.typical_p, 1), "(0, 1]"));
  RETURN_IF_ERROR(Check("repetition_penalty", params.repetition_penalty,
                        above_zero(params.repetition_penalty, 10), "(0, 10]"));
  RETURN_IF_ERROR(Check("presence_penalty", params.presence_penalty,
                        within(params.presence_penalty, -2, 2), "[-2, 2]"));
  RETURN_IF_ERROR(Check("frequency_penalty", params.frequency_penalty,
                        within(params.frequency_penalty, -2, 2), "[-2, 2]"));
  RETURN_IF_ERROR(Check("penalty_decay", params.penalty_decay,
                        above_zero(params.penalty_decay, 1), "(0, 1]"));
  const int32_t last_n = params.penalty_last_n.value_or(0);
  RETURN_IF_ERROR(Check("penalty_last_n", last_n,
                        last_n >= 0 && last_n <= SamplingParams::kMaxWindow,
                        "[0, 65536]"));
  return CheckLogitBias(params, vocab_size);
}

}  // namespace reprise
