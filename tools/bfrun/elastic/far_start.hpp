#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "tools/bfrun/start/environment.hpp"

namespace bluefog::bfrun {

/// How ranks of other hosts are started: by ssh, or a program in its place, which starts
/// `bfrun --exec-far-rank` there. Its standard input says what to run, since keys on a command line
/// would be everybody's to read.
struct FarHosts {
  std::vector<std::string> shell;     ///< the program in place of ssh, with its arguments
  int port = 0;                       ///< of the ssh servers; 0: ssh's own
  std::chrono::seconds silence{60};   ///< a host that answers nothing for so long is lost; 0: never
  std::string bfrun;                  ///< path of this program, there too
  Environment changed = {};           ///< variables that have another value there
  std::vector<std::string> exported;  ///< names of those that go there
};

/// The words that start a rank on `host`.
[[nodiscard]] std::vector<std::string> words_for(const FarHosts& far, const std::string& host);

/// A rank of another host, before its start.
struct FarStart {
  std::string folder;  ///< in which it begins
  Environment environment;
  std::vector<std::string> command;

  bool operator==(const FarStart&) const = default;
};

/// Its bytes, and back from a descriptor, of which nothing behind them is read: signals follow, a byte
/// each, and the end of the stream is that of bfrun.
[[nodiscard]] std::string encode(const FarStart& start);
/// @throws InvalidArgument for bytes that are none.
[[nodiscard]] FarStart read_far_start(int descriptor);

/// The most bytes of one. A pipe takes them at once, so that nobody waits for a host.
inline constexpr std::size_t kMostStartBytes = std::size_t{1} << 20;

}  // namespace bluefog::bfrun
