// How the ranks of a host form a group: collective over all ranks of a bootstrap.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/transport/shm/arena_handout.hpp"
#include "bluefog_cpp/transport/shm/host_group.hpp"

namespace bluefog::shm {
namespace {

using Blob = Bootstrap::Blob;

Blob to_blob(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

std::string to_text(std::span<const std::byte> blob) {
  return {reinterpret_cast<const char*>(blob.data()), blob.size()};
}

std::vector<int> ranks_of_host(const std::vector<std::string>& host_ids, int rank) {
  std::vector<int> ranks;
  for (std::size_t r = 0; r < host_ids.size(); ++r) {
    if (host_ids[r] == host_ids[static_cast<std::size_t>(rank)]) {
      ranks.push_back(static_cast<int>(r));
    }
  }
  return ranks;
}

}  // namespace

/// The steps of one rank. The lowest rank of a host leads: it makes arena and block, and hands the
/// arena out to the ranks that have none.
class GroupFormation {
 public:
  GroupFormation(Bootstrap& bootstrap, const std::vector<std::string>& host_ids,
                 std::shared_ptr<HostArena> arena, const GroupShape& shape, Deadline deadline)
      : bootstrap_(bootstrap),
        rank_(bootstrap.rank()),
        ranks_(ranks_of_host(host_ids, rank_)),
        own_(static_cast<std::size_t>(std::ranges::find(ranks_, rank_) - ranks_.begin())),
        arena_(std::move(arena)),
        shape_(shape),
        deadline_(deadline) {}

  FormedGroup run();
  [[nodiscard]] const std::shared_ptr<HostArena>& arena() const noexcept { return arena_; }

 private:
  /// The beginning of the leader's blob; the name of its listener follows, where it has one.
  struct Invitation {
    std::uint64_t place = 0;
    Token token{};
  };

  [[nodiscard]] bool is_alone() const noexcept { return ranks_.size() == 1; }
  [[nodiscard]] bool leads() const noexcept { return own_ == 0; }
  /// Does a step, and keeps the error of one that fails; nothing after one that did.
  template <typename Step>
  void attempt(Step step) noexcept {
    if (is_alone() || !error_.empty()) {
      return;
    }
    try {
      step();
    } catch (const std::exception& e) {
      error_ = e.what();
    }
  }

  void invite();
  void share_between_threads();
  void share_between_processes();
  void take_part(const std::vector<Blob>& invitations);
  void check_shape(int leader) const;
  [[nodiscard]] std::vector<std::string> gather_errors();

