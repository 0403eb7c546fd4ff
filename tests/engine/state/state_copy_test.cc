#include "engine/state/state_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace reprise {
namespace {

using Floats = std::vector<float>;
using Slot = std::vector<std::byte>;

constexpr int64_t kWindow = 4;

StateLayout MakeLayout() {
  StateLayout layout(/*max_context=*/16);
  layout.Add("0.kv", {3});
  layout.AddContext("1.k", {2});
  layout.AddWindow("2.k", kWindow, {2});
  return layout;
}

class StateCopyTest : public ::testing::Test {
 protected:
  Slot NewSlot() const {
    return Slot(static_cast<size_t>(layout_.slot_bytes()));
  }
  void Set(Slot& slot, int field, int64_t element, float value) const {
    std::byte* start = slot.data() + layout_.fields()[field].offset;
    std::memcpy(start + 4 * element, &value, 4);
  }
  // What a step with one token does: token p leaves p, or 100 + p.
  void Consume(Slot& slot, int64_t position, float mark) const {
    const float value = mark + static_cast<float>(position);
    for (int64_t i = 0; i < 3; ++i) Set(slot, 0, i, value);
    for (int64_t i = 0; i < 2; ++i) {
      Set(slot, 1, 2 * position + i, value);
      Set(slot, 2, 2 * (position % kWindow) + i, value);
    }
  }
  Slot SlotAfter(int64_t tokens) const {
    Slot slot = NewSlot();
    for (int64_t p = 0; p < tokens; ++p) Consume(slot, p, 0);
    return slot;
  }
  Floats Values(int field, int64_t position, const Slot& slot) const {
    return FieldValues(layout_.fields()[field], position, slot.data());
  }
  void ExpectSameState(int64_t position, const Slot& a, const Slot& b) const {
    for (int field = 0; field < 3; ++field) {
      EXPECT_EQ(Values(field, position, a), Values(field, position, b))
          << field << " at " << position;
    }
  }

  const StateLayout layout_ = MakeLayout();
};

TEST_F(StateCopyTest, ValuesOfAWindowComeOldestFirst) {
  const Slot slot = SlotAfter(6);
  EXPECT_EQ(Values(0, 6, slot), Floats({5, 5, 5}));
  EXPECT_EQ(Values(1, 6, slot), Floats({0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5}));
  EXPECT_EQ(Values(2, 6, slot), Floats({2, 2, 3, 3, 4, 4, 5, 5}));
  const Slot full = SlotAfter(4);
  EXPECT_EQ(Values(2, 4, full), Floats({0, 0, 1, 1, 2, 2, 3, 3}));
  const Slot young = SlotAfter(2);
  EXPECT_EQ(Values(2, 2, young), Floats({0, 0, 1, 1}));
  EXPECT_EQ(Values(1, 0, NewSlot()), Floats());
}

TEST_F(StateCopyTest, CopiesWhatIsInUseAndNothingElse) {
  for (const int64_t position : {0, 1, 4, 7, 16}) {
    const Slot from = SlotAfter(position);
    Slot to(from.size(), std::byte{0x5a});
    CopyState(layout_, position, from.data(), to.data());
    ExpectSameState(position, from, to);
    const StateField& keys = layout_.fields()[1];
    const auto rest =
        to.begin() + keys.offset + 4 * keys.ElementsInUse(position);
    const auto end = to.begin() + keys.offset + 4 * keys.elements;
    EXPECT_EQ(std::count(rest, end, std::byte{0x5a}), end - rest);
  }
}

TEST_F(StateCopyTest, AnImageIsTheWholeStateInAnotherSlot) {
  for (const int64_t position : {0, 1, 4, 7, 16}) {
    StateImage image;
    image.Save(layout_, 9, SlotAfter(9).data());  // and forgets it
    image.Save(layout_, position, SlotAfter(position).data());
    Slot to = NewSlot();
    image.Restore(layout_, to.data());
    ExpectSameState(position, SlotAfter(position), to);
    if (position == 16) continue;
    Consume(to, position, 0);
    ExpectSameState(position + 1, SlotAfter(position + 1), to);
  }
  // 3 floats, 2 for each token, 2 for each of the last 4.
  EXPECT_EQ(StateImage::BytesOf(layout_, 0), 4 * 3);
  EXPECT_EQ(StateImage::BytesOf(layout_, 3), 4 * (3 + 6 + 6));
  EXPECT_EQ(StateImage::BytesOf(layout_, 16), 4 * (3 + 32 + 8));
}

TEST_F(StateCopyTest, UndoGoesBackAndTheSessionTakesAnotherTurn) {
  for (const int64_t saved : {0, 1, 3, 4, 9}) {
    for (const int64_t tokens : {0, 1, 5}) {
      Slot slot = SlotAfter(saved);
      StateUndo undo;
      undo.Save(layout_, saved, slot.data());
      for (int64_t i = 0; i < tokens; ++i) Consume(slot, saved + i, 100);
      undo.Restore(layout_, slot.data());
      ExpectSameState(saved, SlotAfter(saved), slot);
      for (int64_t i = 0; i < 3; ++i) Consume(slot, saved + i, 0);
      ExpectSameState(saved + 3, SlotAfter(saved + 3), slot);
    }
  }
}

TEST_F(StateCopyTest, AnUndoRemembersTheLatestSave) {
  StateUndo undo;
  Slot slot = SlotAfter(9);
  undo.Save(layout_, 9, slot.data());
  slot = SlotAfter(2);
  undo.Save(layout_, 2, slot.data());
  Consume(slot, 2, 100);
  undo.Restore(layout_, slot.data());
  ExpectSameState(2, SlotAfter(2), slot);
}

}  // namespace
}  // namespace reprise
