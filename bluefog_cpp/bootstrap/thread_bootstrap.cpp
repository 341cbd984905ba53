#include "bluefog_cpp/thread_bootstrap.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "bluefog_cpp/bootstrap/bootstrap_call.hpp"
#include "bluefog_cpp/bootstrap/store/regrouping.hpp"
#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/store/memory_store.hpp"

namespace bluefog {

namespace {

using Call = BootstrapCall;

// The meeting place of the ranks: one round at a time, into which each of them puts its part.
class Group {
 public:
  struct Part {
    Call call;
    Bootstrap::Blob blob;
  };
  struct Round {
    std::vector<Part> parts;
    std::shared_ptr<Group> child;  // of Call::Duplicate
  };

  explicit Group(int size) : parts_(size), left_(size, false) {}

  // What ranks write down when they go on without others.
  [[nodiscard]] const std::shared_ptr<MemoryStore::Contents>& notes() const noexcept {
    return notes_;
  }
  // The group that ranks of this one go on as.
  std::shared_ptr<Group> smaller(std::int64_t number, int size) {
    const std::lock_guard lock(mutex_);
    std::weak_ptr<Group>& known = smaller_[number];
    std::shared_ptr<Group> group = known.lock();
    if (!group) {
      known = group = std::make_shared<Group>(size);
    }
    return group;
  }

  [[nodiscard]] int size() const noexcept { return static_cast<int>(left_.size()); }

  // Returns when all ranks have put their part; the last one to come completes the round.
  std::shared_ptr<const Round> meet(int rank, Part part, Deadline deadline,
                                    const std::function<void()>& look) {
    std::unique_lock lock(mutex_);
    const Call call = part.call;
    parts_[rank] = std::move(part);
    if (++arrived_ == size()) {
      complete(call);
      return result_;
    }
    const std::uint64_t round = rounds_;
    while (rounds_ == round) {
      if (const int gone = rank_that_left(); gone >= 0) {
        withdraw(rank);
        throw PeerFailure(gone, fmt::format("bootstrap {} on rank {}: rank {} has left",
                                            to_string(call), rank, gone));
      }
      if (deadline.expired()) {
        withdraw(rank);
        throw TimeoutError(fmt::format(
            "bootstrap {} on rank {}: expected all {} ranks within {:.3g} s (BLUEFOG_TIMEOUT), "
            "ranks {} have not come",
            to_string(call), rank, size(), deadline.timeout().count(),
            fmt::join(missing(rank), ", ")));
      }
      if (look) {
        look_around(rank, look, lock);
      } else if (deadline.is_set()) {
        changed_.wait_until(lock, deadline.when());
      } else {
        changed_.wait(lock);
      }
    }
    return result_;
  }

  void leave(int rank) noexcept {
    const std::lock_guard lock(mutex_);
    left_[rank] = true;
    changed_.notify_all();
  }

 private:
  // Nobody can complete another round before every rank has taken this one's
  // result: a round needs all of them.
  void complete(Call call) {
    auto round = std::make_shared<Round>();
    for (auto& part : parts_) {
      round->parts.push_back(std::move(*part));
      part.reset();
    }
    if (call == Call::Duplicate) {
      round->child = std::make_shared<Group>(size());
    }
    result_ = std::move(round);
    arrived_ = 0;
    ++rounds_;
    changed_.notify_all();
  }

  void look_around(int rank, const std::function<void()>& look,
                   std::unique_lock<std::mutex>& lock) {
    constexpr std::chrono::milliseconds kPeriod(50);
    const std::uint64_t round = rounds_;
    changed_.wait_for(lock, kPeriod);
    if (rounds_ != round) {
      return;
    }
    lock.unlock();
    std::exception_ptr error;
    try {
      look();
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error && rounds_ == round) {
      withdraw(rank);
      std::rethrow_exception(error);
    }
  }

  void withdraw(int rank) {
    parts_[rank].reset();
    --arrived_;
  }

  [[nodiscard]] int rank_that_left() const {
    for (int rank = 0; rank < size(); ++rank) {
      if (left_[rank] && !parts_[rank]) {
        return rank;
      }
    }
    return -1;
  }

