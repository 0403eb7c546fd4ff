// The promises of engine/mixer/mixer.h, for every mixer of the table and every
// type that weights are packed in.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "engine/base/parallel.h"
#include "engine/kernels/state_kernels.h"
#include "engine/mixer/mixer.h"
#include "engine/mixer/registry.h"
#include "engine/model/mixer_description.h"
#include "engine/state/state_copy.h"
#include "tests/engine/mixer/mixer_examples.h"
#include "tests/engine/mixer/reference.h"
#include "tests/support/safetensors_writer.h"
#include "tests/support/teams.h"
#include "tests/support/temp_dir.h"

namespace reprise {
namespace {

constexpr int64_t kMaxRows = 512;

// How far two ways of computing the same may lie apart, as a share of the
// largest number. f32: a few sums, one after the other, of some hundred numbers
// each rounded to 2^-24; errors add up at random, so sqrt(200) * 2^-24 = 8e-7 a
// sum (measured: up to 6e-7 in all).
constexpr double kF32Tolerance = 3e-6;
// bf16: both round the same numbers before the first matmul; before the second,
// some numbers lie on either side of a rounding edge, 2^-8 apart. One of them
// among n carries 1/sqrt(n) of the result, n being 64 or more; this leaves room
// for a dozen of them (measured: up to 9e-4).
constexpr double kBf16Tolerance = 1.0 / 512;
// int8: the same, with edges 1/127 of a row's largest number apart, which is
// about four times a usual one: a number on the wrong side carries
// 4 / 127 / sqrt(n), 1/256 or less.
constexpr double kInt8Tolerance = 1.0 / 64;

using Floats = std::vector<float>;

// Of the mixer that runs before the one that is tested.
constexpr int64_t kLayerBefore = 1000;

// One session: its slot and how far it is.
struct Session {
  Floats slot;
  int64_t position = 0;
};

// Some rows of a session in a step.
struct Part {
  Session* session;
  Floats x;  // [rows, d_model]
};

// A mixer made from an example through a checkpoint, as the engine does it.
class Harness {
 public:
  Harness(const MixerExample& example, WeightType type) : example_(example) {
    SafetensorsWriter writer;
    for (const auto& [name, tensor] : example.tensors) {
      writer.AddF32(name, tensor.shape, tensor.values);
    }
    TempDir dir;
    auto checkpoint =
        Checkpoint::OpenFile(dir.Write("m.safetensors", writer.File()));
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
    Weights weights(*checkpoint, type, kMaxRows, scratch_.linear());
    if (example.before) before_ = Make(*example.before, kLayerBefore, weights);
    mixer_ = Make(example.description, /*layer=*/0, weights);
    EXPECT_TRUE(weights.UnusedTensors().empty());
    scratch_.Allocate(kMaxRows);
  }

  Session NewSession() const {
    return {Floats(static_cast<size_t>(layout_.slot_bytes()) / 4), 0};
  }
  const StateLayout& layout() const { return layout_; }

  // y of each part.
  std::vector<Floats> Forward(const std::vector<Part>& parts) {
    const int64_t width = example_.d_model;
    std::vector<Segment> segments;
    Floats x;
    for (const Part& part : parts) {
      const int64_t rows = std::ssize(part.x) / width;
      segments.push_back(
          {.first_row = std::ssize(x) / width,
           .num_rows = rows,
           .position = part.session->position,
           .slot = reinterpret_cast<std::byte*>(part.session->slot.data())});
      part.session->position += rows;
      x.insert(x.end(), part.x.begin(), part.x.end());
    }
    const int64_t rows = std::ssize(x) / width;
    x.resize(static_cast<size_t>(PaddedRows(rows) * width));
    Floats y(x.size());
    for (const Mixer* mixer : {before_.get(), mixer_.get()}) {
      if (mixer == nullptr) continue;  // most have none before them
      mixer->Forward({x.data(), rows, width}, segments, scratch_,
                     {y.data(), rows, width});
    }
    std::vector<Floats> result;
    for (const Segment& segment : segments) {
      const auto first = y.begin() + segment.first_row * width;
      result.emplace_back(first, first + segment.num_rows * width);
    }
    return result;
  }

  // y of one session alone, its rows cut into segments of the given lengths.
  Floats ForwardInPieces(Session& session, const Floats& x,
                         const std::vector<int64_t>& lengths) {
    Floats y;
    auto from = x.begin();
    for (const int64_t length : lengths) {
      const auto to = from + length * example_.d_model;
      const Floats piece = Forward({{&session, Floats(from, to)}})[0];
      y.insert(y.end(), piece.begin(), piece.end());
      from = to;
    }
    EXPECT_EQ(y.size(), x.size());
    return y;
  }

 private:
  std::unique_ptr<Mixer> Make(const MixerDescription& description,
                              int64_t layer, Weights& weights) {
    const MixerContext context{.layer = layer,
                               .d_model = example_.d_model,
                               .weights = weights,
                               .layout = layout_,
                               .scratch = scratch_};
    auto mixer = MakeMixer(description, context);
    EXPECT_TRUE(mixer.ok()) << mixer.status();
    return *std::move(mixer);
  }

