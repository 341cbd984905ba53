#include "tests/support/gpu/captured_graph.hpp"

#include <algorithm>
#include <utility>

namespace bluefog::testing {

int CapturedGraph::count_of(const std::string& what) const {
  return static_cast<int>(
      std::ranges::count_if(steps, [&](const Step& step) { return step.what == what; }));
}

CaptureUnderWay::CaptureUnderWay(std::uint64_t id, gpu::CaptureMode mode, gpu::StreamHandle origin)
    : id_(id), mode_(mode), origin_(origin) {
  (void)branch_of(origin);
}

int CaptureUnderWay::branch_of(gpu::StreamHandle stream) {
  const auto [entry, is_new] = branches_.try_emplace(stream, graph_->branches);
  if (is_new) {
    ++graph_->branches;
    clocks_.emplace_back();
  }
  return entry->second;
}

void CaptureUnderWay::run(gpu::StreamHandle stream, const std::string& what,
                          const std::vector<Access>& accesses, std::function<void()> task) {
  const int branch = branch_of(stream);
  ++clocks_[static_cast<std::size_t>(branch)][branch];
  graph_->steps.push_back({.kind = CapturedGraph::Step::Kind::Run,
                           .branch = branch,
                           .what = what,
                           .accesses = accesses,
                           .task = std::move(task)});
}

std::size_t CaptureUnderWay::record(gpu::StreamHandle stream) {
  const int branch = branch_of(stream);
  marks_.push_back(clocks_[static_cast<std::size_t>(branch)]);
  const std::size_t mark = graph_->marks++;
  graph_->steps.push_back(
      {.kind = CapturedGraph::Step::Kind::Record, .branch = branch, .mark = mark});
  return mark;
}

void CaptureUnderWay::wait(gpu::StreamHandle stream, std::size_t mark) {
  const int branch = branch_of(stream);
  Clock& clock = clocks_[static_cast<std::size_t>(branch)];
  join(clock, marks_[mark]);
  if (stream != origin_) {
    ++clock[branch];  // a fork has to be joined, whatever comes on it
  }
  graph_->steps.push_back(
      {.kind = CapturedGraph::Step::Kind::Wait, .branch = branch, .mark = mark});
}

bool CaptureUnderWay::is_joined() const {
  const Clock& end = clocks_.front();
  for (int branch = 1; branch < graph_->branches; ++branch) {
    const Clock& own = clocks_[static_cast<std::size_t>(branch)];
    const auto last = own.find(branch);
    const auto joined = end.find(branch);
    if (last != own.end() && (joined == end.end() || joined->second < last->second)) {
      return false;
    }
  }
  return true;
}

}  // namespace bluefog::testing