  [[nodiscard]] std::vector<int> missing(int self) const {
    std::vector<int> ranks;
    for (int rank = 0; rank < size(); ++rank) {
      if (rank != self && !parts_[rank]) {
        ranks.push_back(rank);
      }
    }
    return ranks;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::optional<Part>> parts_;
  std::vector<bool> left_;
  int arrived_ = 0;
  std::uint64_t rounds_ = 0;
  std::shared_ptr<const Round> result_;
  std::shared_ptr<MemoryStore::Contents> notes_ = std::make_shared<MemoryStore::Contents>();
  std::map<std::int64_t, std::weak_ptr<Group>> smaller_;
};

class ThreadBootstrap final : public Bootstrap {
 public:
  ThreadBootstrap(std::shared_ptr<Group> group, int rank)
      : group_(std::move(group)),
        rank_(rank),
        regrouping_(std::make_shared<Regrouping>(
            Regrouping::Place{.store = std::make_shared<MemoryStore>(group_->notes()),
                              .rank = rank_,
                              .size = group_->size(),
                              .prefix = "threads",
                              .root = "threads"})) {}
  ~ThreadBootstrap() override { group_->leave(rank_); }

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return group_->size(); }
  [[nodiscard]] std::string_view name() const noexcept override {
    return size() == 1 ? "single" : "threads";
  }
  [[nodiscard]] bool in_process() const noexcept override { return true; }

  [[nodiscard]] std::vector<Blob> allgather(std::span<const std::byte> blob,
                                            Deadline deadline) override {
    if (blob.size() > kMaxBlobBytes) {
      throw InvalidArgument(
          fmt::format("bootstrap allgather on rank {}: expected a blob of at most {} bytes, got {}",
                      rank_, kMaxBlobBytes, blob.size()));
    }
    const auto round = meet(Call::Allgather, Blob(blob.begin(), blob.end()), deadline);
    std::vector<Blob> blobs;
    blobs.reserve(round->parts.size());
    for (const Group::Part& part : round->parts) {
      blobs.push_back(part.blob);
    }
    return blobs;
  }

  void barrier(Deadline deadline) override { meet(Call::Barrier, {}, deadline); }

  [[nodiscard]] std::shared_ptr<Bootstrap> duplicate(Deadline deadline) override {
    const auto round = meet(Call::Duplicate, {}, deadline);
    return std::make_shared<ThreadBootstrap>(round->child, rank_);
  }

  [[nodiscard]] std::string_view regroup_obstacle() const noexcept override { return {}; }

  [[nodiscard]] Regrouped regroup(WhyGone why_gone, Deadline deadline) override {
    const std::atomic<bool> never{false};
    const auto verdict = regrouping_->meet(why_gone, deadline, never);
    const auto own =
        static_cast<int>(std::ranges::find(verdict.ranks, rank_) - verdict.ranks.begin());
    const auto settle = [held = regrouping_, verdict, why_gone](bool is_ready, Deadline until) {
      const std::atomic<bool> is_over{false};
      return held->settle(verdict, is_ready, why_gone, until, is_over);
    };
    return {.bootstrap = std::make_shared<ThreadBootstrap>(
                group_->smaller(verdict.group, static_cast<int>(verdict.ranks.size())), own),
            .ranks = verdict.ranks,
            .lost = verdict.lost,
            .is_given_up = [held = regrouping_] { return held->is_given_up(); },
            .settle = settle};
  }

 private:
  std::shared_ptr<const Group::Round> meet(Call call, Blob blob, Deadline deadline) {
    auto round = group_->meet(rank_, {call, std::move(blob)}, deadline, look());
    for (int other = 0; other < size(); ++other) {
      if (const Call theirs = round->parts[other].call; theirs != round->parts[0].call) {
        throw MismatchError(fmt::format("bootstrap on rank {}: rank 0 called {}, rank {} called {}",
                                        rank_, to_string(round->parts[0].call), other,
                                        to_string(theirs)));
      }
    }
    return round;
  }

  std::shared_ptr<Group> group_;
  int rank_;
  std::shared_ptr<Regrouping> regrouping_;
};

}  // namespace

std::vector<std::shared_ptr<Bootstrap>> make_thread_bootstraps(int size) {
  if (size < 1) {
    throw InvalidArgument(
        fmt::format("make_thread_bootstraps: expected 1 rank or more, got {}", size));
  }
  const auto group = std::make_shared<Group>(size);
  std::vector<std::shared_ptr<Bootstrap>> bootstraps;
  for (int rank = 0; rank < size; ++rank) {
    bootstraps.push_back(std::make_shared<ThreadBootstrap>(group, rank));
  }
  return bootstraps;
}

}  // namespace bluefog
