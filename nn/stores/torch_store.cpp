#include "nn/torch_store.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bluefog_cpp/error.hpp"

namespace bluefog {
namespace {

using std::chrono::milliseconds;

/// Stores name where in torch's sources they failed, below what failed.
std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

template <typename Call>
auto reach(const Call& call) {
  try {
    return call();
  } catch (const std::exception& error) {
    throw TransportError(first_line(error.what()));
  }
}

class TorchStore final : public Store {
 public:
  explicit TorchStore(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}

  void set(const std::string& key, std::span<const std::byte> value, Deadline) override {
    const auto* const begin = reinterpret_cast<const std::uint8_t*>(value.data());
    reach([&] { store_->set(key, std::vector<std::uint8_t>(begin, begin + value.size())); });
  }

  [[nodiscard]] std::optional<Bytes> get(const std::string& key, Deadline deadline) override {
    if (!is_here(key) && !wait_for(key, deadline)) {
      return std::nullopt;
    }
    const auto value = reach([&] { return store_->get(key); });
    const auto* const begin = reinterpret_cast<const std::byte*>(value.data());
    return Bytes(begin, begin + value.size());
  }

  std::int64_t add(const std::string& key, std::int64_t amount, Deadline) override {
    return reach([&] { return store_->add(key, amount); });
  }

  void remove(const std::string& key, Deadline) override {
    reach([&] { return store_->deleteKey(key); });
  }

  [[nodiscard]] std::string description() const override { return "torch's store"; }

 private:
  bool is_here(const std::string& key) {
    return reach([&] { return store_->check({key}); });
  }

  // Looks again and again: a wait that times out is an exception like others, logs a warning, and
  // holds up other callers of its store.
  bool wait_for(const std::string& key, Deadline deadline) {
    constexpr milliseconds kLongest{10};
    milliseconds pause{1};
    while (!deadline.is_set() || Deadline::Clock::now() < deadline.when()) {
      std::this_thread::sleep_for(pause);
      if (is_here(key)) {
        return true;
      }
      pause = std::min(2 * pause, kLongest);
    }
    return false;
  }

  c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace

std::shared_ptr<Store> make_torch_store(c10::intrusive_ptr<c10d::Store> store) {
  if (!store) {
    throw InvalidArgument("make_torch_store: expected a store of torch, found a null pointer");
  }
  return std::make_shared<TorchStore>(std::move(store));
}

}  // namespace bluefog
