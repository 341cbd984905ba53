#include "tests/support/gpu/nccl_stand_in.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "bluefog_cpp/error.hpp"

namespace bluefog::testing {

thread_local NcclStandIn::Group NcclStandIn::group_;

void NcclStandIn::check(const std::string& call) {
  if (const int code = cuda_->injected(call); code != 0) {
    throw NcclError(code, call + ": an injected error");
  }
}

gpu::NcclId NcclStandIn::make_id() {
  check("ncclGetUniqueId");
  const std::scoped_lock lock(mutex_);
  gpu::NcclId id{};
  const int number = ++ids_;
  std::memcpy(id.data(), &number, sizeof number);
  return id;
}

gpu::CommHandle NcclStandIn::init(int size, const gpu::NcclId& id, int rank) {
  check("ncclCommInitRank");
  if (CudaStandIn::current_device() < 0) {
    cuda_->report("ncclCommInitRank without a current device");
  }
  std::unique_lock lock(mutex_);
  auto& clique = cliques_[id];
  if (!clique) {
    clique = std::make_shared<Clique>();
    clique->size = size;
  }
  const auto own = clique;
  lock.unlock();
  return join_clique(own, rank);
}

gpu::CommHandle NcclStandIn::join_clique(const std::shared_ptr<Clique>& clique, int rank) {
  auto made = std::make_shared<Comm>();
  Comm* const comm = made.get();
  comm->clique = clique;
  comm->rank = rank;
  {
    const std::scoped_lock lock(mutex_);
    comms_.push_back(std::move(made));
    live_[comm] = comm;
  }
  std::unique_lock lock(clique->mutex);
  ++clique->joined;
  clique->changed.notify_all();
  clique->changed.wait(lock, [&] { return clique->joined == clique->size; });
  return comm;
}

NcclStandIn::Comm& NcclStandIn::comm_of(gpu::CommHandle handle) {
  const std::scoped_lock lock(mutex_);
  const auto found = live_.find(handle);
  if (found == live_.end()) {
    cuda_->report("use of a communicator that is none");
    throw NcclError(4, "invalid argument");
  }
  return *found->second;
}

void NcclStandIn::destroy(gpu::CommHandle handle) {
  Comm& comm = comm_of(handle);
  wait_for_graphs(comm);
  check("ncclCommDestroy");
  {
    const std::scoped_lock lock(comm.clique->mutex);
    if (comm.groups_under_way > 0) {
      cuda_->report("ncclCommDestroy while sends and receives are under way");
    }
  }
  wait_for_others(comm);
  const std::scoped_lock lock(mutex_);
  live_.erase(handle);
}

void NcclStandIn::abort(gpu::CommHandle handle) {
  check("ncclCommAbort");
  Comm& comm = comm_of(handle);
  stop(comm);
  wait_for_graphs(comm);
  wait_for_others(comm);
  const std::scoped_lock lock(mutex_);
  live_.erase(handle);
}

void NcclStandIn::stop(Comm& comm) {
  const std::scoped_lock lock(comm.clique->mutex);
  comm.aborted = true;
  comm.clique->changed.notify_all();
}

void NcclStandIn::wait_for_graphs(Comm& comm) {
  std::unique_lock lock(comm.clique->mutex);
  comm.clique->changed.wait(lock, [&] { return comm.captured_groups == 0; });
}

void NcclStandIn::wait_for_others(Comm& comm) {
  Clique& clique = *comm.clique;
  std::unique_lock lock(clique.mutex);
  ++clique.leaving;
  clique.changed.notify_all();
  clique.changed.wait(lock, [&] { return clique.leaving == clique.size; });
}

void NcclStandIn::revoke(gpu::CommHandle handle) {
  check("ncclCommRevoke");
  stop(comm_of(handle));
}

gpu::CommHandle NcclStandIn::shrink(gpu::CommHandle handle, std::span<const int> gone) {
  check("ncclCommShrink");
  Comm& comm = comm_of(handle);
  stop(comm);
  const std::set<int> missing(gone.begin(), gone.end());
  if (missing.contains(comm.rank)) {
    cuda_->report(fmt::format("ncclCommShrink by rank {}, which is to go", comm.rank));
  }
  std::shared_ptr<Clique> smaller;
  {
    const std::scoped_lock lock(comm.clique->mutex);
    auto& found = comm.clique->shrunk[missing];
    if (!found) {
      found = std::make_shared<Clique>();
      found->size = comm.clique->size - static_cast<int>(missing.size());
    }
    smaller = found;
  }
  const auto before = std::distance(missing.begin(), missing.lower_bound(comm.rank));
  return join_clique(smaller, comm.rank - static_cast<int>(before));
}

std::optional<std::string> NcclStandIn::async_error(gpu::CommHandle handle) {
  Comm& comm = comm_of(handle);
  const std::scoped_lock lock(comm.clique->mutex);
  return comm.error;
}

void NcclStandIn::set_async_error(int rank, const std::string& text) {
  const std::scoped_lock lock(mutex_);
  for (const auto& [handle, comm] : live_) {
    if (comm->rank == rank) {
      const std::scoped_lock inner(comm->clique->mutex);
      comm->error = text;
    }
  }
}

void NcclStandIn::group_start() {
  check("ncclGroupStart");
  ++group_.depth;
}

void NcclStandIn::group_end() {
  if (group_.depth == 0) {
    cuda_->report("ncclGroupEnd without ncclGroupStart");
    return;
  }
  if (--group_.depth > 0) {
    return;
  }
  const Group group = std::exchange(group_, {});
  check("ncclGroupEnd");
  if (group.parts.empty()) {
    return;
  }
  std::vector<Access> accesses;
  for (const Part& part : group.parts) {
    accesses.push_back({.memory = part.data, .bytes = part.bytes, .writes = !part.sends});
  }
  Comm* const comm = group.comm;
  const auto count_one = [comm](int Comm::*which, int change) {
    const std::scoped_lock lock(comm->clique->mutex);
    comm->*which += change;
    comm->clique->changed.notify_all();
  };
  if (cuda_->capture_of(group.stream).status == gpu::CaptureStatus::None) {
    count_one(&Comm::groups_under_way, 1);
    cuda_->enqueue(group.stream, "nccl group", accesses,
                   [this, comm, parts = group.parts] { run(*comm, parts); });
    return;
  }
  cuda_->enqueue(group.stream, "nccl group", accesses,
                 [this, comm, count_one, parts = group.parts] {
                   count_one(&Comm::groups_under_way, 1);
                   run(*comm, parts);
                 });
  count_one(&Comm::captured_groups, 1);
  cuda_->keep_in_graph(
      group.stream, std::shared_ptr<const void>(
                        comm, [comm = comm->shared_from_this(), count_one](const void* /*comm*/) {
                          count_one(&Comm::captured_groups, -1);
                        }));
}

void NcclStandIn::add(const Part& part, gpu::CommHandle handle, gpu::StreamHandle stream,
                      const std::string& call) {
  check(call);
  Comm& comm = comm_of(handle);
  if (group_.depth == 0) {
    cuda_->report(call + " outside of a group");
    return;
  }
  if (group_.comm != nullptr && (group_.comm != &comm || group_.stream != stream)) {
    cuda_->report("a group over two communicators or streams");
  }
  if (part.peer < 0 || part.peer >= comm.clique->size) {
    cuda_->report(fmt::format("{}: there is no rank {}", call, part.peer));
    return;
  }
  group_.comm = &comm;
  group_.stream = stream;
  group_.parts.push_back(part);
}

void NcclStandIn::send(const void* data, std::size_t bytes, int peer, gpu::CommHandle comm,
                       gpu::StreamHandle stream) {
  add({.sends = true, .data = const_cast<void*>(data), .bytes = bytes, .peer = peer}, comm, stream,
      "ncclSend");
}

void NcclStandIn::receive(void* data, std::size_t bytes, int peer, gpu::CommHandle comm,
                          gpu::StreamHandle stream) {
  add({.sends = false, .data = data, .bytes = bytes, .peer = peer}, comm, stream, "ncclRecv");
}

void NcclStandIn::run(Comm& comm, const std::vector<Part>& parts) {
  Clique& clique = *comm.clique;
  std::unique_lock lock(clique.mutex);
  std::deque<Message> sent;
  for (const Part& part : parts) {
    if (part.sends) {
      sent.push_back({.data = part.data, .bytes = part.bytes});
      clique.under_way[{comm.rank, part.peer}].push_back(&sent.back());
    }
  }
  clique.changed.notify_all();
  for (const Part& part : parts) {
    if (part.sends) {
      continue;
    }
    auto& arriving = clique.under_way[{part.peer, comm.rank}];
    clique.changed.wait(lock, [&] { return comm.aborted || !arriving.empty(); });
    if (comm.aborted) {
      break;
    }
    Message& message = *arriving.front();
    arriving.pop_front();
    if (message.bytes != part.bytes) {
      cuda_->report(fmt::format("rank {} sent {} bytes, and rank {} received {}", part.peer,
                                message.bytes, comm.rank, part.bytes));
    }
    std::memcpy(part.data, message.data, std::min(message.bytes, part.bytes));
    message.taken = true;
    clique.changed.notify_all();
  }
  clique.changed.wait(lock,
                      [&] { return comm.aborted || std::ranges::all_of(sent, &Message::taken); });
  for (const Message& message : sent) {
    for (auto& [ends, messages] : clique.under_way) {
      std::erase(messages, &message);
    }
  }
  --comm.groups_under_way;
}

}  // namespace bluefog::testing
