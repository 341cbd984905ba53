#pragma once

#include <boost/container/small_vector.hpp>
#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "bluefog_cpp/work.hpp"
#include "python/c10d/group_errors.hpp"
#include "python/c10d/host_copies.hpp"

namespace bluefog::c10d_backend {

class Completions;

/// The calls behind one call of torch: one, or as many as it has tensors.
using Calls = boost::container::small_vector<bluefog::Work, 1>;

/// What the works of one group share.
struct GroupParts {
  int rank = 0;
  GroupErrors errors;
  std::shared_ptr<Completions> completions;
};

/// A call of torch under way, or complete.
///
/// `wait` drives the transfers in the thread that waits. A future is completed by the group's
/// thread for that (`Completions`), as torch has no way to wait for one but to sleep.
class GroupWork final : public ::c10d::Work {
 public:
  /// @param result the tensors that the future gives. @param copies of the call's tensors on
  /// devices and in other orders. @param timeout of this call's waits; zero: as the group has it. @param source of a
  /// receipt; −1: none.
  GroupWork(std::shared_ptr<const GroupParts> group, ::c10d::OpType type, Calls calls,
            std::vector<at::Tensor> result, HostCopies copies, std::chrono::milliseconds timeout,
            int source = -1);
  ~GroupWork() override;

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override { return source_; }
  std::vector<at::Tensor> result() override { return result_; }
  void synchronize() override { wait(kNoTimeout); }
  bool wait(std::chrono::milliseconds timeout) override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

  /// Waits at rest until all calls are done, at most about until `end`. @return whether they are.
  bool attend(std::chrono::steady_clock::time_point end);
  /// Gives the future its value or error. All calls are done.
  void complete_future();

 private:
  /// Waits for all calls, each to its end, and has their results in their places. @throws the
  /// first error.
  void wait_for_all(std::chrono::milliseconds timeout);
  void bring_back();
  [[nodiscard]] bool all_done() const noexcept;
  void note_end(std::exception_ptr error);

  std::shared_ptr<const GroupParts> group_;
  Calls calls_;
  std::vector<at::Tensor> result_;
  const bool has_copies_;
  std::mutex copies_mutex_;
  HostCopies copies_;
  std::chrono::milliseconds timeout_;
  int source_;
  /// Made when somebody asks for it.
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  /// The call that is attended to, and the pace of that.
  std::size_t attended_ = 0;
  std::shared_ptr<bluefog::Work::Attendance> attendance_;
};

}  // namespace bluefog::c10d_backend
