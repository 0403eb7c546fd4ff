// Early return for absl::Status and absl::StatusOr.
#ifndef ENGINE_BASE_STATUS_MACROS_H_
#define ENGINE_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define REPRISE_CONCAT_INNER(a, b) a##b
#define REPRISE_CONCAT(a, b) REPRISE_CONCAT_INNER(a, b)

// Returns from the function if `expr`, an absl::Status, is not OK.
#define RETURN_IF_ERROR(expr)                                         \
  do {                                                                \
    if (absl::Status status_ = (expr); !status_.ok()) return status_; \
  } while (false)

// Assigns the value of `expr`, an absl::StatusOr, to `lhs`, or returns its
// status. `lhs` may declare a variable: ASSIGN_OR_RETURN(auto x, F());
#define ASSIGN_OR_RETURN(lhs, expr) \
  ASSIGN_OR_RETURN_INNER(REPRISE_CONCAT(status_or_, __LINE__), lhs, expr)
#define ASSIGN_OR_RETURN_INNER(var, lhs, expr)   \
  auto var = (expr);                             \
  if (!var.ok()) return std::move(var).status(); \
  lhs = *std::move(var)

#endif  // ENGINE_BASE_STATUS_MACROS_H_
