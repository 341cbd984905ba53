#include "python/c10d/group_backend.hpp"

#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <optional>
#include <utility>

#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/settings.hpp"
#include "bluefog_cpp/store_bootstrap.hpp"
#include "nn/torch_store.hpp"
#include "python/c10d/completions.hpp"
#include "python/c10d/interpreter_lock.hpp"

namespace bluefog::c10d_backend {
namespace {

Settings settings_of(const GroupPlace& place) {
  Settings settings = Settings::from_environment();
  settings.timeout = place.timeout;
  settings.timeout_name = "the timeout of its process group";
  settings.expect_size = 0;  // said of all ranks, of whom these may be some
  // Contexts of one process write files of their own.
  for (std::string* const prefix : {&settings.timeline, &settings.flight_recorder}) {
    if (!prefix->empty()) {
      *prefix += "c10d_" + place.name + "_";
    }
  }
  settings.notices.clear();  // the program's own context tells them
  return settings;
}

}  // namespace

c10::intrusive_ptr<::c10d::Backend> GroupBackend::create(
    const c10::intrusive_ptr<::c10d::Store>& store, const GroupPlace& place) {
  const GroupErrors errors(place.name, place.global_ranks);
  return errors.with([&]() -> c10::intrusive_ptr<::c10d::Backend> {
    auto context =
        Context::create(make_torch_store(store), {.rank = place.rank, .size = place.size},
                        settings_of(place), &run_signal_handlers);
    context->set_interrupt_check(&run_signal_handlers);
    return c10::make_intrusive<GroupBackend>(std::move(context), place);
  });
}

GroupBackend::GroupBackend(std::shared_ptr<Context> context, const GroupPlace& place)
    : Backend(place.rank, place.size),
      context_(std::move(context)),
      parts_(std::make_shared<const GroupParts>(
          GroupParts{.rank = place.rank,
                     .errors = GroupErrors(place.name, place.global_ranks),
                     .completions = std::make_shared<Completions>()})),
      options_(c10::make_intrusive<Options>("bluefog", place.timeout)) {
  init();
}

GroupBackend::~GroupBackend() {
  if (context_->core().engine().is_forked()) {
    new std::shared_ptr<const GroupParts>(parts_);  // its thread is the parent's
    return;
  }
  close();
}

void GroupBackend::close() noexcept {
  const WithoutInterpreterLock released;
  context_->close();
  parts_->completions->stop();
}

at::Tensor GroupBackend::allocateTensor(long size, at::TensorOptions options) {
  return parts_->errors.with([&] {
    const auto dtype = c10::typeMetaToScalarType(options.dtype());
    if (size < 0 || !options.device().is_cpu()) {
      throw InvalidArgument(fmt::format(
          "rank {}, allocate_tensor: expected a size of 0 or more on the CPU, found {} on {}",
          getRank(), size, options.device().str()));
    }
    auto memory =
        context_->allocate_shared(static_cast<std::size_t>(size) * c10::elementSize(dtype));
    std::byte* const data = memory.get();
    return at::from_blob(
        data, {size}, [kept = std::move(memory)](void*) {}, options);
  });
}

void GroupBackend::setTimeout(std::chrono::milliseconds timeout) {
  timeout_.store(timeout);
  options_->timeout = timeout;
}

void GroupBackend::refuse(const std::exception& error) {
  context_->core().engine().refuse(error.what());
}

WorkHandle GroupBackend::started(const Manner& manner, Tensors result,
                                 c10::function_ref<void(Calls&)> start, int source) {
  ++calls_;
  const auto own = timeout_.load();
  const auto timeout = manner.timeout.count() > 0 ? manner.timeout : own;
  return parts_->errors.with([&]() -> WorkHandle {
    std::optional<Engine::Presence> presence;
    if (manner.is_blocking) {
      presence.emplace(context_->core().engine());
    }
    Calls calls;
    start(calls);
    auto work = c10::make_intrusive<GroupWork>(parts_, manner.type, std::move(calls),
                                               std::move(result), timeout, source);
    if (manner.is_blocking) {
      work->wait({});
    }
    return work;
  });
}

}  // namespace bluefog::c10d_backend
