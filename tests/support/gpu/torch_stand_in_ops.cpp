// torch's operations on tensors of its stand-in's devices.
#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/Storage.h>
#include <torch/library.h>
#include <torch/torch.h>

#include <cstring>
#include <string>
#include <utility>

#include "tests/support/gpu/torch_place.hpp"

namespace bluefog::testing {
namespace {

std::size_t extent_of(const at::Tensor& tensor) {
  return tensor.numel() == 0 ? 0
                             : at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(),
                                                                tensor.element_size());
}

Access access_of(const at::Tensor& tensor, bool writes) {
  return {.memory = tensor.const_data_ptr(), .bytes = extent_of(tensor), .writes = writes};
}

at::Tensor with_storage(c10::Storage storage, c10::DispatchKey key, const at::Tensor& like) {
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(key), like.dtype());
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(),
                                                      like.storage_offset());
  return tensor;
}

void let_go(void* kept) { delete static_cast<at::Tensor*>(kept); }

/// The same memory as a tensor on the CPU.
at::Tensor on_host(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_cuda()) {
    return tensor;
  }
  const c10::Storage& own = tensor.storage();
  return with_storage(
      c10::Storage(c10::Storage::use_byte_size_t(), own.nbytes(),
                   c10::DataPtr(const_cast<void*>(own.data()), new at::Tensor(tensor), &let_go,
                                c10::DeviceType::CPU),
                   /*allocator=*/nullptr, /*resizable=*/false),
      c10::DispatchKey::CPU, tensor);
}

/// A result, in the device's memory.
at::Tensor on_device(const std::shared_ptr<TorchPlace>& place, at::Tensor result) {
  if (!result.is_non_overlapping_and_dense()) {
    result = result.contiguous();
  }
  at::Tensor tensor = make_tensor_on(place, result.sizes(), result.strides(), result.scalar_type());
  place->run("torch's result", {access_of(tensor, true)}, [&] {
    if (result.numel() > 0) {
      std::memcpy(tensor.data_ptr(), result.const_data_ptr(), extent_of(result));
    }
  });
  return tensor;
}

/// Whether torch's part for CUDA asks for an argument that its part for the CPU does without.
bool is_asked_for(const std::string& operation, const std::string& argument) {
  return operation == "aten::native_batch_norm_backward" &&
         (argument == "save_mean" || argument == "save_invstd");
}

/// One call of an operation whose tensors are on a device.
class DeviceOperation {
 public:
  DeviceOperation(const c10::OperatorHandle& operation, torch::jit::Stack& stack)
      : operation_(operation), schema_(operation.schema()), stack_(stack) {}

  void run() {
    take_arguments();
    TORCH_CHECK(place_, "an operation without a tensor on a device: ", schema_.name());
    const auto compute = [this] {
      const at::AutoDispatchBelowADInplaceOrView below;
      operation_.callBoxed(stack_);
    };
    if (only_views()) {
      compute();
    } else {
      place_->run(schema_.name(), accesses_, compute);
    }
    give_results();
  }

