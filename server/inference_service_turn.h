// What every call that is a turn is made of: it is counted among the open ones,
// validated on the text executor, handed to the scheduler, and ends once.
//
//   gRPC's thread      Enter ----.                      Cancelled, Left
//   text executor                Prepare: MakeTurn, submit
//   delivery thread                        OnEvents
#ifndef SERVER_INFERENCE_SERVICE_TURN_H_
#define SERVER_INFERENCE_SERVICE_TURN_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "server/inference_service_context.h"

namespace reprise {

// How a call is named where it is counted and logged. The views are of gRPC's
// request, which lives until the call is done.
struct TurnNames {
  std::string_view method;
  std::string_view request_id;  // empty if the client chose none
  std::string_view session;     // empty if stateless
};

// A turn on its way from a call to the scheduler and its events on the way
// back, whatever kind of call it is. Held by its call until OnDone, and by
// tasks that wait in a queue: those may outlive the call. One Finish is decided
// under `mu_`; after that the gRPC objects are not touched.
//
// Thread-safe.
class TurnCall : public OpenCall,
                 public std::enable_shared_from_this<TurnCall> {
 public:
  // Before the scheduler has the turn, refuses it.
  void Cancel(CancelCause cause) final;
  void Hurry() final {}  // turns have the time of the drain

 protected:
  TurnCall(ServiceContext& context, grpc::CallbackServerContext* rpc,
           const TurnNames& names);

  // Starts the call, or finishes it with why it was not let in.
  void Enter();
  // For the reactor's OnCancel and OnDone.
  void Cancelled();
  void Left();

  // The turn that is asked for, on the text executor; why it is refused.
  virtual absl::StatusOr<TurnRequest> MakeTurn() = 0;
  // On the delivery thread, whenever there is something new in `stream_`.
  virtual void OnEvents() = 0;
  // The reactor's Finish.
  virtual void SendStatus(const grpc::Status& status) = 0;

  // Takes in what an event tells of the turn as a whole.
  void Note(const StreamEvent& event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Finishes the call unless that was decided already.
  void FinishOnce(const absl::Status& status);
  // After `finished_` was set: counts and logs the turn, and finishes.
  void RecordAndFinish(const absl::Status& status);

  ServiceContext& context_;
  grpc::CallbackServerContext* const rpc_;

  Mutex mu_;
  // shared: with the scheduler. nullptr before it has the turn.
  std::shared_ptr<TokenStream> stream_ ABSL_GUARDED_BY(mu_);
  bool finished_ ABSL_GUARDED_BY(mu_) = false;  // Finish was decided
  // Of the first completion; empty until it has ended, and for turns without.
  std::string_view finish_reason_ ABSL_GUARDED_BY(mu_);
  // That was committed; none if nothing was.
  std::optional<uint64_t> revision_ ABSL_GUARDED_BY(mu_);

 private:
  void Prepare();
  // Hands the turn to the scheduler. Its errors; Cancelled or DeadlineExceeded
  // if Cancel came first.
  absl::Status Submit(TurnRequest request);
  double SecondsSinceArrival() const;

  // Constant after Enter.
  const TurnNames names_;
  const int64_t arrival_ns_;
  std::shared_ptr<TurnCall> self_;  // shared: until OnDone; see above
  bool entered_ = false;            // counted among the open calls

  std::optional<CancelCause> cancelled_ ABSL_GUARDED_BY(mu_);
  TokenUsage usage_ ABSL_GUARDED_BY(mu_);
};

}  // namespace reprise

#endif  // SERVER_INFERENCE_SERVICE_TURN_H_
