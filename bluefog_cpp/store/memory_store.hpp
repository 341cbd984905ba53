#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "bluefog_cpp/store.hpp"

namespace bluefog {

/// A store in this process, for ranks that are threads. Each rank has a view of its own.
class MemoryStore : public Store {
 public:
  struct Contents {
    std::mutex mutex;
    std::condition_variable changed;
    std::map<std::string, Bytes> values;
    std::map<std::string, std::int64_t> numbers;
  };

  explicit MemoryStore(std::shared_ptr<Contents> contents) : contents_(std::move(contents)) {}

  void set(const std::string& key, std::span<const std::byte> value, Deadline) override {
    const std::lock_guard lock(contents_->mutex);
    contents_->values[key].assign(value.begin(), value.end());
    contents_->changed.notify_all();
  }
  [[nodiscard]] std::optional<Bytes> get(const std::string& key, Deadline deadline) override {
    std::unique_lock lock(contents_->mutex);
    const auto is_there = [&] { return contents_->values.contains(key); };
    if (!contents_->changed.wait_until(lock, deadline.when(), is_there)) {
      return std::nullopt;
    }
    return contents_->values[key];
  }
  std::int64_t add(const std::string& key, std::int64_t amount, Deadline) override {
    const std::lock_guard lock(contents_->mutex);
    return contents_->numbers[key] += amount;
  }
  void remove(const std::string& key, Deadline) override {
    const std::lock_guard lock(contents_->mutex);
    contents_->values.erase(key);
  }
  [[nodiscard]] std::string description() const override { return "a store of the test"; }

 private:
  std::shared_ptr<Contents> contents_;
};

}  // namespace bluefog
