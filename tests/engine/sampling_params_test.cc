#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>

#include "engine/sampler.h"
#include "tests/engine/sampler_support.h"

namespace reprise {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kVocab = 1000;

TEST(SamplingParamsTest, TakesDefaultsAndTheEndsOfEveryRange) {
  EXPECT_TRUE(ValidateSamplingParams({}, kVocab).ok());
  SamplingParams low;
  low.temperature = 0;
  low.top_k = 1;
  low.top_p = low.typical_p = low.repetition_penalty = low.penalty_decay =
      std::numeric_limits<float>::denorm_min();
  low.presence_penalty = low.frequency_penalty = -2;
  low.penalty_last_n = 0;
  low.logit_bias = {{0, -100.0f}};
  EXPECT_TRUE(ValidateSamplingParams(low, kVocab).ok());
  SamplingParams high;
  high.temperature = 2;
  high.top_k = kVocab;
  high.min_p = 0.999999f;
  high.repetition_penalty = 10;
  high.presence_penalty = high.frequency_penalty = 2;
  high.penalty_last_n = 65536;
  high.logit_bias.assign(1024, {999, 100.0f});
  EXPECT_TRUE(ValidateSamplingParams(high, kVocab).ok());
}

template <typename T>
void ExpectRefused(T SamplingParams::*field, T value, const std::string& name,
                   const std::string& shown) {
  SamplingParams params;
  params.*field = value;
  const absl::Status status = ValidateSamplingParams(params, kVocab);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument)
      << name << " " << shown;
  EXPECT_THAT(status.message(), HasSubstr("sampling." + name + " is " + shown));
}

TEST(SamplingParamsTest, NamesTheFieldTheValueAndTheRange) {
  using P = SamplingParams;
  struct Field {
    float P::*field;
    std::string name;
    std::vector<std::pair<float, std::string>> refused;
  };
  const std::vector<Field> fields = {
      {&P::temperature,
       "temperature",
       {{-0.5f, "-0.5, not in [0, 2]"}, {2.5f, "2.5, not in [0, 2]"}}},
      {&P::top_p,
       "top_p",
       {{0, "0, not in (0, 1]"}, {1.5f, "1.5"}, {1.0000001f, "1.0000001"}}},
      {&P::min_p, "min_p", {{-0.5f, "-0.5, not in [0, 1)"}, {1, "1"}}},
      {&P::typical_p, "typical_p", {{0, "0, not in (0, 1]"}, {1.5f, "1.5"}}},
      {&P::repetition_penalty,
       "repetition_penalty",
       {{0, "0, not in (0, 10]"}, {10.5f, "10.5"}}},
      {&P::presence_penalty,
       "presence_penalty",
       {{-2.5f, "-2.5, not in [-2, 2]"}, {2.5f, "2.5"}}},
      {&P::frequency_penalty,
       "frequency_penalty",
       {{-2.5f, "-2.5, not in [-2, 2]"}, {2.5f, "2.5"}}},
      {&P::penalty_decay,
       "penalty_decay",
       {{0, "0, not in (0, 1]"}, {1.5f, "1.5"}}}};
  for (const Field& field : fields) {
    for (const auto& [value, shown] : field.refused) {
      ExpectRefused(field.field, value, field.name, shown);
    }
    ExpectRefused(field.field, kNan, field.name, "nan");
    ExpectRefused(field.field, kInf, field.name, "inf");
    ExpectRefused(field.field, -kInf, field.name, "-inf");
  }
  ExpectRefused(&P::top_k, -1, "top_k", "-1, not in [1, 1000]");
  ExpectRefused(&P::top_k, 1001, "top_k", "1001");
  using N = std::optional<int32_t>;
  ExpectRefused(&P::penalty_last_n, N(-1), "penalty_last_n",
                "-1, not in [0, 65536]");
  ExpectRefused(&P::penalty_last_n, N(65537), "penalty_last_n", "65537");
}

TEST(SamplingParamsTest, ChecksEveryBias) {
  const auto message = [](std::vector<std::pair<int32_t, float>> bias) {
    SamplingParams params;
    params.logit_bias = std::move(bias);
    return std::string(ValidateSamplingParams(params, kVocab).message());
  };
  EXPECT_THAT(message({{1, 1.0f}, {-1, 1.0f}}),
              HasSubstr("sampling.logit_bias has token -1, not in [0, 1000)"));
  EXPECT_THAT(message({{1000, 1.0f}}), HasSubstr("token 1000"));
  EXPECT_THAT(message({{7, 101.0f}}),
              HasSubstr("token 7 is 101, not in [-100, 100]"));
  EXPECT_THAT(message({{7, kNan}}), HasSubstr("token 7 is nan"));
  EXPECT_THAT(message(std::vector<std::pair<int32_t, float>>(1025, {1, 1.0f})),
              HasSubstr("1025 entries (at most 1024)"));
}

}  // namespace
}  // namespace reprise
