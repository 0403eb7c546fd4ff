#include "tools/bench/report.h"

#include <cstdio>
#include <iostream>
#include <string>

namespace reprise::bench {
namespace {

nlohmann::ordered_json ToJson(const Figure& figure) {
  nlohmann::ordered_json json = {{"name", figure.name},
                                 {"value", figure.value},
                                 {"unit", figure.unit},
                                 {"limit", figure.limit},
                                 {"limited_by", figure.limited_by},
                                 {"percent_of_limit", 100 * figure.Share()}};
  if (figure.read_speed > 0) json["read_bytes_per_s"] = figure.read_speed;
  return json;
}

}  // namespace

void Report::BeginRun(const ModelInfo& info, const MachineLimits& limits,
                      int threads, const std::vector<int32_t>& greedy) {
  const std::string type(WeightTypeName(info.weight_type));
  runs_.push_back({{"model", info.description},
                   {"parameters", info.num_parameters},
                   {"weight_type", type},
                   {"weight_bytes", info.weight_bytes},
                   {"step_weight_bytes", info.step_weight_bytes},
                   {"state_bytes", info.state_bytes},
                   {"state_bytes_per_token", info.state_bytes_per_token},
                   {"cpu_isa", info.cpu_isa},
                   {"threads", threads},
                   {"memory_read_bytes_per_s", limits.memory_speed},
                   {"model_read_bytes_per_s", limits.weights_speed},
                   {"matmul_flops_per_s", limits.matmul_rate},
                   {"greedy_tokens", greedy},
                   {"figures", nlohmann::ordered_json::array()}});
  if (json_) return;
  std::printf(
      "%smodel      %s\n"
      "           %.1f million parameters, %.1f MB of %s weights in every "
      "step, %.1f KB of state\n",
      runs_.size() > 1 ? "\n" : "", info.description.c_str(),
      1e-6 * static_cast<double>(info.num_parameters),
      1e-6 * static_cast<double>(info.step_weight_bytes), type.c_str(),
      1e-3 * static_cast<double>(info.state_bytes));
  std::printf("machine    %s, %d threads\n", info.cpu_isa.c_str(), threads);
  std::printf(
      "at first   memory read %.1f GB/s beyond the caches, %.1f GB/s for as "
      "many bytes as\n"
      "           the weights; matmul %.0f GFLOP/s at %d rows\n\n",
      1e-9 * limits.memory_speed, 1e-9 * limits.weights_speed,
      1e-9 * limits.matmul_rate, static_cast<int>(MachineLimits::kMatmulRows));
  std::printf("%-40s %12s %-9s %12s %8s  %s\n", "what", "measured", "", "limit",
              "share", "limited by");
}

void Report::Add(const Figure& figure) {
  runs_.back()["figures"].push_back(ToJson(figure));
  if (json_) return;
  const int digits = figure.value < 10 ? 3 : 1;
  std::printf("%-40s %12.*f %-9s", figure.name.c_str(), digits, figure.value,
              figure.unit.c_str());
  if (figure.limit > 0) {
    std::printf(" %12.*f %7.0f%%  %s", digits, figure.limit,
                100 * figure.Share(), figure.limited_by.c_str());
  }
  std::printf("\n");
  std::fflush(stdout);
}

void Report::Finish() const {
  if (!json_) return;
  std::cout << nlohmann::ordered_json{{"runs", runs_}}.dump(2) << "\n";
}

}  // namespace reprise::bench