  const MixerExample& example_;
  StateLayout layout_{/*max_context=*/kMaxRows};
  Scratch scratch_;
  std::unique_ptr<Mixer> before_;  // or null
  std::unique_ptr<Mixer> mixer_;
};

Floats RandomRows(int64_t rows, int64_t width, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 1);
  Floats x(static_cast<size_t>(rows * width));
  std::generate(x.begin(), x.end(), [&] { return normal(random); });
  return x;
}

// Equal bit for bit: 0 and -0 differ, NaN equals itself.
bool SameBits(const Floats& a, const Floats& b) {
  if (a.size() != b.size()) return false;
  return a.empty() ||
         std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

double LargestDifference(const Floats& a, const Floats& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(a[i]) - b[i]));
  }
  return largest;
}

double LargestMagnitude(const Floats& a) {
  double largest = 0;
  for (const float v : a) {
    largest = std::max(largest, std::abs(static_cast<double>(v)));
  }
  return largest;
}

struct Case {
  MixerExample example;
  WeightType type;
};

double ToleranceOf(WeightType type) {
  switch (type) {
    case WeightType::kBf16:
      return kBf16Tolerance;
    case WeightType::kInt8:
      return kInt8Tolerance;
    default:
      return kF32Tolerance;
  }
}

ReferenceRounding RoundingOf(WeightType type) {
  switch (type) {
    case WeightType::kBf16:
      return ReferenceRounding::kBf16;
    case WeightType::kInt8:
      return ReferenceRounding::kInt8;
    default:
      return ReferenceRounding::kNone;
  }
}

class MixerConformanceTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    harness_ = std::make_unique<Harness>(GetParam().example, GetParam().type);
  }
  Floats Rows(int64_t rows, uint32_t seed) const {
    return RandomRows(rows, GetParam().example.d_model, seed);
  }
  double Tolerance() const { return ToleranceOf(GetParam().type); }

  // Between x and most states lies one matmul, whose inputs both round alike.
  double StateTolerance() const {
    return GetParam().example.state_behind_rounding ? Tolerance()
                                                    : kF32Tolerance;
  }

  std::unique_ptr<Harness> harness_;
};

TEST_P(MixerConformanceTest, AgreesWithPlainLoopsInDouble) {
  const MixerExample& example = GetParam().example;
  ReferenceTensors tensors;
  for (const auto& [name, tensor] : example.tensors) {
    tensors[name] = Doubles(tensor.values.begin(), tensor.values.end());
  }
  Doubles kept;
  int64_t row = 0;
  const auto reference_of = [&](const MixerDescription& description) {
    return ReferenceMixer{.description = description,
                          .tensors = tensors,
                          .d_model = example.d_model,
                          .rounding = RoundingOf(GetParam().type),
                          .position = row,
                          .kept = &kept};
  };
  // Two tiles, a part of one, and then one row on its own.
  const int64_t rows = 2 * kTileRows + 23;
  const Floats x = Rows(rows + 1, 7);
  ReferenceState state_before;
  ReferenceState state;
  Floats expected;
  for (; row <= rows; ++row) {
    const auto first = x.begin() + row * example.d_model;
    const Doubles in(first, first + example.d_model);
    if (example.before) reference_of(*example.before).Step(in, state_before);
    const Doubles y = reference_of(example.description).Step(in, state);
    expected.insert(expected.end(), y.begin(), y.end());
  }
  Session session = harness_->NewSession();
  const Floats actual = harness_->ForwardInPieces(session, x, {rows, 1});
  EXPECT_LE(LargestDifference(actual, expected),
            Tolerance() * LargestMagnitude(expected));

  // Every field of the state is known to the reference, and the other way.
  size_t fields = 0;
  for (const StateField& field : harness_->layout().fields()) {
    if (!field.name.starts_with("0.")) continue;
    ++fields;
    const Doubles& values = state.at(field.name.substr(2));
    const Floats wanted(values.begin(), values.end());
    const Floats got =
        FieldValues(field, session.position,
                    reinterpret_cast<const std::byte*>(session.slot.data()));
    ASSERT_EQ(wanted.size(), got.size()) << field.name;
    EXPECT_LE(LargestDifference(got, wanted),
              StateTolerance() * std::max(1.0, LargestMagnitude(wanted)))
        << field.name;
  }
  EXPECT_EQ(fields, state.size());
}

TEST_P(MixerConformanceTest, AZeroFilledSlotIsANewSession) {
  const Floats x = Rows(kTileRows + 9, 8);
  Session session = harness_->NewSession();
  const Floats first = harness_->Forward({{&session, x}})[0];
  const Session after = session;
  std::fill(session.slot.begin(), session.slot.end(), 0.0F);
  session.position = 0;
  EXPECT_TRUE(SameBits(harness_->Forward({{&session, x}})[0], first));
  EXPECT_TRUE(SameBits(session.slot, after.slot));
}

