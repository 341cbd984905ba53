#include "benchmarks/operations/contestant.hpp"

#if defined(BLUEFOG_BENCHMARK_MPI)
#include <fmt/format.h>
#include <mpi.h>

#include <limits>
#include <memory>
#include <stdexcept>

#include "benchmarks/operations/average.hpp"
#include "bluefog_cpp/context/context_core.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::benchmarks {
namespace {

constexpr const char* kMpi = "Open MPI";

void check(int code, const char* call) {
  if (code != MPI_SUCCESS) {
    throw std::runtime_error(fmt::format("{} failed with code {}", call, code));
  }
}

struct Communicator {
  explicit Communicator(MPI_Comm made) : comm(made) {}
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  ~Communicator() { MPI_Comm_free(&comm); }

  MPI_Comm comm;
};

template <typename T>
class Exchanges {
 public:
  Exchanges(const Setting& setting, MPI_Datatype type) : type_(type), count_(setting.count) {
    const NeighborPlan plan =
        topology::exponential(setting.context.size()).plan_for(setting.context.rank());
    for (const WeightedRank& source : plan.sources) {
      sources_.push_back(source.rank);
    }
    for (const WeightedRank& destination : plan.destinations) {
      destinations_.push_back(destination.rank);
    }
    MPI_Comm comm = MPI_COMM_NULL;
    check(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup");
    world_ = std::make_unique<Communicator>(comm);
    check(MPI_Dist_graph_create_adjacent(
              MPI_COMM_WORLD, static_cast<int>(sources_.size()), sources_.data(), MPI_UNWEIGHTED,
              static_cast<int>(destinations_.size()), destinations_.data(), MPI_UNWEIGHTED,
              MPI_INFO_NULL, 0, &comm),
          "MPI_Dist_graph_create_adjacent");
    graph_ = std::make_unique<Communicator>(comm);
    const auto n = static_cast<int>(count_);
    for (std::size_t j = 0; j < sources_.size(); ++j) {
      receive_counts_.push_back(n);
      receive_places_.push_back(static_cast<int>(j) * n);
    }
    send_counts_.assign(destinations_.size(), n);
    send_places_.assign(destinations_.size(), 0);
    requests_.resize(sources_.size() + destinations_.size());
  }

  [[nodiscard]] double degree() const { return static_cast<double>(sources_.size()); }

  T* received() {
    received_.resize(sources_.size() * static_cast<std::size_t>(count_));
    return received_.data();
  }

  void allreduce(const BufferView& buffer) {
    check(MPI_Allreduce(MPI_IN_PLACE, buffer.data, static_cast<int>(count_), type_, MPI_SUM,
                        world_->comm),
          "MPI_Allreduce");
  }

  void send_and_receive(const BufferView& buffer) {
    std::size_t next = 0;
    T* const room = received();
    for (std::size_t j = 0; j < sources_.size(); ++j) {
      check(MPI_Irecv(room + j * static_cast<std::size_t>(count_), static_cast<int>(count_), type_,
                      sources_[j], 0, world_->comm, &requests_[next++]),
            "MPI_Irecv");
    }
    for (const int destination : destinations_) {
      check(MPI_Isend(buffer.data, static_cast<int>(count_), type_, destination, 0, world_->comm,
                      &requests_[next++]),
            "MPI_Isend");
    }
    check(MPI_Waitall(static_cast<int>(next), requests_.data(), MPI_STATUSES_IGNORE),
          "MPI_Waitall");
    average_into(buffer);
  }

  void neighbor_alltoallv(const BufferView& buffer) {
    check(MPI_Neighbor_alltoallv(buffer.data, send_counts_.data(), send_places_.data(), type_,
                                 received(), receive_counts_.data(), receive_places_.data(), type_,
                                 graph_->comm),
          "MPI_Neighbor_alltoallv");
    average_into(buffer);
  }

 private:
  void average_into(const BufferView& buffer) {
    average(static_cast<T*>(buffer.data), received_.data(), static_cast<std::size_t>(count_),
            sources_.size());
  }

  MPI_Datatype type_;
  std::int64_t count_;
  std::vector<int> sources_;
  std::vector<int> destinations_;
  std::vector<T> received_;
  std::unique_ptr<Communicator> world_;
  std::unique_ptr<Communicator> graph_;
  std::vector<int> send_counts_;
  std::vector<int> send_places_;
  std::vector<int> receive_counts_;
  std::vector<int> receive_places_;
  std::vector<MPI_Request> requests_;
};

template <typename T>
std::vector<Contestant> contestants_of(const Setting& setting, MPI_Datatype type) {
  const auto exchanges = std::make_shared<Exchanges<T>>(setting, type);
  const auto n = static_cast<double>(setting.context.size());
  return {
      {.peer = kMpi,
       .op = "MPI_Allreduce",
       .bus_factor = 2 * (n - 1) / n,
       .memory = 1,
       .call = [exchanges](const BufferView& buffer) { exchanges->allreduce(buffer); }},
      {.peer = kMpi,
       .op = "send/receive and average (exponential)",
       .bus_factor = exchanges->degree(),
       .memory = exchanges->degree(),
       .call = [exchanges](const BufferView& buffer) { exchanges->send_and_receive(buffer); }},
      {.peer = kMpi,
       .op = "MPI_Neighbor_alltoallv and average (exponential)",
       .bus_factor = exchanges->degree(),
       .memory = exchanges->degree(),
       .call = [exchanges](const BufferView& buffer) { exchanges->neighbor_alltoallv(buffer); }}};
}

}  // namespace

std::string why_no_mpi(const Setting& setting) {
  if (!setting.without_mpi.empty()) {
    return setting.without_mpi;
  }
  if (setting.context.core().bootstrap().name() != "mpi" || setting.context.size() < 2) {
    return "needs at least 2 ranks that MPI started";
  }
  if (setting.count * setting.context.size() > std::numeric_limits<int>::max()) {
    return "MPI counts elements by int, and all ranks' together are more";
  }
  if (setting.dtype != Dtype::Float32 && setting.dtype != Dtype::Float64) {
    return fmt::format("MPI has no {}", name_of(setting.dtype));
  }
  return {};
}

std::vector<Contestant> mpi_contestants(const Setting& setting) {
  if (!why_no_mpi(setting).empty()) {
    return {};
  }
  return setting.dtype == Dtype::Float32 ? contestants_of<float>(setting, MPI_FLOAT)
                                         : contestants_of<double>(setting, MPI_DOUBLE);
}

}  // namespace bluefog::benchmarks
#else
namespace bluefog::benchmarks {

std::string why_no_mpi(const Setting& /*setting*/) { return "this build has no MPI"; }

std::vector<Contestant> mpi_contestants(const Setting& /*setting*/) { return {}; }

}  // namespace bluefog::benchmarks
#endif