  Bootstrap& bootstrap_;
  int rank_;
  std::vector<int> ranks_;
  std::size_t own_;
  std::shared_ptr<HostArena> arena_;
  GroupShape shape_;
  Deadline deadline_;
  std::string error_{};
  std::optional<ArenaGiver> giver_{};
  std::optional<ArenaTaker> taker_{};
  Invitation invitation_{};
  std::shared_ptr<HostGroup::Body> body_{};
};

FormedGroup GroupFormation::run() {
  // Every rank takes part in every step of the bootstrap, whatever went wrong before.
  attempt([&] { invite(); });
  if (bootstrap_.in_process()) {
    share_between_threads();
  } else {
    share_between_processes();
  }
  attempt([&] { check_shape(ranks_.front()); });
  FormedGroup formed;
  formed.errors = gather_errors();
  const bool is_whole = std::ranges::all_of(
      ranks_, [&](int rank) { return formed.errors[static_cast<std::size_t>(rank)].empty(); });
  if (!is_whole) {
    arena_.reset();
  } else if (!is_alone()) {
    formed.group.reset(new HostGroup(std::move(body_), own_));
  }
  return formed;
}

void GroupFormation::invite() {
  if (leads()) {
    const bool is_new = arena_ == nullptr;
    if (is_new) {
      arena_ = HostArena::create(bootstrap_.size());
    }
    invitation_.place = HostGroup::make_block(*arena_, ranks_.size(), shape_);
    if (is_new && !bootstrap_.in_process()) {
      giver_.emplace(ranks_);
      invitation_.token = giver_->token();
    }
    if (bootstrap_.in_process()) {
      body_ = HostGroup::map_block(arena_, invitation_.place, ranks_);
      body_->is_in_process = true;
    }
  } else if (arena_ == nullptr && !bootstrap_.in_process()) {
    taker_.emplace(rank_);
  }
}

// Threads exchange the addresses of their handles and copy the leader's.
void GroupFormation::share_between_threads() {
  const auto* address = &body_;
  const auto blobs = bootstrap_.allgather(std::as_bytes(std::span(&address, 1)), deadline_);
  const std::shared_ptr<HostGroup::Body>* leaders = nullptr;
  std::memcpy(&leaders, blobs[static_cast<std::size_t>(ranks_.front())].data(), sizeof(leaders));
  auto body = *leaders;
  bootstrap_.barrier(deadline_);  // the handles stay where they are until all have copied them
  body_ = std::move(body);
  if (body_) {
    arena_ = body_->arena;
  }
}

void GroupFormation::share_between_processes() {
  // One byte tells an error from what the leader has to say.
  Blob blob(1, error_.empty() ? std::byte{1} : std::byte{0});
  if (giver_ || (leads() && !is_alone() && error_.empty())) {
    const auto begin = std::as_bytes(std::span(&invitation_, 1));
    blob.insert(blob.end(), begin.begin(), begin.end());
    const Blob name = to_blob(giver_ ? giver_->name() : std::string());
    blob.insert(blob.end(), name.begin(), name.end());
  }
  const auto invitations = bootstrap_.allgather(blob, deadline_);
  const bool can_all = std::ranges::all_of(ranks_, [&](int rank) {
    const Blob& theirs = invitations[static_cast<std::size_t>(rank)];
    return !theirs.empty() && theirs[0] == std::byte{1};
  });
  if (can_all) {
    attempt([&] { take_part(invitations); });
  }
}

void GroupFormation::take_part(const std::vector<Blob>& invitations) {
  const Blob& blob = invitations[static_cast<std::size_t>(ranks_.front())];
  if (blob.size() < 1 + sizeof(Invitation)) {
    throw TransportError(
        fmt::format("shared memory set-up: rank {} sent no invitation", ranks_.front()));
  }
  std::memcpy(&invitation_, blob.data() + 1, sizeof(Invitation));
  const bool is_new = giver_ || taker_;
  if (giver_) {
    giver_->give(*arena_, deadline_);
    giver_.reset();
  } else if (taker_) {
    const std::string name = to_text(std::span(blob).subspan(1 + sizeof(Invitation)));
    arena_ = taker_->take(name, invitation_.token, deadline_);
    taker_.reset();
  }
  if (is_new) {
    arena_->mark_alive(rank_, std::chrono::nanoseconds(shape_.heartbeat_ns));
  }
  body_ = HostGroup::map_block(arena_, invitation_.place, ranks_);
}

void GroupFormation::check_shape(int leader) const {
  if (!body_) {
    return;  // another rank says why
  }
  const GroupHead& head = body_->head();
  if (head.version != kLayoutVersion || head.local_size != ranks_.size() ||
      head.shape.chunk_bytes != shape_.chunk_bytes || head.shape.slots != shape_.slots) {
    throw TransportError(fmt::format(
        "shared memory: rank {} has layout {} with {} ranks, {} slots of {} bytes; rank {} "
        "expected layout {} with {} ranks, {} slots of {} bytes: BLUEFOG_SHM_CHUNK_BYTES and "
        "BLUEFOG_SHM_SLOTS must be the same on all ranks",
        leader, head.version, head.local_size, head.shape.slots, head.shape.chunk_bytes, rank_,
        kLayoutVersion, ranks_.size(), shape_.slots, shape_.chunk_bytes));
  }
}

std::vector<std::string> GroupFormation::gather_errors() {
  std::vector<std::string> errors;
  for (const Blob& blob : bootstrap_.allgather(to_blob(error_), deadline_)) {
    errors.push_back(to_text(blob));
  }
  return errors;
}

FormedGroup form_group(Bootstrap& bootstrap, const std::vector<std::string>& host_ids,
                       std::shared_ptr<HostArena>& arena, const GroupShape& shape,
                       Deadline deadline) {
  GroupFormation formation(bootstrap, host_ids, arena, shape, deadline);
  FormedGroup formed = formation.run();
  arena = formation.arena();
  return formed;
}

}  // namespace bluefog::shm
