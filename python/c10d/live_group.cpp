#include "python/c10d/live_group.hpp"

#include <fmt/format.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <utility>

#include "bluefog_cpp/error.hpp"

namespace bluefog::c10d_backend {
namespace {

// The process that has made groups, which a fork of it remembers; no lock, which it might inherit.
struct Home {
  std::atomic<pid_t> process{0};
  std::atomic<int> rank{0};
  std::atomic<int> groups{0};
};

Home& home() {
  static Home made;
  return made;
}

}  // namespace

LiveGroup::LiveGroup(const GroupPlace& place) {
  if (home().process.exchange(::getpid()) != ::getpid()) {
    home().groups = 0;  // the fork of a process whose groups were closed
  }
  if (home().groups++ == 0) {
    home().rank = place.rank;
  }
}

void LiveGroup::leave() noexcept {
  if (home().process == ::getpid() && std::exchange(is_counted_, false)) {
    --home().groups;
  }
}

void LiveGroup::refuse_fork(const GroupPlace& place) {
  const pid_t parent = home().process;
  if (home().groups > 0 && parent != ::getpid()) {
    throw StateError(fmt::format(
        "rank {} of group '{}': process {} was forked from process {}, which is rank {} of a group "
        "of the backend bluefog, and only that one is a rank: communicate there, or start children "
        "by spawn",
        place.rank, place.name, ::getpid(), parent, home().rank.load()));
  }
}

}  // namespace bluefog::c10d_backend
