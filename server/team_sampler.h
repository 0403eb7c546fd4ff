// The draws of a step, shared by the threads of the team.
#ifndef SERVER_TEAM_SAMPLER_H_
#define SERVER_TEAM_SAMPLER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "engine/sampler.h"
#include "server/sequence.h"

namespace reprise {

// Used by the scheduler's thread only.
class TeamSampler {
 public:
  // For a team of NumThreads() as they are now.
  explicit TeamSampler(int64_t vocab_size);

  // `sequence` decodes, and draws its next token from `logits`. Both must stay
  // until the next SampleAll.
  void Add(Sequence& sequence, std::span<float> logits);
  // Calls Sample of all that were added since the last time.
  void SampleAll();

 private:
  struct Draw {
    Sequence* sequence;
    std::span<float> logits;
  };

  const int64_t vocab_size_;
  std::vector<Sampler> samplers_;  // one for each thread of the team
  std::vector<Draw> draws_;
};

}  // namespace reprise

#endif  // SERVER_TEAM_SAMPLER_H_
