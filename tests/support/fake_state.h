// The state of FakeEngine: a hash of every token consumed, with its position,
// and logits that are a hash of the state. A token that is lost, doubled, out
// of place or another session's changes all later output.
#ifndef TESTS_SUPPORT_FAKE_STATE_H_
#define TESTS_SUPPORT_FAKE_STATE_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace reprise {

inline uint64_t MixBits(uint64_t x) {  // splitmix64's finaliser
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// As it lies in a slot: whole numbers below 2^24, so that they are finite and
// exact as floats. All zeros is a new session.
struct FakeState {
  std::array<float, 4> lanes{};
  float count = 0;  // tokens consumed

  uint64_t Hash() const {
    uint64_t hash = static_cast<uint64_t>(count);
    for (float lane : lanes) {
      hash = MixBits(hash ^ static_cast<uint64_t>(lane));
    }
    return hash;
  }
  void Consume(uint64_t token) {
    const uint64_t hash = MixBits(Hash() ^ MixBits(token + 1));
    for (size_t i = 0; i < lanes.size(); ++i) {
      lanes[i] = static_cast<float>(MixBits(hash + i) & 0xFFFFFF);
    }
    count += 1;
  }
  // In [-4, 4): some tokens are much more likely than others.
  float Logit(int64_t token) const {
    const uint64_t bits = MixBits(Hash() + static_cast<uint64_t>(token) * 977);
    return static_cast<float>(bits >> 40) / (1 << 21) - 4;
  }
};

}  // namespace reprise

#endif  // TESTS_SUPPORT_FAKE_STATE_H_
