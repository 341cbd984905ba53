#include "optimizers/parameter_collectives.hpp"

#include <fmt/format.h>
#include <torch/torch.h>

#include <string_view>
#include <utility>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "optimizers/checks/agreement.hpp"
#include "optimizers/round_calls.hpp"

namespace bluefog::optimizers {
namespace {

/// A tensor in a call: its elements in logical order, and the tensor that gets them back.
struct Transfer {
  at::Tensor target;
  at::Tensor elements;
};

Transfer begin_transfer(const at::Tensor& tensor) {
  return {.target = tensor, .elements = tensor.detach().contiguous()};
}

void end_transfer(const Transfer& transfer) {
  if (transfer.elements.const_data_ptr() != transfer.target.const_data_ptr()) {
    transfer.target.detach().copy_(transfer.elements);
  }
  transfer.target.unsafeGetTensorImpl()->bump_version();
}

/// Throws unless all ranks have as many tensors, with the same names, shapes and dtypes: else ranks
/// would make different numbers of calls, and later calls would meet the wrong ones.
void check_tensors_agree(Context& context, std::string_view subject, const NamedTensors& tensors) {
  Statement statement;
  for (const NamedTensor& item : tensors) {
    statement.lines.push_back(fmt::format("'{}', {}{}", item.name,
                                          c10::toString(item.tensor.scalar_type()),
                                          shape_text(item.tensor.sizes())));
  }
  check_ranks_agree(context, subject, statement);
}

/// Starts a call for each tensor, waits for all, writes the results back.
template <typename Start>
void transfer_all(Context& context, const NamedTensors& tensors, std::string_view call,
                  Start&& start) {
  const torch::NoGradGuard no_grad;
  std::vector<Transfer> transfers;
  std::vector<Work> works;
  run_round(context, tensors.size(), [&](std::size_t& issued) {
    for (const NamedTensor& item : tensors) {
      transfers.push_back(begin_transfer(item.tensor));
      const BufferView view = view_of(transfers.back().elements);
      const std::string name = fmt::format("{}{}{} {}", call, call.empty() ? "" : ": ", item.name,
                                           shape_text(item.tensor.sizes()));
      ++issued;
      works.push_back(start(view, name));
    }
    wait_all(works);
  });
  for (const Transfer& transfer : transfers) {
    end_transfer(transfer);
  }
}

}  // namespace

void broadcast(Context& context, const NamedTensors& tensors, int root, std::string_view call) {
  transfer_all(context, tensors, call, [&](const BufferView& view, const std::string& name) {
    return ops::broadcast_nonblocking(context, view, root, {.name = name});
  });
}

void broadcast_parameters(Context& context, const torch::nn::Module& module, int root) {
  const NamedTensors parameters = named_parameters(module);
  check_tensors_agree(context, "broadcast_parameters", parameters);
  broadcast(context, parameters, root, "broadcast_parameters");
}

void broadcast_buffers(Context& context, const torch::nn::Module& module, int root) {
  const NamedTensors buffers = named_buffers(module);
  check_tensors_agree(context, "broadcast_buffers", buffers);
  broadcast(context, buffers, root, "broadcast_buffers");
}

void average_floating(Context& context, const NamedTensors& tensors, std::string_view call) {
  NamedTensors floating;
  for (const NamedTensor& item : tensors) {
    if (why_not_averaged(item.tensor).empty()) {
      floating.push_back(item);
    }
  }
  transfer_all(context, floating, call, [&](const BufferView& view, const std::string& name) {
    ops::AllreduceOptions options;
    options.name = name;
    return ops::allreduce_nonblocking(context, view, options);
  });
}

void allreduce_parameters(Context& context, const torch::nn::Module& module) {
  const NamedTensors parameters = named_parameters(module);
  check_tensors_agree(context, "allreduce_parameters", parameters);
  average_floating(context, parameters, "allreduce_parameters");
}

}  // namespace bluefog::optimizers
