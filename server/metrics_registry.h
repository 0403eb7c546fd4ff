// What metrics.cc registers its metrics with. For metrics.cc alone.
#ifndef SERVER_METRICS_REGISTRY_H_
#define SERVER_METRICS_REGISTRY_H_

#include <prometheus/collectable.h>
#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "server/metric_names.h"
#include "server/process_stats.h"

namespace reprise {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;
using prometheus::Labels;

// ---- Process ----------------------------------------------------------------

// Read when a scrape asks, so that nothing runs in between.
class ProcessCollector : public prometheus::Collectable {
 public:
  std::vector<prometheus::MetricFamily> Collect() const override {
    using prometheus::MetricType;
    const ProcessStats stats = ReadProcessStats();
    return {
        Make("process_cpu_seconds_total", "CPU time of all threads.",
             MetricType::Counter, stats.cpu_seconds),
        Make("process_resident_memory_bytes", "Memory in RAM.",
             MetricType::Gauge, stats.resident_bytes),
        Make("process_virtual_memory_bytes", "Address space in use.",
             MetricType::Gauge, stats.virtual_bytes),
        Make("process_open_fds", "Open file descriptors.", MetricType::Gauge,
             stats.open_fds),
        Make("process_max_fds", "Limit of open file descriptors.",
             MetricType::Gauge, stats.max_fds),
        Make("process_threads", "Threads.", MetricType::Gauge, stats.threads),
        Make("process_start_time_seconds", "Unix time of the process's start.",
             MetricType::Gauge, stats.start_time_unix_seconds),
    };
  }

 private:
  static prometheus::MetricFamily Make(const char* name, const char* help,
                                       prometheus::MetricType type,
                                       double value) {
    prometheus::ClientMetric metric;
    if (type == prometheus::MetricType::Counter) {
      metric.counter.value = value;
    } else {
      metric.gauge.value = value;
    }
    return {name, help, type, {metric}};
  }
};

// ---- Registration -----------------------------------------------------------

template <size_t N>
using Counters = std::array<Counter*, N>;
template <size_t N>
using Gauges = std::array<Gauge*, N>;
template <size_t N>
using Histograms = std::array<Histogram*, N>;

// A registry with short names for what we do with it: families get the prefix
// and constant labels; children are made for every value of one label.
class Registrar {
 public:
  using Text = const std::string&;
  Family<Counter>& CounterFamily(Text name, Text help,
                                 const Labels& constant = {}) {
    return Register(prometheus::BuildCounter(), name, help, constant);
  }
  Family<Gauge>& GaugeFamily(Text name, Text help,
                             const Labels& constant = {}) {
    return Register(prometheus::BuildGauge(), name, help, constant);
  }
  Family<Histogram>& HistogramFamily(Text name, Text help,
                                     const Labels& constant = {}) {
    return Register(prometheus::BuildHistogram(), name, help, constant);
  }

  // A child for each value of `label`. `args` are a histogram's buckets.
  template <typename T, size_t N, typename... Args>
  static std::array<T*, N> Each(Family<T>& family, const char* label,
                                const Names<N>& values, Labels labels,
                                const Args&... args) {
    std::array<T*, N> children;
    for (size_t i = 0; i < N; ++i) {
      labels[label] = std::string(values[i]);
      children[i] = &family.Add(labels, args...);
    }
    return children;
  }

  const std::shared_ptr<prometheus::Registry>& registry() const {
    return registry_;
  }

 private:
  template <typename T>
  Family<T>& Register(prometheus::detail::Builder<T> builder, Text name,
                      Text help, const Labels& labels) {
    return builder.Name(name).Help(help).Labels(labels).Register(*registry_);
  }

  // shared: an Exposer only takes weak pointers to what it serves
  std::shared_ptr<prometheus::Registry> registry_ =
      std::make_shared<prometheus::Registry>();
};

}  // namespace reprise

#endif  // SERVER_METRICS_REGISTRY_H_
