#include "ops/calls/reduction_rule.hpp"

#include <fmt/format.h>

#include "bluefog_cpp/error.hpp"
#include "ops/calls/validation.hpp"

namespace bluefog::ops {

Fold fold_of(Reduction reduction) noexcept {
  switch (reduction) {
    case Reduction::Sum:
      return Fold::Sum;
    case Reduction::Average:
      return Fold::Mean;
    case Reduction::Min:
      return Fold::Min;
    case Reduction::Max:
      return Fold::Max;
    case Reduction::Product:
      return Fold::Product;
    case Reduction::And:
      return Fold::And;
    case Reduction::Or:
      return Fold::Or;
    case Reduction::Xor:
      return Fold::Xor;
  }
  return Fold::Sum;
}

void check_reduction(const Context& context, OpKind kind, Reduction reduction,
                     const ConstBufferView& buffer) {
  if (reduction > Reduction::Xor) {
    throw InvalidArgument(fmt::format("{}: reduction: expected one of Reduction, found number {}",
                                      where(context, kind), static_cast<int>(reduction)));
  }
  if (reduction == Reduction::Average) {
    check_floating(context, kind, buffer.dtype);
  }
  const Fold rule = fold_of(reduction);
  if (const auto expected = why_not_folded(rule, buffer.dtype); !expected.empty()) {
    throw InvalidArgument(fmt::format("{}: expected {}, found {}", where(context, kind), expected,
                                      name_of(buffer.dtype)));
  }
  if (buffer.device.kind != DeviceKind::Cpu && rule > Fold::Mean) {
    throw UnsupportedError(
        fmt::format("{}: expected a sum or an average of buffers on {}, found {}",
                    where(context, kind), text_of(buffer.device), name_of(rule)));
  }
}

}  // namespace bluefog::ops
