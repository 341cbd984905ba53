#pragma once

#include <torch/version.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "bluefog_cpp/context.hpp"
#include "ops/compression.hpp"
#include "optimizers/algorithm.hpp"
#include "optimizers/algorithm_name.hpp"
#include "optimizers/bucket.hpp"
#include "optimizers/early_step.hpp"
#include "optimizers/options.hpp"
#include "topology/families.hpp"
#include "topology/neighbor_plan.hpp"
#include "topology/schedule.hpp"

namespace bluefog::optimizers {

/// An option that an algorithm reads, beside those that all of them have.
struct AlgorithmOption {
  /// A field of `DistributedOptimizerOptions`, or a key of its `numbers`, which is then no field's
  /// name.
  std::string name;
  /// The value of an option that is left out. A text: that of a field, "none" where it has none.
  std::variant<bool, std::int64_t, double, std::string> default_value;
  /// A text for tables.
  std::string meaning;
  /// The least value of a number, its default among them.
  double least = -std::numeric_limits<double>::infinity();
  /// A number is below it, and so is its default.
  double below = std::numeric_limits<double>::infinity();
  /// It is a field that some algorithms read (`compression`, `global_period_rounds`, `momentum`,
  /// `step_in_backward`), and checked by itself.
  bool is_field = false;

  /// The default as a number, false as 0; nothing where it is a text.
  [[nodiscard]] std::optional<double> default_number() const;
};

/// The sums of W that are 1.
enum class Stochastic : std::uint8_t {
  /// None: the algorithm makes no average of W, or bears every one.
  Any,
  /// Rows, with weights of any sign, unless the options ask for others (`RowSums`).
  Averages,
  Rows,            ///< rows, with weights of at least 0
  Columns,         ///< columns, with weights of at least 0
  RowsAndColumns,  ///< both, with weights of at least 0
};

/// A bound that every eigenvalue of a symmetric W lies above, and how a message writes it.
struct EigenvalueBound {
  double value = -1.0;      ///< the bound
  std::string text = "-1";  ///< the same as messages write it
};

/// An algorithm's conditions on the matrices W(t) that its rounds average with. The constructor of
/// `DistributedOptimizer` refuses others; a plan for one round is checked as far as one rank sees.
/// Reasons complete the sentence of the message.
struct MixingNeeds {
  Stochastic stochastic = Stochastic::Averages;  ///< the sums that are 1
  /// The quantity that columns which sum to 1 keep, for messages.
  std::string kept_mean = "the mean";

  bool is_symmetric = false;  ///< W(i, j) = W(j, i)
  /// Why W has to be symmetric.
  std::string symmetric_because =
      "its corrections cancel only between ranks that weigh each other alike";

  /// The same W in every round.
  bool is_fixed = false;
  /// Why W has to be the same.
  std::string fixed_because = "it corrects a step by what W did in the step before";

  std::optional<EigenvalueBound> eigenvalues_above{};  ///< of a symmetric W; absent: none

  /// The words for W in docs, in place of those for the above.
  std::string note{};
};

/// Memory beside parameters and gradients, in copies of the model.
struct AlgorithmMemory {
  int copies = 0;             ///< whatever the graph
  int copies_per_source = 0;  ///< for each neighbour that is heard
  /// The place where it lies, or what else there is.
  std::string note{};
  /// The part of it that lives from step to step, and that a checkpoint keeps.
  std::string carried{};
  /// What holds of it over all ranks ("sums to 0 over the ranks"), and is lost for good where a rank
  /// goes on from another one's. Empty where each rank's part stands for itself.
  std::string conserved{};
};

/// A schedule that an algorithm brings along, under the name that programs give it.
struct OwnSchedule {
  std::string name;                        ///< as for `schedule_named`
  std::function<Schedule(int size)> make;  ///< the schedule for that number of ranks
};

/// The things an algorithm is made from; context and buckets outlive it.
struct AlgorithmParts {
  Context& context;                            ///< of the ranks that train together
  std::vector<Bucket>& buckets;                ///< all parameters that take part
  const DistributedOptimizerOptions& options;  ///< checked; for use while it is made
  EarlyStep early;                             ///< for algorithms that begin in the backward pass

