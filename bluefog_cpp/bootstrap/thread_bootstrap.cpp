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
#include "bluefog_cpp/bootstrap/store/applicant.hpp"
#include "bluefog_cpp/bootstrap/store/regrouping.hpp"
#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/store/memory_store.hpp"

namespace bluefog {

namespace {

using Call = BootstrapCall;

class Group;

// What all groups of ranks that began together have in common.
class Beginning {
 public:
  // What ranks write down when they form a group anew.
  [[nodiscard]] std::shared_ptr<Store> notes() const {
    return std::make_shared<MemoryStore>(notes_);
  }
  // A prefix that no group has had.
  [[nodiscard]] std::string new_prefix() { return fmt::format("threads/{}", prefixes_++); }
  // The group of that number, which its ranks form.
  static std::shared_ptr<Group> formed(const std::shared_ptr<Beginning>& self, std::int64_t number,
                                       int size);

 private:
  std::mutex mutex_;
  std::atomic<int> prefixes_{0};
  std::shared_ptr<MemoryStore::Contents> notes_ = std::make_shared<MemoryStore::Contents>();
  std::map<std::int64_t, std::weak_ptr<Group>> formed_;
};

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

  Group(std::shared_ptr<Beginning> beginning, int size)
      : parts_(size),
        left_(size, false),
        beginning_(std::move(beginning)),
        prefix_(beginning_->new_prefix()) {}

  [[nodiscard]] const std::shared_ptr<Beginning>& beginning() const noexcept { return beginning_; }
  // Where ranks of this group meet to form another one.
  [[nodiscard]] Regrouping::Place place_of(int rank) const {
    return {.store = beginning_->notes(),
            .rank = rank,
            .size = size(),
            .prefix = prefix_,
            .root = "threads"};
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
      round->child = std::make_shared<Group>(beginning_, size());
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
  std::shared_ptr<Beginning> beginning_;
  std::string prefix_;
};

std::shared_ptr<Group> Beginning::formed(const std::shared_ptr<Beginning>& self,
                                         std::int64_t number, int size) {
  const std::lock_guard lock(self->mutex_);
  std::weak_ptr<Group>& known = self->formed_[number];
  std::shared_ptr<Group> group = known.lock();
  if (!group) {
    known = group = std::make_shared<Group>(self, size);
  }
  return group;
}

class ThreadBootstrap : public Bootstrap {
 public:
  ThreadBootstrap(std::shared_ptr<Group> group, int rank)
      : group_(std::move(group)),
        rank_(rank),
        regrouping_(std::make_shared<Regrouping>(group_->place_of(rank_))) {}
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

  [[nodiscard]] Regrouped regroup(WhyGone why_gone, Deadline deadline, bool admits) override {
    const std::atomic<bool> never{false};
    const Regrouping::Coming coming{.why_gone = std::move(why_gone),
                                    .admits = admits,
                                    .deadline = deadline,
                                    .late = late().rank,
                                    .late_deadline = late().deadline};
    const auto verdict = regrouping_->meet(coming, never);
    const auto own =
        static_cast<int>(std::ranges::find(verdict.ranks, rank_) - verdict.ranks.begin());
    Regrouped left = group_of(regrouping_, verdict, own, coming.why_gone);
    left.ranks = verdict.ranks;
    left.lost = verdict.lost;
    left.time = static_cast<double>(verdict.time_us) * 1e-6;
    left.joined = static_cast<int>(verdict.joined.size());
    left.why_joined_gone = [held = regrouping_, verdict] { return held->why_joined_gone(verdict); };
    return left;
  }

  [[nodiscard]] bool has_applicants() override { return regrouping_->has_applicants(); }
  [[nodiscard]] std::shared_ptr<Bootstrap> make_applicant() const;

 protected:
  // The part of a group that its meeting leaves open. `own`: this rank's number in it.
  [[nodiscard]] Regrouped group_of(const std::shared_ptr<Regrouping>& meeting,
                                   const Regrouping::Verdict& verdict, int own,
                                   const WhyGone& why_gone) const {
    const auto settle = [meeting, verdict, why_gone](bool is_ready, Deadline until) {
      const std::atomic<bool> is_over{false};
      const Regrouping::Coming coming{.why_gone = why_gone, .deadline = until};
      return meeting->settle(verdict, is_ready, coming, is_over);
    };
    return {.bootstrap = std::make_shared<ThreadBootstrap>(
                Beginning::formed(group_->beginning(), verdict.group, verdict.size()), own),
            .ranks = {},
            .lost = {},
            .is_given_up = [meeting] { return meeting->is_given_up(); },
            .settle = settle};
  }

  [[nodiscard]] const std::shared_ptr<Group>& group() const noexcept { return group_; }

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

// A thread that is alone until the ranks take it in.
class ThreadApplicant final : public ThreadBootstrap {
 public:
  explicit ThreadApplicant(const std::shared_ptr<Beginning>& beginning)
      : ThreadApplicant(std::make_shared<Group>(beginning, 1), nullptr) {}
  ThreadApplicant(const std::shared_ptr<Group>& alone, std::shared_ptr<Applicant> applicant)
      : ThreadBootstrap(alone, 0),
        applicant_(applicant ? std::move(applicant)
                             : std::make_shared<Applicant>(alone->place_of(0))) {}

  [[nodiscard]] bool is_applicant() const noexcept override { return true; }
  [[nodiscard]] bool has_applicants() override { return false; }

  [[nodiscard]] std::shared_ptr<Bootstrap> duplicate(Deadline /*deadline*/) override {
    return std::make_shared<ThreadApplicant>(std::make_shared<Group>(group()->beginning(), 1),
                                             applicant_);
  }

  [[nodiscard]] Regrouped regroup(WhyGone /*why_gone*/, Deadline /*deadline*/,
                                  bool /*admits*/) override {
    const std::atomic<bool> never{false};
    const Applicant::Admission admission = applicant_->wait(never);
    return taken_in(group_of(admission.meeting, admission.verdict, admission.rank,
                             [](int) { return std::nullopt; }),
                    [held = applicant_] { held->end(); });
  }

 private:
  std::shared_ptr<Applicant> applicant_;
};

std::shared_ptr<Bootstrap> ThreadBootstrap::make_applicant() const {
  return std::make_shared<ThreadApplicant>(group_->beginning());
}

}  // namespace

std::vector<std::shared_ptr<Bootstrap>> make_thread_bootstraps(int size) {
  if (size < 1) {
    throw InvalidArgument(
        fmt::format("make_thread_bootstraps: expected 1 rank or more, got {}", size));
  }
  const auto group = std::make_shared<Group>(std::make_shared<Beginning>(), size);
  std::vector<std::shared_ptr<Bootstrap>> bootstraps;
  for (int rank = 0; rank < size; ++rank) {
    bootstraps.push_back(std::make_shared<ThreadBootstrap>(group, rank));
  }
  return bootstraps;
}

std::shared_ptr<Bootstrap> make_thread_applicant(const Bootstrap& rank) {
  const auto* const thread = dynamic_cast<const ThreadBootstrap*>(&rank);
  if (thread == nullptr) {
    throw InvalidArgument(fmt::format(
        "make_thread_applicant: expected the bootstrap of a thread, found a start by '{}'",
        rank.name()));
  }
  return thread->make_applicant();
}

}  // namespace bluefog
