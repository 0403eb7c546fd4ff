// Ends a civetweb server without a wait. It looks for its stop flag once in two
// seconds, or when a connection comes; so connections are made to it.
#ifndef SERVER_METRICS_POKE_H_
#define SERVER_METRICS_POKE_H_

#include <functional>
#include <string>

namespace reprise {

// Runs `stop` and meanwhile connects again and again to `host` (an address or a
// name, IPv6 in brackets), hanging up at once. Returns when `stop` has.
void PokeWhile(const std::string& host, int port,
               const std::function<void()>& stop);

}  // namespace reprise

#endif  // SERVER_METRICS_POKE_H_
