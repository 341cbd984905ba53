#include "python/bindings/own/python_algorithm.hpp"

#include <ATen/ops/full.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <exception>
#include <memory>
#include <utility>

#include "bluefog_cpp/error.hpp"
#include "optimizers/bucket_averages.hpp"
#include "optimizers/checks/agreement.hpp"
#include "python/bindings/own/algorithm_round.hpp"
#include "python/bindings/own/python_row.hpp"

namespace bluefog::python {
namespace {

/// Options by name, as numbers of the types that their defaults have.
py::dict options_of(const optimizers::AlgorithmParts& parts) {
  py::dict options;
  for (const auto& option : optimizers::row_of(parts.options.algorithm).options) {
    const double value = parts.number(option.name);
    const py::str name(option.name);
    if (std::holds_alternative<bool>(option.default_value)) {
      options[name] = py::bool_(value != 0.0);
    } else if (std::holds_alternative<std::int64_t>(option.default_value)) {
      options[name] = py::int_(static_cast<std::int64_t>(value));
    } else {
      options[name] = py::float_(value);
    }
  }
  return options;
}

}  // namespace

PythonAlgorithm::PythonAlgorithm(optimizers::AlgorithmParts parts, std::string name)
    : Algorithm(parts.buckets), context_(parts.context), name_(std::move(name)) {
  std::exception_ptr error;
  std::string problem;
  try {
    in_python([&] { make(parts); });
  } catch (const std::exception& raised) {
    error = std::current_exception();
    problem = raised.what();
  }
  try {
    optimizers::check_ranks_agree(
        context_, name_,
        {.lines = {fmt::format("calls_due {}", calls_due_),
                   fmt::format("averages_with_neighbors {}", has_neighbors_),
                   fmt::format("state {}", fmt::join(state_names_, ", ")),
                   fmt::format("scalars {}", fmt::join(scalar_texts(), ", "))},
         .problem = problem});
  } catch (const InvalidArgument&) {
    if (error) {
      std::rethrow_exception(error);  // with its class and its stack
    }
    throw;
  }
}

// State first: Python's object finds it in its buckets.
void PythonAlgorithm::make(const optimizers::AlgorithmParts& parts) {
  const py::object rows = python_rows();
  const py::object description = rows.attr("description_of")(name_);
  state_names_ = description.attr("state").cast<std::vector<std::string>>();
  has_neighbors_ = description.attr("averages_with_neighbors").cast<bool>();
  for (std::size_t s = 0; s < state_names_.size(); ++s) {
    std::vector<at::Tensor>& tensors = states_.emplace_back();
    for (const optimizers::Bucket& bucket : buckets_) {
      tensors.push_back(bucket.make_state());
    }
  }
  py::dict scalars;
  for (const auto& [name, initial] :
       description.attr("scalars").cast<std::vector<std::pair<std::string, double>>>()) {
    scalars_.push_back({name, initial, at::full({1}, initial, at::kDouble)});
    scalars[py::str(name)] = py::cast(scalars_.back().value);
  }
  object_.set(rows.attr("make")(name_, context_.rank(), context_.size(), options_of(parts),
                                bucket_parts(), scalars));
  calls_due_ = object_.get().attr("_calls_due")().cast<std::size_t>();
}

std::vector<std::string> PythonAlgorithm::scalar_texts() const {
  std::vector<std::string> texts;
  for (const Scalar& scalar : scalars_) {
    texts.push_back(fmt::format("{} from {}", scalar.name, scalar.initial));
  }
  return texts;
}

// A tuple for each bucket: its name, its values, places of parameters in it, state by name.
py::list PythonAlgorithm::bucket_parts() const {
  py::list all;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    py::list places;
    for (const optimizers::Segment& segment : buckets_[b].segments()) {
      places.append(py::make_tuple(segment.name, segment.parameter, segment.sizes, segment.strides,
                                   segment.offset));
    }
    // Aliases: a program that gives its tensor other memory takes none away.
    py::dict state;
    for (std::size_t s = 0; s < state_names_.size(); ++s) {
      state[py::str(state_names_[s])] = py::cast(states_[s][b].alias());
    }
    all.append(py::make_tuple(buckets_[b].name(), buckets_[b].flat().alias(), places, state));
  }
  return all;
}

void PythonAlgorithm::step(const optimizers::Round& round,
                           const optimizers::StepBucket& step_bucket) {
  run("_step", &round, step_bucket, calls_due_);
}

void PythonAlgorithm::step_alone(const optimizers::StepBucket& step_bucket) {
  run("_step_alone", nullptr, step_bucket, 0);
}

// Peers hear of an error before it leaves this rank, so that they wait for no call of it.
void PythonAlgorithm::run(const char* method, const optimizers::Round* round,
                          const optimizers::StepBucket& step_bucket, std::size_t calls) {
  const auto of_round =
      std::make_shared<AlgorithmRound>(context_, buckets_, round, step_bucket, name_, calls);
  try {
    in_python([&] { object_.get().attr(method)(of_round); });
    of_round->end();
  } catch (const std::exception& error) {
    of_round->fail(place(method, error));
    throw;
  }
  optimizers::note_changes(buckets_);
}

// Errors of the library name rank and algorithm themselves.
std::string PythonAlgorithm::place(std::string_view method, const std::exception& error) const {
  method.remove_prefix(method.starts_with('_') ? 1 : 0);
  return dynamic_cast<const RaisedInPython*>(&error) == nullptr
             ? fmt::format("{} ({})", error.what(), method)
             : fmt::format("rank {}, {}, {}: {}", context_.rank(), name_, method, error.what());
}

optimizers::NamedTensors PythonAlgorithm::state() const {
  optimizers::NamedTensors all;
  for (std::size_t s = 0; s < state_names_.size(); ++s) {
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      all.push_back({fmt::format("{} of bucket {}", state_names_[s], b), states_[s][b]});
    }
  }
  for (const Scalar& scalar : scalars_) {
    all.push_back({scalar.name, scalar.value});
  }
  return all;
}

void PythonAlgorithm::restart() {
  for (const auto& tensors : states_) {
    for (const at::Tensor& tensor : tensors) {
      tensor.zero_();
    }
  }
  for (const Scalar& scalar : scalars_) {
    scalar.value.fill_(scalar.initial);
  }
  in_python([&] { object_.get().attr("_restart")(); });
}

}  // namespace bluefog::python
