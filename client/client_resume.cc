#include "client/client_resume.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/client_replay.h"
#include "engine/base/bytes.h"
#include "engine/base/clock.h"

namespace reprise {
namespace {

constexpr int64_t kFirstPauseMs = 50;
constexpr int64_t kLongestPauseMs = 1'000;
// A request that ends each server it comes to must not go round them all.
constexpr int kMostServersLost = 5;

int64_t NowMs() { return Clock::Real().MonotonicNs() / 1'000'000; }

uint64_t Draw() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

// After so many failures.
int64_t PauseMs(int failures) {
  return std::min(kFirstPauseMs << std::min(failures, 10), kLongestPauseMs);
}

std::string DrawRequestId() {
  std::array<char, 32> id;
  std::snprintf(id.data(), id.size(), "turn-%016llx",
                static_cast<unsigned long long>(Draw()));
  return id.data();
}

class ResumingCall {
 public:
  ResumingCall(Client& client, v1::GenerateRequest request,
               const ResumeOptions& options, Client::OnMessage on_message,
               OnNotice on_notice, Cancellation& cancellation)
      : client_(client),
        request_(std::move(request)),
        options_(options),
        on_message_(on_message),
        on_notice_(on_notice),
        cancellation_(cancellation),
        replay_(std::max<uint32_t>(request_.n(), 1)) {
    if (!request_.sampling().has_seed()) {
      request_.mutable_sampling()->set_seed(Draw());
    }
    if (commits() && !request_.has_request_id()) {
      request_.set_request_id(DrawRequestId());
    }
  }

  absl::Status Run() {
    while (true) {
      const absl::Status status = Attempt();
      // The end of the turn was heard, if not that of the call.
      if (replay_.complete()) return absl::OkStatus();
      if (status.ok() && !cut_end_.has_value()) return status;
      if (ended_) {
        return cancellation_.cancelled() && absl::IsUnavailable(status)
                   ? absl::CancelledError("cancelled")
                   : status;
      }
      if (const absl::Status why = Prepare(status); !why.ok()) {
        PassOnCutEnd();
        return why;
      }
    }
  }

 private:
  bool in_session() const { return request_.has_session_id(); }
  bool commits() const {
    return in_session() && request_.commit() != v1::COMMIT_POLICY_NEVER;
  }

  absl::Status Attempt() {
    heard_now_ = false;
    cut_end_.reset();
    replay_.Begin(revision_);
    absl::Status problem;
    const absl::Status status = client_.Generate(
        request_,
        [&](const v1::GenerateResponse& message) {
          problem = Hear(message);
          return problem.ok() && !ended_;
        },
        &cancellation_);
    address_ = client_.address();
    ended_ = ended_ || cancellation_.cancelled() || !problem.ok();
    return problem.ok() ? status : problem;
  }

  absl::Status Hear(const v1::GenerateResponse& message) {
    if (!heard_now_ && !lost_.empty()) {
      const std::string server = client_.address();
      on_notice_(lost_ + (server == address_
                              ? "; continued over a new connection"
                              : "; continued on " + server));
      lost_.clear();
    }
    heard_now_ = true;
    asked_again_ = false;
    // We did not cancel, so a server did that has to end.
    if (message.has_finished() &&
        message.finished().reason() == v1::FINISH_REASON_CANCELLED &&
        !cancellation_.cancelled() && began_here_) {
      cut_end_ = message;
      return absl::OkStatus();
    }
    const auto added = replay_.Add(message);
    if (!added.ok()) return added.status();
    if (message.has_started()) {
      began_here_ = began_here_ || !message.started().repeated();
    }
    if (added->has_value()) ended_ = !on_message_(**added);
    return absl::OkStatus();
  }

  // Makes ready for another attempt, after a pause; else why there is none.
  absl::Status Prepare(const absl::Status& status) {
    if (cut_end_.has_value()) return PrepareAfterCutEnd(status);
    if (absl::IsUnavailable(status)) {
      if (heard_now_) ++servers_lost_;
      if (lost_.empty()) lost_ = FromAbsl(status.message());
    } else if (attempts_ == 0 || !MayPass(status)) {
      return status;
    }
    return NextAttempt(status);
  }

  // Whether a later attempt can have another end than this one.
  bool MayPass(const absl::Status& status) {
    if (absl::IsResourceExhausted(status)) return true;  // all come to this one
    if (!absl::IsAborted(status) || !in_session()) return false;
    // The first attempt may still be running, cut off from us, or have
    // committed just now: then the next one hears what it recorded.
    if (!request_.has_expected_revision()) return true;
    const absl::StatusOr<v1::Session> now =
        client_.GetSession(request_.session_id());
    const uint64_t revision = now.ok() ? now->revision() : 0;
    const bool untouched = now.ok() || absl::IsNotFound(now.status())
                               ? revision == request_.expected_revision()
                               : true;
    return untouched || !std::exchange(asked_again_, true);
  }

