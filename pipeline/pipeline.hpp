#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bluefog_cpp/context.hpp"
#include "optimizers/parameter.hpp"
#include "pipeline/elastic_plan.hpp"
#include "pipeline/partition.hpp"
#include "pipeline/pipeline_layout.hpp"
#include "pipeline/stage_actions.hpp"
#include "pipeline/step_times.hpp"
#include "topology/schedule.hpp"

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace bluefog::pipeline {

/// The mean loss of the rows of `outputs`: a floating tensor of one element.
using Loss = std::function<at::Tensor(const at::Tensor& outputs, const at::Tensor& targets)>;

/// The part of a step in which replicas of a stage, its ranks in all pipelines, meet.
enum class ReplicaSync : std::uint8_t {
  /// The gradient is that of all pipelines' rows together, the same bits on all replicas: they stay
  /// one model.
  Gradients,
  /// Each takes its own step, and averages its parameters with neighbours of a graph over the
  /// replicas (adapt then combine): decentralized pipelines. Replicas differ meanwhile.
  Parameters,
};

/// The outputs that frozen layers of the first stage had for a sample, to be used again: in memory
/// that the ranks of a host share, then in a file that they share, whose name is taken away at once.
///
/// An output is used for the sample and depth for which it was computed, and as long as the frozen
/// parameters and buffers are what they were (by a digest of them in each step). It is the very
/// bytes. After a change of depth, outputs of the depth before spare the layers up to it, where rows
/// are as large as now, until the sample's own take their place. Inputs of a sample have to be the
/// same in every epoch.
struct CacheOptions {
  std::int64_t samples = 0;       ///< numbers of samples are below it
  std::int64_t memory_bytes = 0;  ///< for rows, on each host; an index of 24 bytes a sample comes
                                  ///< to it on each rank
  std::int64_t disk_bytes = 0;    ///< the most that the file may take, on each host
  std::string folder{};           ///< for the file
};

/// How a `Pipeline` works. The same on all ranks.
struct PipelineOptions {
  int stages = 1;  ///< K, which divides the number of ranks
  ScheduleKind schedule = ScheduleKind::OneForwardOneBackward;  ///< the order of passes
  int micro_batches = 0;  ///< of a step; 0: `initial_micro_batches`
  /// Layers by what they cost, for `partition_layers`; empty: by their numbers of parameters.
  std::vector<double> costs{};
  std::vector<SkipConnection> skips{};            ///< between layers; no stage ends inside of one
  double slack = 0.05;                            ///< as `PartitionOptions::slack`
  double frozen_share = kFrozenShare;             ///< as `PartitionOptions::frozen_share`
  ReplicaSync replicas = ReplicaSync::Gradients;  ///< of more than one pipeline
  /// The most bytes of gradients that are summed at a time, unless a parameter is larger: a bucket
  /// leaves as soon as the last backward pass of a step has finished its gradients. 0: each
  /// parameter by itself. It changes no bit of the sums.
  std::int64_t bucket_bytes = std::int64_t{1} << 20;
  /// Makes W(t) over so many replicas, for `ReplicaSync::Parameters`; empty: the static exponential
  /// graph, base 2.
  std::function<Schedule(int replicas)> make_schedule{};
  /// Whether outputs of frozen layers are kept; absent: no.
  std::optional<CacheOptions> cache{};
};

/// A rank's part of a step.
struct PipelineBatch {
  at::Tensor inputs{};    ///< [rows, …], on the first stage; elsewhere not looked at
  at::Tensor targets{};   ///< [rows, …], on the last stage; elsewhere not looked at
  std::int64_t rows = 0;  ///< of this pipeline, the same on all its ranks; 0 where it has none
  /// Of all pipelines, the same on all ranks; the sum of their rows, as a gradient is divided by it.
  /// 0: rows × replicas.
  std::int64_t all_rows = 0;
  /// The rows' numbers in the data, on the first stage, for `PipelineOptions::cache`; empty: nothing
  /// is kept of these rows, or used.
  std::vector<std::int64_t> samples{};
  /// When the caller began to load the rows, for `StepTimes::loading` and the timeline: what lies
  /// behind the end of the call before counts. Absent: nothing is said of it.
  std::optional<std::chrono::steady_clock::time_point> loading_began{};
};

/// The results of a step on one rank.
struct StepResult {
  /// The mean loss of this pipeline's rows, on its last stage where it had rows.
  std::optional<double> loss;
  /// Rows whose frozen layers have come from the cache, on this rank.
  std::int64_t cached_rows = 0;
  /// Rows of which the cache had the outputs of fewer layers, from which they were computed on.
  std::int64_t resumed_rows = 0;
  StepTimes times;      ///< this rank's
  StepTraffic traffic;  ///< this rank's
};

/// The results of `Pipeline::evaluate` on one rank.
struct PipelineOutputs {
  at::Tensor outputs;          ///< [rows, …], on the last stage; elsewhere undefined
  std::optional<double> loss;  ///< as `StepResult::loss`
};

/// A sequential model in stages over ranks: n / K pipelines of K ranks, each with its own rows.
///
/// A step cuts a pipeline's rows into micro-batches, which go through the stages one behind the
/// other, and has the loss and, with `ReplicaSync::Gradients`, the gradients of one process with
/// all rows:
///
///     g = Σ_p Σ_m (rows of micro-batch m of pipeline p / all rows) ∇ loss(p, m),
///
/// summed by rising m, then by rising p. Micro-batches are seen one by one by layers that look at
/// more than a row (batch normalisation), and draw random numbers of their own (dropout).
///
/// Each rank holds the parameters of its stage alone; others keep their place in the model without
/// memory, and get no gradient, so that an optimizer over all parameters of the model, whatever the
/// stage, is the right one: it steps those that have one. Hooks of torch run for the layers that
/// are here.
///
/// All ranks make the same calls. An error of one rank ends the pipeline on all: the call fails on
/// the others with PeerFailure, further ones with StateError; the parameters stay where they are,
/// and the context, of which a copy is used, is good for another pipeline. One thread at a time.
/// Buffers of modules are each rank's own.
/// Source: GPipe, arXiv 1811.06965; PipeDream-Flush, arXiv 2006.09503; PipeTransformer, arXiv
/// 2102.03161.
class Pipeline {
 public:
  /// Collective. All ranks get rank 0's parameters and buffers, and keep those of their stage.
  /// @param model a torch::nn::Sequential on the CPU, whose layers take one tensor and give one,
  ///   with rows in dimension 0; the same on all ranks.
  /// @param loss called on last stages.
  /// @throws InvalidArgument for a null pointer, a model that is no sequence, parameters that are
  ///   not all of one floating dtype on the CPU, belong to two layers or to a distributed
  ///   optimizer, costs of another number of layers, and what `PipelineLayout` and
  ///   `partition_layers` refuse (more stages than layers with parameters); on the other ranks
  ///   PeerFailure. @throws MismatchError for models or options that differ.
  Pipeline(const std::shared_ptr<Context>& context, const std::shared_ptr<torch::nn::Module>& model,
           Loss loss, const PipelineOptions& options = {});

  /// Takes over the other one's pipeline; that one may only be destroyed or assigned to.
  Pipeline(Pipeline&&) noexcept;
  /// Ends its own as the destructor does, and takes over the other one's.
  Pipeline& operator=(Pipeline&&) noexcept;
  /// Leaves the pipeline: a step that others are in ends with PeerFailure.
  ~Pipeline();

  /// Collective. Gradients of a batch, and a step of `optimizer` with them; with
  /// `ReplicaSync::Parameters` the average that follows.
  /// @param optimizer over the model's parameters, or those of this rank's stage.
  /// @throws InvalidArgument for inputs or targets of another number of rows, `all_rows` of an only
  ///   pipeline that are not its rows, activations that are not floating, whose rows or other
  ///   dimensions change, a loss that is no number, numbers of samples that are too many, too few or
  ///   too large, and what a layer refuses, naming it. @throws TransportError for a full disk.
  ///   @throws MismatchError for rows that are not those of the stage before, or `all_rows` that are
  ///   not those of the other pipelines; the stage before gets PeerFailure.
  /// @throws PeerFailure, TimeoutError, StateError as above.
  StepResult step(torch::optim::Optimizer& optimizer, const PipelineBatch& batch);

  /// Collective. The gradients alone, in the parameters' `grad`: with `ReplicaSync::Gradients` of
  /// all rows, and zeros for parameters that no replica used where there are several; else of this
  /// pipeline's rows. @throws as `step`.
  StepResult compute_gradients(const PipelineBatch& batch);

  /// Collective in each pipeline. Forward passes alone, without gradients; modules stay in the mode
  /// that they are in. @throws as `step`.
  PipelineOutputs evaluate(const PipelineBatch& batch);

  /// Collective. Another number of stages, and more frozen layers: partitions anew, and gives each
  /// rank the parameters, buffers and optimizer state of the layers that it lacks, bit for bit, by
  /// messages from a rank of the pipeline that it was in. Ranks that a shorter pipeline frees are
  /// the first ones of another: the number of pipelines rises as that of stages falls.
  ///
  /// Frozen layers have no gradients and no optimizer state, take no part in averages, and are in
  /// evaluation mode, so that they give the same for the same rows. They stay frozen.
  /// Cost: the layers that move, once each; nothing where none does.
  /// @param optimizer as for `step`; it stays the one that it is.
  /// @throws InvalidArgument for fewer frozen layers than there are, or more than layers, and as
  ///   the constructor. @throws UnsupportedError where layers move under an optimizer other than
  ///   SGD, Adam, AdamW, RMSprop, Adagrad, AccumAdam, AccumAdamW and Muon.
  void rearrange(const Arrangement& wanted, torch::optim::Optimizer& optimizer);

  /// Collective. Tries the passes of `batch` with each number of micro-batches, twice, and stays with
  /// the one whose second trial takes least time on the slowest rank. Gradients are cleared
  /// afterwards, buffers are what they were; layers that draw random numbers draw some.
  /// @param candidates empty: 1, 2, 4 and 8 times the number of stages.
  /// @return the number, the same on all ranks, which `step` takes from now on.
  /// @throws InvalidArgument for a candidate below 1, and as `step`.
  int choose_micro_batches(const PipelineBatch& batch, std::vector<int> candidates = {});

  /// Collective. The parameters of each stage become their mean over its replicas, the same bits on
  /// all of them: before evaluation, and at the end, with `ReplicaSync::Parameters`.
  void average_replicas();

  /// Collective. The Euclidean norm of each layer's gradients in the last step, by layer, the same
  /// on all ranks: what `FreezeSchedule::advance` takes of the encoder's layers that are not
  /// frozen. With `ReplicaSync::Parameters` those of the first pipeline.
  [[nodiscard]] std::vector<double> gradient_norms();

  /// The places of ranks.
  [[nodiscard]] const PipelineLayout& layout() const noexcept;
  /// The layers of stages.
  [[nodiscard]] const Partition& partition() const noexcept;
  /// The stage of this rank.
  [[nodiscard]] int stage() const;
  /// The pipeline of this rank.
  [[nodiscard]] int replica() const;
  /// The number of layers that are frozen.
  [[nodiscard]] int frozen() const noexcept;
  /// The costs of layers that partitions go by.
  [[nodiscard]] const std::vector<double>& costs() const noexcept;
  /// The most micro-batches of a step.
  [[nodiscard]] int micro_batches() const noexcept;
  /// The parameters of this rank's stage that are trained, as the model names them.
  [[nodiscard]] optimizers::NamedTensors trained_parameters() const;

 private:
  class State;

  std::unique_ptr<State> state_;
};

}  // namespace bluefog::pipeline
