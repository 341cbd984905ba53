#pragma once

#include <string>
#include <vector>

#include "tools/bftrace/flight_record.hpp"

namespace bluefog::bftrace {

/// Who waits for whom, rank by rank, and which ranks hold up the others: those that are waited for
/// and wait for nobody, that left no record, or that wait for each other in a circle. Calls of
/// windows that wait for such ranks are named.
///
/// A call that begins after the record of a rank which waits for the caller holds up nobody by its
/// own waits: its rank came too late, having been in another call, stopped or computing, and those
/// it waits for had given up. The clocks of the hosts are compared for this.
///
/// Where groups were formed anew (`Membership`) the newest epoch counts: records of former ones are
/// named, with whether the others have gone on without their rank, and waits of former groups are no
/// waits any more.
/// @throws InvalidArgument for no records, two of one rank, or ranks of one epoch whose
/// runs have different sizes.
[[nodiscard]] std::string explain_stall(std::vector<FlightRecord> records);

}  // namespace bluefog::bftrace
