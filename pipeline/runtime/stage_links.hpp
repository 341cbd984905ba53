#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/work.hpp"
#include "pipeline/pipeline_layout.hpp"
#include "pipeline/step_times.hpp"

namespace bluefog::pipeline {

/// The tags of messages between stages.
enum class MessageTag : int { Form, Activation, Gradient, Layer, Batch };

/// The batch that a pipeline's ranks pass on together, as each of them has been called with it.
struct BatchShape {
  bool is_trained = false;  ///< a step, or an evaluation
  std::int64_t rows = 0;    ///< of the pipeline
  std::int64_t all_rows = 0;
  std::int64_t micro_batches = 0;

  friend bool operator==(const BatchShape&, const BatchShape&) = default;
};

/// The form of an activation's rows: the dtype, and the dimensions behind the first.
struct RowForm {
  at::ScalarType dtype = at::kFloat;
  std::vector<std::int64_t> sizes;

  friend bool operator==(const RowForm&, const RowForm&) = default;
};

/// The form of the rows of a tensor of one dimension or more.
[[nodiscard]] RowForm form_of(const at::Tensor& rows);
/// Memory for so many rows, with any values.
[[nodiscard]] at::Tensor room_for(const RowForm& form, std::int64_t rows);

/// The messages between a stage and those before and behind it. The form of activations travels
/// once, before the first one; all others have it. The batch's shape travels with each batch: ranks
/// that are called with others would take messages for those of another micro-batch or step.
class StageLinks {
 public:
  /// @param context outlives this object.
  StageLinks(Context& context, const PipelineLayout& layout);

  /// A batch begins. @throws MismatchError where the stage before has another one.
  void begin(const BatchShape& own);
  /// @throws InvalidArgument for an activation that does not have so many rows, or not the form of
  ///   the first one; UnsupportedError for one that is not floating.
  void send_activation(const at::Tensor& activation, std::int64_t rows);
  [[nodiscard]] at::Tensor receive_activation(std::int64_t rows);
  void send_gradient(const at::Tensor& gradient);
  [[nodiscard]] at::Tensor receive_gradient(std::int64_t rows);

  /// Waits until what has been sent is on its way.
  void finish();
  /// Adds what has been sent since the last call.
  void take_traffic(StepTraffic& traffic);

 private:
  void send(const at::Tensor& values, int target, MessageTag tag);
  void receive(const at::Tensor& values, int source, MessageTag tag);
  void send_form();
  /// To the stage behind.
  template <typename Words>
  void send_words(const std::shared_ptr<Words>& words, MessageTag tag);
  void receive_form();
  void check_form(const at::Tensor& activation, std::int64_t rows) const;
  [[nodiscard]] std::string where() const;

  Context& context_;
  int stage_;
  int stages_;
  int before_;
  int behind_;
  std::optional<RowForm> input_;
  std::optional<RowForm> output_;
  std::vector<Work> sent_;
  std::int64_t sent_bytes_ = 0;
  std::int64_t messages_between_machines_ = 0;
};

}  // namespace bluefog::pipeline