  /// `number_of` these options.
  [[nodiscard]] double number(std::string_view name) const;
};

/// The value of an option that was left to an algorithm.
struct ChosenNumber {
  std::string option;  ///< a key of `DistributedOptimizerOptions::numbers`
  double value = 0.0;  ///< within the option's limits
  /// The way in which it was chosen, for the log; empty where it is not worth a line.
  std::string reason{};
};

/// Everything that the library knows about an algorithm beside its class. Names, checks, docs and
/// the choices of Python and the examples are made from rows (`register_algorithm`).
///
/// Functions are called on every rank with equal arguments, and come to the same result there.
struct AlgorithmRow {
  /// Lower case, with underscores: the one in messages and checkpoints.
  std::string name;
  /// Other names, written as `name`.
  std::vector<std::string> aliases{};
  /// With W the mixing matrix of a round, J the mean over all ranks, γ d the wrapped optimizer's
  /// step.
  std::string equation{};
  /// A sentence for tables.
  std::string description{};
  /// Paper, program.
  std::string source{};
  /// The work that hides the communication.
  std::string overlap{};
  AlgorithmMemory memory{};  ///< beside parameters and gradients

  std::vector<AlgorithmOption> options{};  ///< the options that it reads
  MixingNeeds mixing{};                    ///< what it asks of W

  /// Ranks write and read each other's windows: no rank waits, plans are not compared.
  bool uses_windows = false;
  /// Rounds begin in the backward pass, by hooks on gradients.
  bool begins_in_backward = false;
  /// Between communicating steps gradients add up, and the wrapped optimizer does not step.
  bool sums_gradients = false;
  /// A step goes by what the one before exchanged: `num_steps_per_communication` is 1.
  bool needs_every_step = false;
  /// BlueFog's rule, of its own algorithms, for callers that count backward passes as Python does:
  /// one step after k = `num_steps_per_communication` passes is a round. Else k counts steps alone,
  /// however many passes come before each.
  bool counts_passes = false;
  /// The wrapped optimizer may evaluate the gradients several times in one step: no evaluation is a
  /// round, or lies between what a step sends and what it takes in.
  bool allows_reevaluation = false;
  /// What it carries is due to the parameters that its last step left ("its corrections"): others
  /// that the caller sets between steps are refused until `restart`. Empty where they go on.
  std::string bound_to_values{};
  /// Why parameters are float32 or float64 ("each step …"); empty if they may be of 16 bits.
  std::string full_precision_because{};

  /// The schedule of callers that give none; if empty, the static exponential graph of base 2.
  std::function<Schedule(int size)> default_schedule{};
  /// The only schedules that it takes; the graph that a program has set for all does not count.
  std::vector<OwnSchedule> own_schedules{};
  /// Makes the schedule that rounds average with from the given one; if empty, they are the same.
  std::function<Schedule(Schedule schedule)> transform{};

  /// A check of the algorithm's own, after those that `mixing` asks for: why it cannot use a
  /// schedule. An empty text where it can.
  std::function<std::string(const DistributedOptimizerOptions& options, const Schedule& schedule)>
      why_unfit_schedule{};
  /// Likewise why it cannot use a plan that this rank has made, where `before` is the one it made
  /// for the round before, or null.
  std::function<std::string(const DistributedOptimizerOptions& options, const NeighborPlan& plan,
                            const NeighborPlan* before)>
      why_unfit_plan{};

  /// Looks for numbers that the options leave to the algorithm, over the schedule that rounds average
  /// with. Ranks compare what they find, and `make` sees it as if it had been given. An InvalidArgument
  /// where there is none is one of all ranks.
  std::function<std::vector<ChosenNumber>(const DistributedOptimizerOptions& options,
                                          const Schedule& schedule)>
      choose_numbers{};

