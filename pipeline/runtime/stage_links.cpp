#include "pipeline/runtime/stage_links.hpp"

#include <fmt/format.h>
#include <torch/torch.h>

#include <array>
#include <utility>

#include "bluefog_cpp/error.hpp"
#include "ops/message.hpp"
#include "optimizers/parameter.hpp"

namespace bluefog::pipeline {
namespace {

// The words of a form as it travels: dtype, number of dimensions, their sizes.
constexpr std::size_t kMostDimensions = 14;
using FormWords = std::array<std::int64_t, 2 + kMostDimensions>;
using ShapeWords = std::array<std::int64_t, 4>;

template <std::size_t Size>
BufferView view_of(std::array<std::int64_t, Size>& words) {
  return {.data = words.data(),
          .count = static_cast<std::int64_t>(words.size()),
          .dtype = Dtype::Int64};
}

ShapeWords words_of(const BatchShape& shape) {
  return {shape.is_trained ? 1 : 0, shape.rows, shape.all_rows, shape.micro_batches};
}

BatchShape shape_in(const ShapeWords& words) {
  return {.is_trained = words[0] != 0,
          .rows = words[1],
          .all_rows = words[2],
          .micro_batches = words[3]};
}

std::string describe(const BatchShape& shape) {
  const std::string kind = shape.is_trained
                               ? fmt::format("a step of {} rows in all pipelines,", shape.all_rows)
                               : "an evaluation";
  return fmt::format("{} of {} rows in {} micro-batches", kind, shape.rows, shape.micro_batches);
}

}  // namespace

RowForm form_of(const at::Tensor& rows) {
  return {.dtype = rows.scalar_type(), .sizes = rows.sizes().slice(1).vec()};
}

at::Tensor room_for(const RowForm& form, std::int64_t rows) {
  std::vector<std::int64_t> sizes{rows};
  sizes.insert(sizes.end(), form.sizes.begin(), form.sizes.end());
  return at::empty(sizes, form.dtype);
}

StageLinks::StageLinks(Context& context, const PipelineLayout& layout)
    : context_(context),
      stage_(layout.stage_of(context.rank())),
      stages_(layout.stages()),
      before_(context.rank() - 1),
      behind_(context.rank() + 1) {}

std::string StageLinks::where() const {
  return fmt::format("rank {}, stage {}", context_.rank(), stage_);
}

void StageLinks::begin(const BatchShape& own) {
  if (stage_ < stages_ - 1) {
    const auto words = std::make_shared<ShapeWords>(words_of(own));
    send_words(words, MessageTag::Batch);
  }
  if (stage_ == 0) {
    return;
  }
  ShapeWords words{};
  ops::receive_nonblocking(context_, view_of(words), before_, static_cast<int>(MessageTag::Batch))
      .wait();
  if (const BatchShape theirs = shape_in(words); theirs != own) {
    throw MismatchError(fmt::format("{}: expected the batch of rank {}, {}, found {}", where(),
                                    before_, describe(theirs), describe(own)));
  }
}

void StageLinks::send_activation(const at::Tensor& activation, std::int64_t rows) {
  if (!output_) {
    check_form(activation, rows);
    output_ = form_of(activation);
    send_form();
  }
  check_form(activation, rows);
  send(activation.detach(), behind_, MessageTag::Activation);
}

void StageLinks::check_form(const at::Tensor& activation, std::int64_t rows) const {
  if (!activation.is_floating_point() || !activation.is_cpu()) {
    throw UnsupportedError(
        fmt::format("{}: expected an output of floating values on the CPU, found {}", where(),
                    optimizers::describe(activation)));
  }
  if (activation.dim() < 1 || activation.size(0) != rows ||
      activation.dim() > static_cast<std::int64_t>(kMostDimensions)) {
    throw InvalidArgument(
        fmt::format("{}: expected an output of {} rows and at most {} dimensions, found {}",
                    where(), rows, kMostDimensions, optimizers::describe(activation)));
  }
  if (output_ && (activation.scalar_type() != output_->dtype ||
                  activation.sizes().slice(1) != at::IntArrayRef(output_->sizes))) {
    throw InvalidArgument(
        fmt::format("{}: expected outputs of rows as those before, {} {}, found {}", where(),
                    c10::toString(output_->dtype), optimizers::shape_text(output_->sizes),
                    optimizers::describe(activation)));
  }
}

void StageLinks::send_form() {
  const auto words = std::make_shared<FormWords>();
  words->fill(0);
  (*words)[0] = static_cast<std::int64_t>(output_->dtype);
  (*words)[1] = static_cast<std::int64_t>(output_->sizes.size());
  std::ranges::copy(output_->sizes, words->begin() + 2);
  send_words(words, MessageTag::Form);
}

template <typename Words>
void StageLinks::send_words(const std::shared_ptr<Words>& words, MessageTag tag) {
  BufferView view = view_of(*words);
  view.owner = words;
  sent_.push_back(ops::send_nonblocking(context_, view, behind_, static_cast<int>(tag)));
}

at::Tensor StageLinks::receive_activation(std::int64_t rows) {
  if (!input_) {
    receive_form();
  }
  at::Tensor activation = room_for(*input_, rows);
  receive(activation, before_, MessageTag::Activation);
  return activation;
}

void StageLinks::receive_form() {
  FormWords words{};
  ops::receive_nonblocking(context_, view_of(words), before_, static_cast<int>(MessageTag::Form))
      .wait();
  input_ = {.dtype = static_cast<at::ScalarType>(words[0]),
            .sizes = {words.begin() + 2, words.begin() + 2 + words[1]}};
}

void StageLinks::send_gradient(const at::Tensor& gradient) {
  send(gradient, before_, MessageTag::Gradient);
}

at::Tensor StageLinks::receive_gradient(std::int64_t rows) {
  at::Tensor gradient = room_for(*output_, rows);
  receive(gradient, behind_, MessageTag::Gradient);
  return gradient;
}

void StageLinks::send(const at::Tensor& values, int target, MessageTag tag) {
  sent_.push_back(ops::send_nonblocking(context_, optimizers::view_of(values.contiguous()), target,
                                        static_cast<int>(tag)));
  sent_bytes_ += static_cast<std::int64_t>(values.nbytes());
  if (!context_.machines().same_machine(context_.rank(), target)) {
    ++messages_between_machines_;
  }
}

void StageLinks::receive(const at::Tensor& values, int source, MessageTag tag) {
  ops::receive_nonblocking(context_, optimizers::view_of(values), source, static_cast<int>(tag))
      .wait();
}

void StageLinks::finish() {
  for (const Work& work : sent_) {
    work.wait();
  }
  sent_.clear();
}

void StageLinks::take_traffic(StepTraffic& traffic) {
  traffic.stage_bytes += std::exchange(sent_bytes_, 0);
  traffic.machine_syncs += std::exchange(messages_between_machines_, 0);
}

}  // namespace bluefog::pipeline
