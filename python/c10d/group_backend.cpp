#include "python/c10d/group_backend.hpp"

#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <utility>

#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/deadline.hpp"
#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/store_bootstrap.hpp"
#include "nn/torch_store.hpp"
#include "python/c10d/completions.hpp"
#include "python/c10d/interpreter_lock.hpp"

namespace bluefog::c10d_backend {

c10::intrusive_ptr<::c10d::Backend> GroupBackend::create(
    const c10::intrusive_ptr<::c10d::Store>& store, const GroupPlace& place) {
  const GroupErrors errors(place.name, place.global_ranks);
  return errors.with([&]() -> c10::intrusive_ptr<::c10d::Backend> {
    LiveGroup::refuse_fork(place);
    const Settings settings = settings_of(place);
    // A group's ranks are torch's to number, whatever a launcher says.
    auto context = Context::create(
        make_store_bootstrap(make_torch_store(store), {.rank = place.rank, .size = place.size},
                             settings, Deadline::after(settings.timeout), &run_signal_handlers),
        settings);
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
      options_(c10::make_intrusive<Options>("bluefog", place.timeout)),
      calls_(*context_, parts_),
      live_(place) {
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
  if (context_->core().engine().is_forked()) {
    return;  // the parent's, as the thread that completes futures is
  }
  live_.leave();
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
  calls_.set_timeout(timeout);
  options_->timeout = timeout;
}

}  // namespace bluefog::c10d_backend