  /// Makes the algorithm. Collective where its constructor is.
  std::function<std::unique_ptr<Algorithm>(AlgorithmParts parts)> make{};

  /// True if `options` lists this one.
  [[nodiscard]] bool reads(std::string_view option) const;
};

/// The sizes of what a row and its algorithm share with the library, as the headers had them that
/// a file was compiled with.
struct AlgorithmLayout {
  std::size_t row = sizeof(AlgorithmRow);     ///< in bytes, like all sizes here
  std::size_t algorithm = sizeof(Algorithm);  ///< of the base class
  std::size_t bucket = sizeof(Bucket);        ///< of one of `AlgorithmParts::buckets`
  std::size_t options = sizeof(DistributedOptimizerOptions);  ///< of `AlgorithmParts::options`
  int torch_major = TORCH_VERSION_MAJOR;                      ///< 2 of torch 2.11
  int torch_minor = TORCH_VERSION_MINOR;                      ///< 11 of torch 2.11

  /// Whether the two files were compiled alike.
  friend bool operator==(const AlgorithmLayout&, const AlgorithmLayout&) = default;
};

/// Makes an algorithm known under its names: options, Python and the examples accept them from now
/// on. Any thread. The same on all ranks, before the first optimizer that uses it.
/// @param compiled left out: what the caller's file was compiled with. A shared object may have
///   been compiled with headers of another version than the library that loads it.
/// @throws InvalidArgument with both layouts if they differ; the row is not read then.
/// @throws InvalidArgument naming what was expected and found: if a name, an alias or an option's
///   name is not of lower-case letters, digits and underscores; if a name or alias is taken or
///   there twice; if an option is there twice, has no meaning, limits between which nothing lies or
///   a default outside of them; if a schedule of its own has no name, one that is there twice, or
///   no `make`; or if the row has none.
void register_algorithm(AlgorithmRow row, const AlgorithmLayout& compiled = {});

/// The row with this name or alias, or null. It lives as long as the program. Any thread.
[[nodiscard]] const AlgorithmRow* find_algorithm(std::string_view name);

/// The row of a name. Any thread.
[[nodiscard]] const AlgorithmRow& row_of(const AlgorithmName& algorithm);

/// All rows: this library's in a fixed order, then the others in the order in which they came. Any
/// thread.
[[nodiscard]] std::vector<const AlgorithmRow*> algorithms();

/// The schedule that the algorithm's rounds average with, for `size` ranks: that of the options or
/// the row's default, as the row transforms it.
[[nodiscard]] Schedule mixing_of(const DistributedOptimizerOptions& options, int size);

/// An option's number: that of `options.numbers`, or the default in the algorithm's row. Any thread.
/// @throws InvalidArgument if the row has no such option, or if it is a field.
[[nodiscard]] double number_of(const DistributedOptimizerOptions& options, std::string_view name);

/// The code of what the algorithm sends: that of the options, or the row's default; null where it
/// takes none. Any thread.
[[nodiscard]] std::shared_ptr<const ops::Compression> compression_of(
    const DistributedOptimizerOptions& options);

/// The schedule that a program means by `name`: one of the algorithm's own, or a family of
/// `topology::make_schedule`. Any thread.
/// @throws InvalidArgument listing the known names; UnsupportedError for a family of two variables
///   that is not this algorithm's.
[[nodiscard]] Schedule schedule_named(const AlgorithmName& algorithm, std::string_view name,
                                      const topology::FamilyOptions& options);

}  // namespace bluefog::optimizers

/// Registers the algorithms of a library, which defines it: Python's `algorithms.load` calls it,
/// and so may a program that is linked with the file. Exceptions reach the caller.
extern "C" [[gnu::visibility("default")]] void bluefog_register_algorithms();
