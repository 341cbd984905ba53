#include "ops/calls/series.hpp"

#include <fmt/format.h>

#include <utility>

#include "bluefog_cpp/context/context_core.hpp"

namespace bluefog::ops {
namespace {

class Series final : public Operation {
 public:
  Series(OpKind kind, std::shared_ptr<const Operations> parts)
      : parts_(*parts),
        name_(fmt::format("{} tensors", parts_.size())),
        envelope_(Envelope::make(
            kind, parts_.empty() ? Dtype::UInt8 : parts_.front()->envelope().dtype, -1, name_)) {
    keep_alive(std::move(parts));
  }

  [[nodiscard]] const Envelope& envelope() const noexcept override { return envelope_; }

  bool next(ExchangeSpec& spec) override {
    while (at_ < parts_.size()) {
      if (!is_at_last_ && parts_[at_]->next(spec)) {
        is_at_last_ = spec.last;
        spec.last = is_at_last_ && at_ + 1 == parts_.size();
        return true;
      }
      spec = {};
      ++at_;
      is_at_last_ = false;
    }
    return false;
  }

  void receive(std::size_t offset, std::size_t bytes, std::span<const Piece> pieces) override {
    parts_[at_]->receive(offset, bytes, pieces);
  }

 private:
  /// Kept by the call until it has ended: nothing looks at them later.
  const Operations& parts_;
  std::string name_;
  Envelope envelope_;
  std::size_t at_ = 0;
  /// The exchange under way is the last one of its operation.
  bool is_at_last_ = false;
};

}  // namespace

Work submit_series(Context& context, OpKind kind, Operations parts) {
  Engine& engine = context.core().engine();
  return engine.submit(
      engine.make_operation<Series>(kind, std::make_shared<const Operations>(std::move(parts))));
}

}  // namespace bluefog::ops
