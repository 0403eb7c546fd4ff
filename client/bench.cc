#include "client/bench.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <random>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "client/client_cancellation.h"
#include "engine/base/mutex.h"
#include "engine/base/status_macros.h"

namespace reprise {
namespace {

using SteadyClock = std::chrono::steady_clock;

double Seconds(SteadyClock::time_point from, SteadyClock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// New tokens of a stream.
uint32_t MostTokens(const v1::Model& model, const BenchOptions& options) {
  if (options.max_tokens > 0) return options.max_tokens;
  uint64_t most = model.limits().max_new_tokens();
  if (model.has_max_context()) {
    const uint64_t room = model.max_context();
    most =
        std::min(most, room - std::min<uint64_t>(room, options.prompt_tokens));
  }
  return static_cast<uint32_t>(std::max<uint64_t>(1, most));
}

absl::Status CheckBench(const v1::Model& model, const BenchOptions& options) {
  const v1::ServerLimits& limits = model.limits();
  const auto at_once = static_cast<uint64_t>(options.streams + options.prompts);
  const uint64_t most =
      std::min(limits.max_running_requests(), limits.resident_sessions());
  if (at_once > most) {
    return absl::InvalidArgumentError(
        absl::StrCat("--streams and --prompts: ", at_once,
                     " at once, this server runs ", most));
  }
  const uint64_t longest =
      options.prompts > 0
          ? std::max(options.prompt_tokens, options.long_prompt_tokens)
          : options.prompt_tokens;
  if (longest > limits.max_prompt_tokens()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--prompt-tokens and --long-prompt-tokens: ", longest,
                     ", this server takes ", limits.max_prompt_tokens()));
  }
  return absl::OkStatus();
}

// What the threads share.
class Bench {
 public:
  Bench(Client& client, const v1::Model& model, const BenchOptions& options)
      : client_(client),
        model_(model),
        options_(options),
        max_tokens_(MostTokens(model, options)) {}

  absl::StatusOr<BenchResult> Run(const BenchCallbacks& callbacks) {
    std::vector<std::thread> threads;
    try {
      for (int i = 0; i < options_.streams; ++i) {
        threads.emplace_back([this, i] { Stream(static_cast<size_t>(i)); });
      }
      for (int i = 0; i < options_.prompts; ++i) {
        threads.emplace_back([this, i] { Prompts(static_cast<size_t>(i)); });
      }
    } catch (const std::system_error& error) {
      Fail(absl::ResourceExhaustedError(
          absl::StrCat("cannot start a thread: ", error.what())));
    }
    const bool wanted = Watch(callbacks);
    stopped_ = true;
    for (Cancellation& call : calls_) call.Cancel();
    for (std::thread& thread : threads) thread.join();
    MutexLock lock(mu_);
    if (!status_.ok()) return status_;
    if (!wanted) return absl::CancelledError("interrupted");
    return std::move(result_);
  }

 private:
  // Sleeps through the run. False if it is to end early.
  bool Watch(const BenchCallbacks& callbacks) {
    SteadyClock::time_point start;
    while (true) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      const auto now = SteadyClock::now();
      MutexLock lock(mu_);
      if (!status_.ok()) return true;
      if (!measuring_ && started_ == options_.streams) {
        callbacks.on_measured(false);
        start = now;
        measuring_ = true;
      } else if (measuring_ && Seconds(start, now) >= options_.seconds) {
        measuring_ = false;
        result_.seconds = Seconds(start, now);
        callbacks.on_measured(true);
        return true;
      }
      if (!callbacks.on_progress(tokens_)) return false;
    }
  }

  v1::GenerateRequest Request(uint32_t prompt_tokens, uint32_t max_tokens,
                              std::mt19937_64& random) const {
    const uint64_t vocabulary = std::max<uint64_t>(1, model_.vocab_size());
    v1::GenerateRequest request;
    for (uint32_t i = 0; i < prompt_tokens; ++i) {
      request.mutable_token_ids()->add_ids(
          static_cast<int32_t>(random() % vocabulary));
    }
    request.mutable_stopping()->set_max_new_tokens(max_tokens);
    request.mutable_stopping()->set_ignore_eos(true);
    request.mutable_output()->set_token_ids(true);
    return request;
  }

