// Sessions that other servers work on too. For the session manager alone.
#ifndef SERVER_SESSION_SHARED_H_
#define SERVER_SESSION_SHARED_H_

#include "absl/status/status.h"
#include "server/session_cache.h"
#include "server/session_table.h"
#include "server/store/snapshot_store.h"

namespace reprise {

// With a store that is shared, compares what this server has of a claimed
// session, in a slot or in memory, with what is stored. If another server has
// committed, deleted or made it since, what is here is dropped, and the session
// comes from the store, like one that was never here. Blocks on the store, and
// does nothing if the store is not shared or nothing is here. On an error of
// the store, other than NotFound, all is left as it was.
absl::Status DropIfOutdated(SnapshotStore& store, SessionCache& cache,
                            SessionClaim& claim);

}  // namespace reprise

#endif  // SERVER_SESSION_SHARED_H_
