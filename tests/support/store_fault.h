// How a store can fail, and in which of its calls.
#ifndef TESTS_SUPPORT_STORE_FAULT_H_
#define TESTS_SUPPORT_STORE_FAULT_H_

namespace reprise {

enum class StoreFault {
  kUnavailable,  // nothing is done
  kNoSpace,      // nothing is done
  kLostAnswer,   // it is done, and Unavailable returned all the same
};

enum class StoreCall {
  kPut,
  kPutEntry,
  kGetEntry,
  kGet,
  kGetSnapshot,
  kGetOutcome,
  kDelete,
  kList,
  kListExpired,
  kGetUsage
};

}  // namespace reprise

#endif  // TESTS_SUPPORT_STORE_FAULT_H_
