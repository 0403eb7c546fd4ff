// What the benchmark prints: tables for people, JSON for programs.
#ifndef TOOLS_BENCH_REPORT_H_
#define TOOLS_BENCH_REPORT_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "engine/engine.h"
#include "tools/bench/engine_bench.h"
#include "tools/bench/limits.h"

namespace reprise::bench {

// One model with one type of weights and one number of threads.
class Report {
 public:
  // Prints a table's rows as they come, unless `json`.
  explicit Report(bool json) : json_(json) {}

  void BeginRun(const ModelInfo& info, const MachineLimits& limits, int threads,
                const std::vector<int32_t>& greedy);
  void Add(const Figure& figure);
  // Prints the JSON: {"runs": [{..., "figures": [...]}]}.
  void Finish() const;

 private:
  const bool json_;
  nlohmann::ordered_json runs_ = nlohmann::ordered_json::array();
};

}  // namespace reprise::bench

#endif  // TOOLS_BENCH_REPORT_H_
