#include "client/bench.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <random>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "client/client_cancellation.h"
#include "engine/base/mutex.h"

namespace reprise {
namespace {

using SteadyClock = std::chrono::steady_clock;

double Seconds(SteadyClock::time_point from, SteadyClock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// What the threads share; each has a place of its own for its times.
class Bench {
 public:
  Bench(Client& client, const v1::Model& model, const BenchOptions& options)
      : client_(client), model_(model), options_(options) {}

  absl::StatusOr<BenchResult> Run(
      absl::FunctionRef<bool(uint64_t)> on_progress) {
    std::vector<std::thread> threads;
    for (int i = 0; i < options_.streams; ++i) {
      threads.emplace_back([this, i] { Stream(static_cast<uint64_t>(i)); });
    }
    for (int i = 0; i < options_.prompts; ++i) {
      threads.emplace_back([this, i] { Prompts(static_cast<uint64_t>(i)); });
    }
    const bool wanted = Watch(on_progress);
    stopped_ = true;
    for (Cancellation& call : calls_) call.Cancel();
    for (std::thread& thread : threads) thread.join();
    MutexLock lock(mu_);
    if (!status_.ok()) return status_;
    if (!wanted) return absl::CancelledError("interrupted");
    result_.seconds = Seconds(start_, end_);
    return std::move(result_);
  }

 private:
  // Sleeps through the run. False if it is to end early.
  bool Watch(absl::FunctionRef<bool(uint64_t)> on_progress) {
    while (true) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      const auto now = SteadyClock::now();
      {
        MutexLock lock(mu_);
        if (!status_.ok()) return true;
        if (!measuring_ && started_ == options_.streams) {
          start_ = now;
          measuring_ = true;
        }
        if (measuring_ && Seconds(start_, now) >= options_.seconds) {
          end_ = now;
          measuring_ = false;
          return true;
        }
      }
      if (!on_progress(tokens_)) return false;
    }
  }

  v1::GenerateRequest Request(uint32_t prompt_tokens, uint32_t max_tokens,
                              std::mt19937_64& random) const {
    v1::GenerateRequest request;
    for (uint32_t i = 0; i < prompt_tokens; ++i) {
      request.mutable_token_ids()->add_ids(static_cast<int32_t>(
          random() % std::max<uint64_t>(1, model_.vocab_size())));
    }
    request.mutable_stopping()->set_max_new_tokens(max_tokens);
    request.mutable_stopping()->set_ignore_eos(true);
    request.mutable_output()->set_token_ids(true);
    return request;
  }

  // One completion after the other.
  void Stream(uint64_t number) {
    std::mt19937_64 random(number);
    const uint32_t most = options_.max_tokens > 0
                              ? options_.max_tokens
                              : model_.limits().max_new_tokens();
    bool first_ever = true;
    while (!stopped_) {
      const auto request = Request(options_.prompt_tokens, most, random);
      std::vector<double> gaps;
      uint64_t tokens = 0;
      auto last = SteadyClock::now();
      bool first = true;
      const auto on_message = [&](const v1::GenerateResponse& message) {
        const auto count =
            static_cast<uint64_t>(message.delta().token_ids_size());
        if (count == 0) return !stopped_.load();
        const auto now = SteadyClock::now();
        const double gap = Seconds(std::exchange(last, now), now);
        tokens_ += count;
        if (measuring_) {
          tokens += count;
          if (!first) gaps.push_back(gap);
        }
        if (first) {
          MutexLock lock(mu_);
          if (std::exchange(first_ever, false)) ++started_;
          result_.first_tokens.push_back(gap);
        }
        first = false;
        return !stopped_.load();
      };
      if (!Call(number, request, on_message)) return;
      MutexLock lock(mu_);
      result_.tokens += tokens;
      result_.gaps.insert(result_.gaps.end(), gaps.begin(), gaps.end());
    }
  }

  // One long prompt after the other.
  void Prompts(uint64_t number) {
    const uint64_t place = static_cast<uint64_t>(options_.streams) + number;
    std::mt19937_64 random(place);
    while (!stopped_) {
      const auto request = Request(options_.long_prompt_tokens, 1, random);
      const auto start = SteadyClock::now();
      if (!Call(place, request, [](const auto&) { return true; })) return;
      if (!measuring_) continue;
      MutexLock lock(mu_);
      ++result_.long_prompts;
      result_.long_first_tokens.push_back(Seconds(start, SteadyClock::now()));
    }
  }

  // False if the run is over because of it. What was measured counts, too, of a
  // call that the end of the run has cut off.
  bool Call(uint64_t place, const v1::GenerateRequest& request,
            Client::OnMessage on_message) {
    const absl::Status status =
        client_.Generate(request, on_message, &calls_[place]);
    if (status.ok() || stopped_) return true;
    MutexLock lock(mu_);
    status_.Update(status);
    return false;
  }

  Client& client_;
  const v1::Model& model_;
  const BenchOptions& options_;
  std::vector<Cancellation> calls_ = std::vector<Cancellation>(
      static_cast<size_t>(options_.streams + options_.prompts));
  std::atomic<bool> stopped_{false};
  std::atomic<bool> measuring_{false};
  std::atomic<uint64_t> tokens_{0};
  Mutex mu_;
  int started_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  BenchResult result_ ABSL_GUARDED_BY(mu_);
  SteadyClock::time_point start_, end_;  // of the thread that runs it
};

}  // namespace

absl::StatusOr<BenchResult> RunBench(
    Client& client, const v1::Model& model, const BenchOptions& options,
    absl::FunctionRef<bool(uint64_t tokens)> on_progress) {
  return Bench(client, model, options).Run(on_progress);
}

}  // namespace reprise
