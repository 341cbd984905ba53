#include "python/c10d/group_work.hpp"

#include <algorithm>
#include <utility>

#include "python/c10d/completions.hpp"
#include "python/c10d/interpreter_lock.hpp"

namespace bluefog::c10d_backend {
namespace {

/// Those that a future of these tensors orders by their streams.
std::vector<c10::Device> devices_of(const std::vector<at::Tensor>& tensors) {
  std::vector<c10::Device> devices;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.is_cuda() && std::ranges::find(devices, tensor.device()) == devices.end()) {
      devices.push_back(tensor.device());
    }
  }
  return devices;
}

}  // namespace

GroupWork::GroupWork(std::shared_ptr<const GroupParts> group, ::c10d::OpType type, Calls calls,
                     std::vector<at::Tensor> result, HostCopies copies,
                     std::chrono::milliseconds timeout, int source)
    : ::c10d::Work(group->rank, type),
      group_(std::move(group)),
      calls_(std::move(calls)),
      result_(std::move(result)),
      has_copies_(!copies.empty()),
      copies_(std::move(copies)),
      timeout_(timeout),
      source_(source) {}

GroupWork::~GroupWork() = default;

bool GroupWork::all_done() const noexcept {
  return std::ranges::all_of(calls_, [](const bluefog::Work& call) { return call.done(); });
}

void GroupWork::wait_for_all(std::chrono::milliseconds timeout) {
  std::exception_ptr first_error;
  for (const bluefog::Work& call : calls_) {
    try {
      if (timeout.count() > 0) {
        call.wait_within(timeout);
      } else {
        call.wait();
      }
    } catch (...) {
      first_error = first_error ? first_error : std::current_exception();
    }
  }
  if (first_error) {
    std::rethrow_exception(first_error);
  }
  bring_back();
}

// Waiters wait for each other: whoever returns finds the results there.
void GroupWork::bring_back() {
  if (has_copies_ && retrieveOpType() != ::c10d::OpType::SEND) {
    const std::lock_guard lock(copies_mutex_);
    copies_.bring_back(result_);
  }
}

void GroupWork::note_end(std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  if (!completed_) {
    completed_ = true;
    exception_ = std::move(error);
  }
}

bool GroupWork::isCompleted() {
  if (!all_done()) {
    return false;
  }
  const WithoutInterpreterLock released;
  try {
    wait_for_all({});  // at once
    note_end(nullptr);
  } catch (...) {
    note_end(group_->errors.translated(std::current_exception()));
  }
  return true;
}

bool GroupWork::isSuccess() const {
  const std::lock_guard lock(mutex_);
  return !exception_;
}

std::exception_ptr GroupWork::exception() const {
  const std::lock_guard lock(mutex_);
  return exception_;
}

bool GroupWork::wait(std::chrono::milliseconds timeout) {
  const WithoutInterpreterLock released;
  try {
    wait_for_all(timeout.count() > 0 ? timeout : timeout_);
  } catch (...) {
    const std::exception_ptr error = group_->errors.translated(std::current_exception());
    note_end(error);
    std::rethrow_exception(error);
  }
  note_end(nullptr);
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    const std::lock_guard lock(mutex_);
    future = future_;
  }
  if (future) {
    future->wait();  // who waits for the work may ask its future then
  }
  return true;
}

c10::intrusive_ptr<c10::ivalue::Future> GroupWork::getFuture() {
  const WithoutInterpreterLock released;
  {
    const std::lock_guard lock(mutex_);
    if (future_) {
      return future_;
    }
    future_ = c10::make_intrusive<c10::ivalue::Future>(
        c10::ListType::create(c10::TensorType::get()), devices_of(result_));
  }
  if (all_done() || !group_->completions->add(c10::intrusive_ptr<GroupWork>::reclaim_copy(this))) {
    complete_future();
  }
  return future_;
}

bool GroupWork::attend(std::chrono::steady_clock::time_point end) {
  while (attended_ < calls_.size()) {
    if (!attendance_) {
      attendance_ = calls_[attended_].attendance(timeout_);
    }
    if (!calls_[attended_].attend(*attendance_, end)) {
      return false;
    }
    attendance_.reset();
    ++attended_;
  }
  return true;
}

void GroupWork::complete_future() {
  if (isCompleted()) {
    if (const auto error = exception()) {
      future_->setErrorIfNeeded(error);
    } else {
      future_->markCompleted(c10::IValue(result_));
    }
  }
}

}  // namespace bluefog::c10d_backend
