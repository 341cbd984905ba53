#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace bluefog::bfrun {

/// One host and how many ranks it may hold.
struct HostSlots {
  std::string name;
  int slots = 1;

  bool operator==(const HostSlots&) const = default;
};

/// Reads `host1:2,host2:4,[2001:db8::1]:2`; a host without a number has one slot.
///
/// @throws UsageError for an empty entry, a name no host can have, slots outside 1 to 65536, or a
/// host given twice; the message quotes the entry.
[[nodiscard]] std::vector<HostSlots> parse_host_list(std::string_view text);

/// Reads the text of a hosts file: `NAME [slots=N]` or `NAME:N` on each line, `#` begins a comment.
///
/// `source` names the file in messages. @throws as parse_host_list, with the line's number and
/// text; UsageError too for more than 1 MiB or for a file without hosts.
[[nodiscard]] std::vector<HostSlots> parse_hostfile(std::string_view text,
                                                    const std::string& source);

/// Reads a hosts file from disk. @throws UsageError when it cannot be read, else as parse_hostfile.
[[nodiscard]] std::vector<HostSlots> read_hostfile(const std::string& path);

/// Reads what the program of `--host-discovery` has printed: `NAME:SLOTS`, or `NAME` for one slot, on
/// each line. A host with 0 slots is left out.
///
/// `source` names the program in messages. @throws as parse_hostfile; no host at all is no error.
[[nodiscard]] std::vector<HostSlots> parse_discovered_hosts(std::string_view text,
                                                            const std::string& source);

/// How many ranks each host gets: hosts are filled in the given order, ranks stay consecutive.
/// Hosts that get none are left out; each one's `slots` is then its number of ranks.
///
/// @throws UsageError when there are more ranks than slots.
[[nodiscard]] std::vector<HostSlots> assign_ranks(const std::vector<HostSlots>& hosts, int ranks);

/// Whether `name` means the machine whose host name is `own_name` (or its short form): capitals
/// and a last dot make no difference, and the names of the loopback interface mean this machine.
[[nodiscard]] bool is_this_host(std::string_view name, std::string_view own_name);

/// Whether two of `hosts`, or one of them and the machine `own_name`, have the same first label and
/// different names: mpirun takes them for one machine, unless told to look at whole names.
[[nodiscard]] bool share_first_label(const std::vector<HostSlots>& hosts,
                                     std::string_view own_name);

}  // namespace bluefog::bfrun
