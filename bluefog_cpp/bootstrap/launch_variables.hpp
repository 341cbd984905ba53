#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <string_view>

namespace bluefog {

using LaunchVariables = std::map<std::string, std::string>;

/// The ways to start several ranks, for messages.
inline constexpr std::string_view kWaysToStart = "bfrun, torchrun, Open MPI's mpirun or srun";

/// A launcher, and its variables for a process's rank and for the number of ranks.
struct LaunchNaming {
  const char* launcher;
  const char* rank;
  const char* size;
};

/// The text of a variable; empty where it is not set.
[[nodiscard]] std::string value_of(const LaunchVariables& variables, const std::string& name);

/// The number in a variable such as PMI_SIZE; −1 if it is not set or holds none from 0 on.
[[nodiscard]] int number_in(const LaunchVariables& variables, const std::string& name);

/// "RANK=0 and WORLD_SIZE=2", of those that are set.
[[nodiscard]] std::string quote(const LaunchVariables& variables,
                                std::initializer_list<const char*> names);

/// What a launcher's variables have to hold.
enum class LaunchNeeds {
  Sense,  ///< what is set makes sense; a rank other than 0 has a number of ranks beside it
  Both    ///< both are set too, unless neither is, or there is one rank
};

/// @throws InvalidArgument that names the variables where they do not hold what `needs` says: each
///   process would be taken for the only one.
void check_place(const LaunchNaming& naming, const LaunchVariables& variables, LaunchNeeds needs);

}  // namespace bluefog
