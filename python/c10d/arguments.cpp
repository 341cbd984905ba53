#include "python/c10d/arguments.hpp"

#include <fmt/format.h>

#include "bluefog_cpp/error.hpp"

namespace bluefog::c10d_backend {

ops::Reduction reduction_of(const CallPlace& place, const ::c10d::ReduceOp& rule,
                            const at::Tensor& tensor) {
  switch (rule.op_) {
    case ::c10d::ReduceOp::SUM:
      return tensor.scalar_type() == at::kBool ? ops::Reduction::Or : ops::Reduction::Sum;
    case ::c10d::ReduceOp::AVG:
      return ops::Reduction::Average;
    case ::c10d::ReduceOp::PRODUCT:
      return ops::Reduction::Product;
    case ::c10d::ReduceOp::MIN:
      return ops::Reduction::Min;
    case ::c10d::ReduceOp::MAX:
      return ops::Reduction::Max;
    case ::c10d::ReduceOp::BAND:
      return ops::Reduction::And;
    case ::c10d::ReduceOp::BOR:
      return ops::Reduction::Or;
    case ::c10d::ReduceOp::BXOR:
      return ops::Reduction::Xor;
    default:
      throw UnsupportedError(fmt::format(
          "{}: expected SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR or BXOR, found PREMUL_SUM, which "
          "NCCL alone has",
          where(place)));
  }
}

BufferView operand_of(const CallPlace& place, const at::Tensor& tensor,
                      const ::c10d::ReduceOp& rule, Order order, Keeps keeps) {
  if (tensor.defined() && tensor.is_complex() && !::c10d::isComplexViewAsRealAllowed(rule)) {
    throw UnsupportedError(
        fmt::format("{}: expected SUM or AVG for complex numbers, found another", where(place)));
  }
  return values_of(place, tensor, order, keeps);
}

void check_count(const CallPlace& place, std::string_view what, std::size_t expected,
                 std::size_t found) {
  if (expected != found) {
    throw InvalidArgument(
        fmt::format("{}: {}: expected {} tensors, found {}", where(place), what, expected, found));
  }
}

void check_most(const CallPlace& place, std::string_view what, std::size_t most,
                std::size_t found) {
  if (found > most) {
    throw InvalidArgument(fmt::format("{}: {}: expected at most {} in one call, found {}",
                                      where(place), what, most, found));
  }
}

int root_of(const CallPlace& place, std::int64_t root, int size) {
  if (root < 0 || root >= size) {
    throw InvalidArgument(
        fmt::format("{}: expected a root in 0 to {}, found {}", where(place), size - 1, root));
  }
  return static_cast<int>(root);
}

BufferView part_of(const CallPlace& place, const at::Tensor& part, const at::Tensor& like,
                   Keeps keeps) {
  const BufferView view = bytes_of(place, part, Order::ByRows, keeps);
  check_same_dtype(place, part, like);
  return view;
}

std::vector<ConstBufferView> as_inputs(const std::vector<BufferView>& views) {
  return {views.begin(), views.end()};
}

}  // namespace bluefog::c10d_backend
