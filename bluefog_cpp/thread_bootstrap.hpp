#pragma once

#include <memory>
#include <vector>

#include "bluefog_cpp/bootstrap.hpp"

namespace bluefog {

/// Bootstraps of `size` ranks that are threads of this process; element r is
/// rank r's, and rank r's thread keeps it.
///
/// A rank that destroys its bootstrap has left: calls that wait for it end in
/// PeerFailure. A call that ended in TimeoutError may be made again. Ranks that
/// make different calls all get MismatchError. With `size` 1 it is the
/// bootstrap of a process that was started alone, and is named "single".
/// @throws InvalidArgument if `size` is less than 1.
[[nodiscard]] std::vector<std::shared_ptr<Bootstrap>> make_thread_bootstraps(int size);

/// The bootstrap of another thread of this process, which asks the ranks of `rank`, or those that
/// go on after them, to take it in (`Context::regroup`).
/// @throws InvalidArgument for another bootstrap than that of a thread.
[[nodiscard]] std::shared_ptr<Bootstrap> make_thread_applicant(const Bootstrap& rank);

}  // namespace bluefog
