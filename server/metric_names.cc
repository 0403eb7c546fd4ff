#include "server/metric_names.h"

#include "server/metrics.h"

namespace reprise {
namespace {

// `first`, then each `factor` times the one before, `count` in all.
Buckets Powers(double first, double factor, int count) {
  Buckets buckets;
  for (double bound = first; count > 0; bound *= factor, --count) {
    buckets.push_back(bound);
  }
  return buckets;
}

}  // namespace

std::string_view FinishReasonName(FinishReason reason) {
  return kFinishReasons[Index(reason)];
}

std::string CodeName(absl::StatusCode code) {
  static constexpr Names<17> kCodes = {"OK",
                                       "Canceled",
                                       "Unknown",
                                       "InvalidArgument",
                                       "DeadlineExceeded",
                                       "NotFound",
                                       "AlreadyExists",
                                       "PermissionDenied",
                                       "ResourceExhausted",
                                       "FailedPrecondition",
                                       "Aborted",
                                       "OutOfRange",
                                       "Unimplemented",
                                       "Internal",
                                       "Unavailable",
                                       "DataLoss",
                                       "Unauthenticated"};
  const size_t index = Index(code);
  return std::string(index < kCodes.size() ? kCodes[index] : "Unknown");
}

std::string OutcomeName(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
      return "ok";
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kDeadlineExceeded:
      return "cancelled";
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kAborted:
      return "rejected";
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kDataLoss:
      return "error";
    default:
      return "invalid";
  }
}

Buckets FirstTokenSeconds() {
  return {.001, .0025, .005, .01, .02, .04, .06, .08, .1, .25,
          .5,   .75,   1,    2.5, 5,   7.5, 10,  20,  40, 80};
}

Buckets InterTokenSeconds() {
  return {.0005, .001, .002, .004, .006, .008, .01, .015, .02, .025, .03,
          .04,   .05,  .075, .1,   .15,  .2,   .3,  .5,   .75, 1,    2.5};
}

Buckets PerTokenSeconds() {
  return {.001, .0025, .005, .01, .025, .05, .075, .1,
          .15,  .2,    .3,   .4,  .5,   .75, 1,    2.5};
}

Buckets RequestPartSeconds() {
  return {.0005, .001, .0025, .005, .01, .025, .05, .1, .25,
          .5,    1,    2.5,   5,    10,  30,   60,  120};
}

Buckets RequestSeconds() { return Powers(.01, 2, 16); }  // to 327.68

Buckets StoreSeconds() {
  return {.0001, .00025, .0005, .001, .0025, .005, .01,
          .025,  .05,    .1,    .25,  .5,    1,    2.5};
}

Buckets RpcSeconds() {
  return {.001, .0025, .005, .01, .025, .05, .1, .25,
          .5,   1,     2.5,  5,   10,   30,  60, 300};
}

Buckets TokenCounts() { return Powers(1, 4, 10); }  // to 262144

Buckets BatchRows() { return Powers(1, 2, 8); }  // to 128

Buckets SnapshotBytes() { return Powers(1 << 16, 4, 7); }  // to 2^28

}  // namespace reprise
