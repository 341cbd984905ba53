#include "benchmarks/operations/contestant.hpp"

#if defined(BLUEFOG_BENCHMARK_GLOO)
#include <fmt/format.h>
#include <gloo/allreduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <sched.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "benchmarks/operations/average.hpp"
#include "ops/calls/allgather_parts.hpp"
#include "ops/collectives.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::benchmarks {
namespace {

constexpr const char* kGloo = "gloo";

/// The cores that gloo's thread may run on.
enum class Threads { Free, Bound };

/// gloo's thread inherits the cores of the thread that makes it: all of them meanwhile, where it is
/// to be free, although bfrun binds a rank.
class AllCores {
 public:
  AllCores() {
    ::sched_getaffinity(0, sizeof before_, &before_);
    cpu_set_t all;
    CPU_ZERO(&all);
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      CPU_SET(core, &all);
    }
    ::sched_setaffinity(0, sizeof all, &all);
  }
  AllCores(const AllCores&) = delete;
  AllCores& operator=(const AllCores&) = delete;
  ~AllCores() { ::sched_setaffinity(0, sizeof before_, &before_); }

 private:
  cpu_set_t before_{};
};

std::shared_ptr<::gloo::transport::Device> make_device(Threads threads) {
  ::gloo::transport::tcp::attr attributes;
  if (const char* interface = std::getenv("GLOO_SOCKET_IFNAME"); interface != nullptr) {
    attributes.iface = interface;
  } else {
    attributes.hostname = "127.0.0.1";
  }
  if (threads == Threads::Bound) {
    return ::gloo::transport::tcp::CreateDevice(attributes);
  }
  const AllCores all_cores;
  return ::gloo::transport::tcp::CreateDevice(attributes);
}

/// A new folder that rank 0 makes, where ranks meet.
std::string make_meeting_place(Context& context) {
  std::string folder;
  if (context.rank() == 0) {
    folder = (std::filesystem::temp_directory_path() / "bluefog_gloo_XXXXXX").string();
    if (::mkdtemp(folder.data()) == nullptr) {
      throw std::runtime_error(fmt::format("cannot make a folder at {}", folder));
    }
  }
  return ops::allgather_parts(context, "benchmark", folder).front();
}

/// Collective. gloo's own context of all ranks.
std::shared_ptr<::gloo::rendezvous::Context> connect(Context& context, Threads threads) {
  const std::string folder = make_meeting_place(context);
  ::gloo::rendezvous::FileStore store(folder);
  auto device = make_device(threads);
  auto connected = std::make_shared<::gloo::rendezvous::Context>(context.rank(), context.size());
  connected->connectFullMesh(store, device);
  ops::barrier(context);
  if (context.rank() == 0) {
    std::filesystem::remove_all(folder);
  }
  return connected;
}

template <typename T>
class Calls {
 public:
  Calls(const Setting& setting, Threads threads)
      : context_(connect(setting.context, threads)),
        count_(static_cast<std::size_t>(setting.count)),
        plan_(topology::exponential(setting.context.size()).plan_for(setting.context.rank())) {}

  [[nodiscard]] double degree() const { return static_cast<double>(plan_.sources.size()); }

  void allreduce(const BufferView& buffer, ::gloo::AllreduceOptions::Algorithm algorithm) {
    ::gloo::AllreduceOptions options(context_);
    options.setAlgorithm(algorithm);
    options.setOutput(static_cast<T*>(buffer.data), count_);
    options.setReduceFunction([](void* sum, const void* a, const void* b, std::size_t count) {
      add_into(static_cast<T*>(sum), static_cast<const T*>(a), static_cast<const T*>(b), count);
    });
    ::gloo::allreduce(options);
  }

  void send_and_receive(const BufferView& buffer) {
    constexpr std::uint64_t kSlot = 1;
    if (rooms_.empty()) {
      received_.resize(plan_.sources.size() * count_);
      for (std::size_t j = 0; j < plan_.sources.size(); ++j) {
        rooms_.push_back(
            context_->createUnboundBuffer(received_.data() + j * count_, count_ * sizeof(T)));
      }
    }
    const auto own = context_->createUnboundBuffer(buffer.data, count_ * sizeof(T));
    for (std::size_t j = 0; j < rooms_.size(); ++j) {
      rooms_[j]->recv(plan_.sources[j].rank, kSlot);
    }
    for (const WeightedRank& destination : plan_.destinations) {
      own->send(destination.rank, kSlot);
    }
    for (const auto& room : rooms_) {
      room->waitRecv();
    }
    for (std::size_t j = 0; j < plan_.destinations.size(); ++j) {
      own->waitSend();
    }
    average(static_cast<T*>(buffer.data), received_.data(), count_, rooms_.size());
  }

 private:
  std::shared_ptr<::gloo::rendezvous::Context> context_;
  std::size_t count_;
  NeighborPlan plan_;
  std::vector<T> received_;
  std::vector<std::unique_ptr<::gloo::transport::UnboundBuffer>> rooms_;
};

template <typename T>
void add_contestants(const Setting& setting, Threads threads, std::vector<Contestant>& all) {
  using Algorithm = ::gloo::AllreduceOptions::Algorithm;
  const auto calls = std::make_shared<Calls<T>>(setting, threads);
  const auto n = static_cast<double>(setting.context.size());
  const std::string how = threads == Threads::Bound ? ", threads bound" : "";
  const std::pair<const char*, Algorithm> algorithms[] = {{"allreduce", Algorithm::RING},
                                                          {"allreduce by bcube", Algorithm::BCUBE}};
  for (const auto& [op, algorithm] : algorithms) {
    all.push_back({.peer = kGloo,
                   .op = op + how,
                   .bus_factor = 2 * (n - 1) / n,
                   .memory = 1,
                   .call = [calls, algorithm = algorithm](const BufferView& buffer) {
                     calls->allreduce(buffer, algorithm);
                   }});
  }
  all.push_back({.peer = kGloo,
                 .op = "send/receive and average (exponential)" + how,
                 .bus_factor = calls->degree(),
                 .memory = calls->degree(),
                 .call = [calls](const BufferView& buffer) { calls->send_and_receive(buffer); }});
}

}  // namespace

std::string why_no_gloo(const Setting& setting) {
  if (!setting.without_gloo.empty()) {
    return setting.without_gloo;
  }
  if (setting.context.size() < 2) {
    return "needs at least 2 ranks";
  }
  if (setting.dtype != Dtype::Float32 && setting.dtype != Dtype::Float64) {
    return fmt::format("sums of {} from C++ are their caller's to write", name_of(setting.dtype));
  }
  return {};
}

std::vector<Contestant> gloo_contestants(const Setting& setting) {
  std::vector<Contestant> all;
  if (!why_no_gloo(setting).empty()) {
    return all;
  }
  for (const Threads threads : {Threads::Free, Threads::Bound}) {
    if (setting.dtype == Dtype::Float32) {
      add_contestants<float>(setting, threads, all);
    } else {
      add_contestants<double>(setting, threads, all);
    }
  }
  return all;
}

}  // namespace bluefog::benchmarks
#else
namespace bluefog::benchmarks {

std::string why_no_gloo(const Setting& setting) {
  return setting.without_gloo.empty() ? "this build found no gloo for C++ (Debian: libgloo-dev)"
                                      : setting.without_gloo;
}

std::vector<Contestant> gloo_contestants(const Setting& /*setting*/) { return {}; }

}  // namespace bluefog::benchmarks
#endif
