#pragma once

#include "topology/schedule.hpp"

namespace bluefog::topology {

/// The same W(t), with plans whose weights stand at the sender: destinations have W(i, rank), and
/// sources 1, so that what arrives counts as it is, in whatever round the receiver is.
[[nodiscard]] Schedule weighed_by_senders(Schedule schedule);

}  // namespace bluefog::topology
