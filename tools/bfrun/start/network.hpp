#pragma once

#include <string>
#include <vector>

#include "tools/bfrun/job/descriptor.hpp"

namespace bluefog::bfrun {

/// A TCP port of this machine that the system gives to nobody else while this lives. Who names it
/// can listen there, with SO_REUSEADDR, as torch's stores have it.
class ReservedPort {
 public:
  ReservedPort();

  /// 0 when there is none.
  [[nodiscard]] int number() const noexcept { return number_; }

 private:
  Descriptor socket_;
  int number_ = 0;
};

/// The entries of a list separated by commas.
[[nodiscard]] std::vector<std::string> split_list(const std::string& list);

/// Whether this machine has a network interface of that name. Address ranges, which Open MPI also
/// takes (`10.0.0.0/8`), are not looked up.
[[nodiscard]] bool has_interface(const std::string& name);

/// The first IPv4 address of a network interface of this machine, empty when it has none.
[[nodiscard]] std::string interface_address(const std::string& name);

/// The addresses of this machine by which others may reach it, as text: those of `interfaces`, or
/// of all where that names none. Link-local ones, which say nothing elsewhere, are left out.
[[nodiscard]] std::vector<std::string> reachable_addresses(
    const std::vector<std::string>& interfaces);

/// Whether an address of `name` is one of this machine. Asks the resolver, which may take a while.
[[nodiscard]] bool resolves_to_this_machine(const std::string& name);

}  // namespace bluefog::bfrun