  // One completion after the other.
  void Stream(size_t place) {
    std::mt19937_64 random(std::random_device{}());
    bool first_ever = true;
    bool measured = false;  // when the last token came
    while (!stopped_) {
      const auto request = Request(options_.prompt_tokens, max_tokens_, random);
      BenchResult part;
      auto last = SteadyClock::now();
      const auto on_message = [&](const v1::GenerateResponse& message) {
        const int count = message.delta().token_ids_size();
        if (count == 0) return true;
        const auto now = SteadyClock::now();
        const double gap = Seconds(std::exchange(last, now), now);
        tokens_ += static_cast<uint64_t>(count);
        if (measuring_) part.tokens += static_cast<uint64_t>(count);
        // A gap that began before is none of the measured time.
        const bool whole = std::exchange(measured, measuring_.load());
        if (!part.first_tokens.empty()) {
          if (whole && measuring_) part.gaps.push_back(gap);
          return true;
        }
        part.first_tokens.push_back(gap);
        if (std::exchange(first_ever, false)) {
          MutexLock lock(mu_);
          ++started_;
        }
        return true;
      };
      if (!Call(place, request, on_message)) return;
      if (part.first_tokens.empty() && !stopped_) return Fail(NoToken());
      MutexLock lock(mu_);
      result_.tokens += part.tokens;
      Append(part.gaps, result_.gaps);
      Append(part.first_tokens, result_.first_tokens);
    }
  }

  // One long prompt after the other.
  void Prompts(size_t number) {
    std::mt19937_64 random(std::random_device{}());
    const size_t place = static_cast<size_t>(options_.streams) + number;
    while (!stopped_) {
      const auto request = Request(options_.long_prompt_tokens, 1, random);
      const auto start = SteadyClock::now();
      double first_token = 0;
      const auto on_message = [&](const v1::GenerateResponse& message) {
        if (message.delta().token_ids_size() > 0) {
          first_token = Seconds(start, SteadyClock::now());
        }
        return true;
      };
      if (!Call(place, request, on_message)) return;
      if (first_token == 0 && !stopped_) return Fail(NoToken());
      if (first_token == 0 || !measuring_) continue;
      MutexLock lock(mu_);
      ++result_.long_prompts;
      result_.long_first_tokens.push_back(first_token);
    }
  }

  // False if the run is over because of it. A call that the end of the run has
  // cut off counts.
  bool Call(size_t place, const v1::GenerateRequest& request,
            Client::OnMessage on_message) {
    const absl::Status status =
        client_.Generate(request, on_message, &calls_[place]);
    if (status.ok() || stopped_) return true;
    Fail(status);
    return false;
  }

  void Fail(const absl::Status& status) {
    MutexLock lock(mu_);
    status_.Update(status);
  }

  static absl::Status NoToken() {
    return absl::FailedPreconditionError("the server answered without a token");
  }

  static void Append(const std::vector<double>& from, std::vector<double>& to) {
    to.insert(to.end(), from.begin(), from.end());
  }

  Client& client_;
  const v1::Model& model_;
  const BenchOptions& options_;
  const uint32_t max_tokens_;
  // Of each thread.
  std::vector<Cancellation> calls_ = std::vector<Cancellation>(
      static_cast<size_t>(options_.streams + options_.prompts));
  std::atomic<bool> stopped_{false};
  std::atomic<bool> measuring_{false};
  std::atomic<uint64_t> tokens_{0};
  Mutex mu_;
  int started_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  BenchResult result_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

TimeSpread SpreadOf(std::vector<double> seconds) {
  if (seconds.empty()) return {};
  std::sort(seconds.begin(), seconds.end());
  // The first that has so many percent at or before it.
  const auto at = [&seconds](size_t percent) {
    return seconds[(seconds.size() * percent + 99) / 100 - 1];
  };
  return {.count = seconds.size(),
          .median = at(50),
          .p99 = at(99),
          .longest = seconds.back()};
}

absl::StatusOr<BenchResult> RunBench(Client& client, const v1::Model& model,
                                     const BenchOptions& options,
                                     const BenchCallbacks& callbacks) {
  RETURN_IF_ERROR(CheckBench(model, options));
  return Bench(client, model, options).Run(callbacks);
}

}  // namespace reprise
