#include "examples/train_language/byte_text.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstring>

#include "bluefog_cpp/error.hpp"

namespace bluefog::examples {
namespace {

constexpr double kTrainedOn = 0.9;

}  // namespace

ByteText::ByteText(const std::string& text, std::int64_t length, int rank, int ranks)
    : length_(length) {
  const auto count = static_cast<std::int64_t>(text.size());
  const auto all = torch::empty({count}, at::kByte);
  std::memcpy(all.data_ptr(), text.data(), text.size());
  const auto trained_on = static_cast<std::int64_t>(kTrainedOn * static_cast<double>(count));
  const std::int64_t share = trained_on / ranks;
  own_ = all.slice(0, rank * share, (rank + 1) * share);
  test_ = all.slice(0, trained_on);
  if (std::min(own_.numel(), test_.numel()) <= length) {
    throw InvalidArgument(
        fmt::format("--data: expected more than {} bytes for each of {} ranks, and in the last "
                    "tenth, found {} bytes in all",
                    length, ranks, count));
  }
}

Windows ByteText::batch(std::int64_t count, std::uint64_t seed) const {
  auto generator = at::detail::createCPUGenerator(seed);
  return at_places(own_, at::randint(own_.numel() - length_, {count}, generator, at::kLong));
}

std::vector<Windows> ByteText::test_batches(std::int64_t count) const {
  std::vector<Windows> batches;
  const auto places = at::arange(0, test_.numel() - length_, length_, at::kLong);
  for (const at::Tensor& some : places.split(count)) {
    batches.push_back(at_places(test_, some));
  }
  return batches;
}

Windows ByteText::at_places(const at::Tensor& data, const at::Tensor& places) const {
  const auto indices = places.unsqueeze(1) + at::arange(length_ + 1, at::kLong);
  const auto windows = data.take(indices).to(at::kLong);
  return {windows.slice(1, 0, length_), windows.slice(1, 1)};
}

}  // namespace bluefog::examples
