#pragma once

#include "topology/schedule.hpp"

namespace bluefog::topology {

/// The same W(t) in plans whose weights stand at the sender: destinations have W(i, rank), and
/// sources 1, so that a value counts as it arrives, whatever round the receiver is in.
[[nodiscard]] Schedule weighed_by_senders(Schedule schedule);

}  // namespace bluefog::topology