  absl::Status NextAttempt(const absl::Status& status) {
    // Not since the last message: that a server is silent is noticed late.
    if (heard_now_ || attempts_ == 0) lost_at_ms_ = NowMs();
    const int64_t left_ms = lost_at_ms_ + options_.timeout_ms - NowMs();
    if (servers_lost_ >= kMostServersLost) {
      return absl::Status(
          status.code(),
          absl::StrCat(status.message(), "; ", servers_lost_,
                       " servers in a row went away with this turn, so it is "
                       "not sent to another"));
    }
    if (left_ms <= 0) {
      return absl::Status(status.code(),
                          absl::StrCat(status.message(), "; tried again for ",
                                       options_.timeout_ms, " ms"));
    }
    if (replay_.started().has_value() && in_session()) {
      if (!revision_.has_value()) revision_ = replay_.started()->revision();
      request_.set_expected_revision(*revision_);
    }
    // The first attempts are for those who wait; the pauses are for a server
    // that starts, or a crowd that comes to the last one.
    const int64_t pause_ms = std::min(PauseMs(attempts_), left_ms);
    if (++attempts_ == 4 && !lost_.empty()) {
      on_notice_(absl::StrCat(lost_, "; trying again for ",
                              options_.timeout_ms / 1000, " s"));
    }
    if (!cancellation_.WaitFor(pause_ms)) return absl::OkStatus();
    return absl::CancelledError("cancelled while no server answered");
  }

  // A server that ended kept what it had streamed. The session goes back to
  // where it was, and the turn is made again.
  absl::Status PrepareAfterCutEnd(const absl::Status& status) {
    const v1::Finished& end = cut_end_->finished();
    // A slow reader's turn is cut off as well.
    if (!status.ok() && !absl::IsUnavailable(status)) return status;
    if (lost_.empty() && !status.ok()) lost_ = FromAbsl(status.message());
    if (end.has_revision()) {
      const absl::StatusOr<uint64_t> revision = TakeBack(end.revision());
      if (!revision.ok()) {
        return absl::Status(
            revision.status().code(),
            absl::StrCat(
                "the server ended, and kept what it had streamed as revision ",
                end.revision(), " of session ", request_.session_id(),
                ", which cannot be rewound to continue: ",
                revision.status().message()));
      }
      revision_ = *revision;
    }
    if (heard_now_) ++servers_lost_;
    return NextAttempt(absl::UnavailableError("the server ended"));
  }

  // The revision of the session without the part that was kept as `part`. The
  // servers that are asked may go away, too.
  absl::StatusOr<uint64_t> TakeBack(uint64_t part) {
    v1::RewindSessionRequest rewind;
    rewind.set_id(request_.session_id());
    rewind.set_revision(replay_.started()->revision());
    rewind.set_expected_revision(part);
    const int64_t end_ms = NowMs() + options_.timeout_ms;
    for (int tries = 0;; ++tries) {
      const absl::StatusOr<v1::Session> rewound = client_.RewindSession(rewind);
      if (rewound.ok()) return rewound->revision();
      const absl::Status& status = rewound.status();
      // One whose answer was lost may have been carried out, or still run.
      if (absl::IsAborted(status) && tries > 0) {
        const auto now = client_.GetSession(request_.session_id());
        if (now.ok() && IsRewindOf(*now, part)) return now->revision();
        if (now.ok() && now->revision() != part) return status;
      } else if (!absl::IsUnavailable(status)) {
        return status;
      }
      if (NowMs() >= end_ms) return status;
      if (cancellation_.WaitFor(PauseMs(tries))) {
        return absl::CancelledError("cancelled");
      }
    }
  }

  // Whether it became what it is by a rewind of its revision `part`: it is
  // shorter, which no turn makes it.
  static bool IsRewindOf(const v1::Session& now, uint64_t part) {
    if (now.revision() != part + 1) return false;
    return std::any_of(now.checkpoints().begin(), now.checkpoints().end(),
                       [&](const v1::Checkpoint& checkpoint) {
                         return checkpoint.revision() == part &&
                                checkpoint.tokens() > now.tokens();
                       });
  }

  // If it is not made good, the listener hears of it.
  void PassOnCutEnd() {
    if (cut_end_.has_value()) on_message_(*cut_end_);
  }

  Client& client_;
  v1::GenerateRequest request_;
  const ResumeOptions options_;
  const Client::OnMessage on_message_;
  const OnNotice on_notice_;
  Cancellation& cancellation_;
  AnswerReplay replay_;
  int64_t lost_at_ms_ = 0;  // when the last server that said something was lost
  // Of the session before the turn, once it is known.
  std::optional<uint64_t> revision_;
  std::string address_;       // of the last attempt
  std::string lost_;          // what became of the last server, if that is news
  int attempts_ = 0;          // that failed
  int servers_lost_ = 0;      // of them, those that had begun to answer
  bool heard_now_ = false;    // something, in this attempt
  bool began_here_ = false;   // the turn ran for us, and was not only repeated
  bool asked_again_ = false;  // since the session was found to have gone on
  bool ended_ = false;        // by the listener, or by a contradiction
  std::optional<v1::GenerateResponse> cut_end_;
};

}  // namespace

absl::Status GenerateResuming(Client& client, v1::GenerateRequest request,
                              const ResumeOptions& options,
                              Client::OnMessage on_message, OnNotice on_notice,
                              Cancellation& cancellation) {
  if (options.timeout_ms <= 0) {
    return client.Generate(request, on_message, &cancellation);
  }
  return ResumingCall(client, std::move(request), options, on_message,
                      on_notice, cancellation)
      .Run();
}

}  // namespace reprise
