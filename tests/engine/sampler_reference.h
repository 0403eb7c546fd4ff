// The sampler again, as plainly as its header says it: full sorts, maps, and
// the whole history instead of running weights.
#ifndef TESTS_ENGINE_SAMPLER_REFERENCE_H_
#define TESTS_ENGINE_SAMPLER_REFERENCE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <vector>

#include "engine/sampler.h"

namespace reprise::reference {

using Weights = std::map<int32_t, double>;

// One token of the history and whether the decay of its time.
inline Weights WeightsOf(const std::vector<int32_t>& history,
                         const SamplingParams& params) {
  Weights weights;
  const size_t size = history.size();
  const size_t last = params.penalty_last_n.has_value()
                          ? static_cast<size_t>(*params.penalty_last_n)
                          : size;
  for (size_t i = size - std::min(size, last); i < size; ++i) {
    const auto age = static_cast<double>(size - 1 - i);
    weights[history[i]] += std::pow(double{params.penalty_decay}, age);
  }
  return weights;
}

inline std::vector<double> Adjust(const std::vector<float>& logits,
                                  const SamplingParams& params,
                                  const std::vector<int32_t>& history) {
  std::vector<double> adjusted(logits.begin(), logits.end());
  for (const auto& [token, bias] : params.logit_bias) adjusted[token] += bias;
  for (const auto& [token, weight] : WeightsOf(history, params)) {
    const double factor =
        std::pow(double{params.repetition_penalty}, std::min(weight, 1.0));
    double& logit = adjusted[token];
    logit = logit > 0 ? logit / factor : logit * factor;
    logit -= params.presence_penalty;
    logit -= params.frequency_penalty * weight;
  }
  return adjusted;
}

// Probabilities that add up to 1; 0 for those that are out.
inline std::vector<double> Normalize(std::vector<double> p) {
  const double total = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& x : p) x /= total;
  return p;
}

// Keeps tokens in the order of `key`, ascending, until their probabilities
// reach `share` or there are `count` of them.
inline std::vector<double> Keep(const std::vector<double>& p,
                                const std::function<double(double)>& key,
                                double share, size_t count) {
  std::vector<size_t> order;
  for (size_t i = 0; i < p.size(); ++i) {
    if (p[i] > 0) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return key(p[a]) < key(p[b]); });
  std::vector<double> kept(p.size(), 0.0);
  double reached = 0;
  for (size_t i = 0; i < std::min(count, order.size()) && reached < share;
       ++i) {
    kept[order[i]] = p[order[i]];
    reached += p[order[i]];
  }
  return Normalize(std::move(kept));
}

inline std::vector<double> Probabilities(const std::vector<float>& logits,
                                         const SamplingParams& params,
                                         const std::vector<int32_t>& history) {
  constexpr size_t kAll = std::numeric_limits<size_t>::max();
  std::vector<double> p = Adjust(logits, params, history);
  const double highest = *std::max_element(p.begin(), p.end());
  for (double& x : p) x = std::exp((x - highest) / params.temperature);
  p = Normalize(std::move(p));
  const auto falling = [](double x) { return -x; };
  if (params.top_k > 0) {
    p = Keep(p, falling, 2, static_cast<size_t>(params.top_k));
  }
  if (params.typical_p < 1) {
    double entropy = 0;
    for (const double x : p) entropy -= x > 0 ? x * std::log(x) : 0;
    const auto key = [&](double x) { return std::abs(-std::log(x) - entropy); };
    p = Keep(p, key, params.typical_p, kAll);
  }
  if (params.top_p < 1) p = Keep(p, falling, params.top_p, kAll);
  const double least = params.min_p * *std::max_element(p.begin(), p.end());
  for (double& x : p) x = x < least ? 0 : x;
  return Normalize(std::move(p));
}

// The token at which the running sum of the probabilities passes `uniform`.
inline int32_t TokenAt(const std::vector<double>& p, double uniform) {
  double sum = 0;
  int32_t token = -1;
  for (size_t i = 0; i < p.size(); ++i) {
    if (p[i] == 0) continue;
    token = static_cast<int32_t>(i);
    sum += p[i];
    if (uniform < sum) break;
  }
  return token;
}

}  // namespace reprise::reference

#endif  // TESTS_ENGINE_SAMPLER_REFERENCE_H_
