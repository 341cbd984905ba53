#pragma once

#include <functional>
#include <memory>
#include <string>

#include "bluefog_cpp/bootstrap.hpp"
#include "bluefog_cpp/settings.hpp"
#include "bluefog_cpp/store.hpp"

namespace bluefog {

/// This process's place among the ranks that meet in a store.
struct StorePlace {
  int rank = 0;  ///< this process's number, 0 to size - 1; no other process has it
  int size = 1;  ///< how many processes meet, the same on all of them
  /// Begins all keys: programs and restarts that share a store differ in it.
  std::string prefix = "bluefog_cpp";
  /// The library's version, the same on all ranks; empty: this one's own.
  std::string version = {};
  /// The key at which whoever keeps the store says which ranks have ended, as bfrun does; empty:
  /// nobody does.
  std::string ended_key = {};
  /// Whether processes of an attempt of the launch before this one may have used the prefix, and nothing
  /// that each rank knows tells attempts apart: ranks agree on a name for theirs then, once a context.
  bool has_attempts = false;
};

/// Collective over `place.size` ranks. A bootstrap over `store`, named "store".
///
/// Ranks announce themselves and wait for all others; rank 0 gathers what they bring and hands it
/// out. Ranks may meet again and again under the same prefix, one meeting after the other. After an
/// exception of this function the next call waits for the same meeting.
///
/// The bootstrap's collectives keep their keys for two more collectives, and then delete them. One
/// that ended in TimeoutError or TransportError leaves the ranks at different places: further calls
/// are refused with StateError. Ranks that make different calls all get MismatchError, and go on.
///
/// Rank 0, where it lets go of it or exits, waits up to 2 s for the others to have what it handed
/// out.
///
/// Cost of a collective: 3 calls of the store for rank 0, 4 for each other rank, for blobs up to
/// 256 KiB; a thread as long as it runs, so that a store which does not answer holds up nobody for
/// ever.
/// @param interrupt_check called about every 50 ms while the ranks are waited for, unless empty;
///   its exception ends the wait.
/// @throws InvalidArgument for a rank that is none of `size`, or a prefix that is no key.
/// @throws UnsupportedError on all ranks where two have different versions or sizes, naming both;
///   StateError where another process has come as the same rank.
/// @throws TimeoutError when `deadline` passes, naming the ranks that have not come; PeerFailure once
///   one has ended before it came, with its cause, where `place.ended_key` says so.
/// @throws TransportError where the store fails or holds what no rank has written.
[[nodiscard]] std::shared_ptr<Bootstrap> make_store_bootstrap(
    std::shared_ptr<Store> store, const StorePlace& place, const Settings& settings,
    Deadline deadline, std::function<void()> interrupt_check = {});

}  // namespace bluefog