 private:
  void take_arguments() {
    const auto& arguments = schema_.arguments();
    const std::size_t first = stack_.size() - arguments.size();
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      c10::IValue& value = stack_[first + i];
      const auto* const alias = arguments[i].alias_info();
      const bool writes = alias != nullptr && alias->isWrite();
      TORCH_CHECK(!value.isNone() || !is_asked_for(schema_.name(), arguments[i].name()),
                  schema_.name(), " on CUDA: ", arguments[i].name(), " should always be defined");
      if (value.isDevice()) {
        value = c10::Device(c10::DeviceType::CPU);
      } else if (value.isTensor()) {
        const at::Tensor tensor = value.toTensor();
        value = taken(tensor, writes);
        if (alias != nullptr) {
          aliased_.push_back({alias, tensor, value.toTensor()});
        }
      } else if (value.isTensorList()) {
        c10::List<at::Tensor> hosts;
        for (const at::Tensor& tensor : value.toTensorVector()) {
          hosts.push_back(taken(tensor, writes));
        }
        value = hosts;
      } else if (value.isOptionalTensorList()) {
        c10::List<std::optional<at::Tensor>> hosts;
        for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
          hosts.push_back(tensor ? std::optional(taken(*tensor, writes)) : std::nullopt);
        }
        value = hosts;
      }
    }
  }

  at::Tensor taken(const at::Tensor& tensor, bool writes) {
    if (tensor.defined() && tensor.is_cuda()) {
      place_ = place_ ? place_ : torch_place(tensor.device().index());
      TORCH_CHECK(place_->index == tensor.device().index(), schema_.name(),
                  ": tensors on several devices");
      accesses_.push_back(access_of(tensor, writes));
    }
    return on_host(tensor);
  }

  [[nodiscard]] bool only_views() const {
    for (const auto& result : schema_.returns()) {
      if (result.alias_info() == nullptr || result.alias_info()->isWrite()) {
        return false;
      }
    }
    return !schema_.returns().empty();
  }

  void give_results() {
    const auto& returns = schema_.returns();
    for (std::size_t i = 0; i < returns.size(); ++i) {
      c10::IValue& value = stack_[stack_.size() - returns.size() + i];
      if (value.isTensor()) {
        value = given(value.toTensor(), returns[i].alias_info());
      } else if (value.isTensorList()) {
        c10::List<at::Tensor> tensors;
        for (const at::Tensor& tensor : value.toTensorVector()) {
          tensors.push_back(given(tensor, nullptr));
        }
        value = tensors;
      } else {
        place_->wait();  // a number on the host
      }
    }
  }

  at::Tensor given(const at::Tensor& result, const c10::AliasInfo* alias) {
    if (!result.defined()) {
      return result;
    }
    if (alias == nullptr) {
      return on_device(place_, result);
    }
    for (const Aliased& argument : aliased_) {
      if (argument.info->beforeSets() != alias->beforeSets()) {
        continue;
      }
      if (!alias->isWrite()) {
        return with_storage(argument.tensor.storage(), c10::DispatchKey::CUDA, result);
      }
      TORCH_CHECK(argument.host.sizes() == argument.tensor.sizes(), schema_.name(),
                  ": a result that has another size than the tensor it was to be put into");
      return argument.tensor;
    }
    TORCH_CHECK(false, schema_.name(), ": no argument is its result's");
  }

  struct Aliased {
    const c10::AliasInfo* info;
    at::Tensor tensor;
    at::Tensor host;
  };

  const c10::OperatorHandle& operation_;
  const c10::FunctionSchema& schema_;
  torch::jit::Stack& stack_;
  std::shared_ptr<TorchPlace> place_;
  std::vector<Access> accesses_;
  std::vector<Aliased> aliased_;
};

void run_operation(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
  DeviceOperation(operation, *stack).run();
}

std::shared_ptr<TorchPlace> place_for(std::optional<c10::Device> device) {
  const c10::Device asked = device.value_or(c10::Device(c10::DeviceType::CUDA));
  return torch_place((asked.has_index()
                          ? asked
                          : c10::impl::getDeviceGuardImpl(c10::DeviceType::CUDA)->getDevice())
                         .index());
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout> /*layout*/,
                         std::optional<c10::Device> device, std::optional<bool> /*pinned*/) {
  return make_tensor_on(place_for(device), sizes, strides, dtype.value_or(at::kFloat));
}

at::Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout> layout, std::optional<c10::Device> device,
                 std::optional<bool> pinned, std::optional<at::MemoryFormat> format) {
  const at::Tensor like = at::empty(sizes, at::TensorOptions().device(at::kMeta), format);
  return empty_strided(sizes, like.strides(), dtype, layout, device, pinned);
}

at::Tensor& copy(at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  const auto place = torch_place((to.is_cuda() ? to : from).device().index());
  std::vector<Access> accesses;
  if (to.is_cuda()) {
    accesses.push_back(access_of(to, true));
  }
  if (from.is_cuda()) {
    accesses.push_back(access_of(from, false));
  }
  place->run("torch's copy", accesses, [&] {
    const at::AutoDispatchBelowADInplaceOrView below;
    on_host(to).copy_(on_host(from));
  });
  if (to.is_cuda() != from.is_cuda() && !non_blocking) {
    place->wait();
  }
  return to;
}

TORCH_LIBRARY_IMPL(_, CUDA, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_operation>());
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("empty.memory_format", TORCH_FN(empty));
  library.impl("empty_strided", TORCH_FN(empty_strided));
  library.impl("copy_", TORCH_FN(copy));
}

}  // namespace
}  // namespace bluefog::testing
