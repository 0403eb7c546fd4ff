#include "server/team_sampler.h"

#include <algorithm>

#include "engine/base/parallel.h"

namespace reprise {

TeamSampler::TeamSampler(int64_t vocab_size)
    : vocab_size_(vocab_size),
      samplers_(static_cast<size_t>(NumThreads()), Sampler(vocab_size)) {}

void TeamSampler::Add(Sequence& sequence, std::span<float> logits) {
  draws_.push_back({&sequence, logits});
}

void TeamSampler::SampleAll() {
  if (draws_.empty()) return;
  const size_t shares = std::min(samplers_.size(), draws_.size());
  const auto count = static_cast<int64_t>(shares);
  const int64_t floats_each = vocab_size_ * std::ssize(draws_) / count;
  ForEach(count, floats_each, [&](int64_t share) {
    for (auto i = static_cast<size_t>(share); i < draws_.size(); i += shares) {
      draws_[i].sequence->Sample(draws_[i].logits, samplers_[share]);
    }
  });
  draws_.clear();
}

}  // namespace reprise