TEST_P(MixerConformanceTest, SplitsAtTilesChangeNoBit) {
  const int64_t rows = 3 * kTileRows + 1;  // the last tile has one row
  const Floats x = Rows(rows, 9);
  Session whole = harness_->NewSession();
  const Floats expected = harness_->ForwardInPieces(whole, x, {rows});
  const std::vector<std::vector<int64_t>> kSplits = {
      {64, 129}, {128, 65}, {192, 1}, {64, 64, 65}, {64, 64, 64, 1}};
  for (const std::vector<int64_t>& lengths : kSplits) {
    Session session = harness_->NewSession();
    const Floats y = harness_->ForwardInPieces(session, x, lengths);
    EXPECT_TRUE(SameBits(y, expected)) << ::testing::PrintToString(lengths);
    EXPECT_TRUE(SameBits(session.slot, whole.slot));
  }
}

TEST_P(MixerConformanceTest, SplitsElsewhereAgreeToRounding) {
  const int64_t rows = 150;
  const Floats x = Rows(rows, 10);
  Session whole = harness_->NewSession();
  const Floats expected = harness_->ForwardInPieces(whole, x, {rows});
  std::vector<int64_t> ones(static_cast<size_t>(rows), 1);
  for (const std::vector<int64_t>& lengths :
       {std::vector<int64_t>{1, 149}, std::vector<int64_t>{37, 100, 13},
        ones}) {
    Session session = harness_->NewSession();
    const Floats y = harness_->ForwardInPieces(session, x, lengths);
    EXPECT_LE(LargestDifference(y, expected),
              Tolerance() * LargestMagnitude(expected));
    EXPECT_LE(LargestDifference(session.slot, whole.slot),
              StateTolerance() * std::max(1.0, LargestMagnitude(whole.slot)));
  }
}

TEST_P(MixerConformanceTest, BatchMatesChangeNoBit) {
  // A prompt, then single rows: alone, and among 31 sessions that decode and
  // prefill, at another place in each step.
  const Floats prompt = Rows(70, 11);
  Session alone = harness_->NewSession();
  Session among = harness_->NewSession();
  std::vector<Session> mates;
  for (int i = 0; i < 31; ++i) mates.push_back(harness_->NewSession());
  for (uint32_t step = 0; step < 4; ++step) {
    const Floats x = step == 0 ? prompt : Rows(1, 100 + step);
    const Floats expected = harness_->Forward({{&alone, x}})[0];
    std::vector<Part> parts;
    for (size_t i = 0; i < mates.size(); ++i) {
      const bool prefill = (i + step) % 8 == 0;
      const uint32_t seed = 1000 * (step + 1) + static_cast<uint32_t>(i);
      parts.push_back({&mates[i], Rows(prefill ? 66 : 1, seed)});
    }
    const size_t place = step * 10;
    parts.insert(parts.begin() + static_cast<std::ptrdiff_t>(place),
                 Part{&among, x});
    EXPECT_TRUE(SameBits(harness_->Forward(parts)[place], expected)) << step;
    EXPECT_TRUE(SameBits(among.slot, alone.slot)) << step;
  }
}

TEST_P(MixerConformanceTest, TheNumberOfThreadsChangesNoBit) {
  const Floats x = Rows(200, 12);
  const Floats one_row = Rows(1, 13);
  std::vector<Floats> results;
  for (const int threads : {1, 2, 3}) {
    SetNumThreads(TeamOf(threads));
    Harness harness(GetParam().example, GetParam().type);
    Session session = harness.NewSession();
    Floats y = harness.Forward({{&session, x}})[0];
    const Floats last = harness.Forward({{&session, one_row}})[0];
    y.insert(y.end(), last.begin(), last.end());
    y.insert(y.end(), session.slot.begin(), session.slot.end());
    results.push_back(std::move(y));
  }
  SetNumThreads(1);
  EXPECT_TRUE(SameBits(results[1], results[0]));
  EXPECT_TRUE(SameBits(results[2], results[0]));
}

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (const MixerExample& example : MixerExamples()) {
    for (const WeightType type : kWeightTypes) {
      if (type != WeightType::kAuto) cases.push_back({example, type});
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, MixerConformanceTest,
                         ::testing::ValuesIn(AllCases()),
                         [](const ::testing::TestParamInfo<Case>& info) {
                           std::string type(WeightTypeName(info.param.type));
                           type[0] = static_cast<char>(std::toupper(type[0]));
                           return info.param.example.name + type;
                         });

TEST(MixerTableTest, EveryMixerHasAnExampleAndEveryExampleALine) {
  std::set<std::string_view> kinds;
  for (const MixerExample& example : MixerExamples()) {
    kinds.insert(example.description.kind());
  }
  std::set<std::string_view> table;
  for (const MixerEntry& entry : MixerTable()) {
    EXPECT_TRUE(table.insert(entry.kind).second) << entry.kind;
  }
  EXPECT_EQ(kinds, table);
}

}  // namespace
}  // namespace reprise
