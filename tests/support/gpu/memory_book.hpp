#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace bluefog::testing {

/// The number of operations of each queue that come before.
using Clock = std::map<int, std::uint64_t>;

/// Takes the later of both, queue by queue.
void join(Clock& clock, const Clock& other);

/// Memory that an operation of a queue reads or writes.
struct Access {
  const void* memory = nullptr;
  std::size_t bytes = 0;
  bool writes = false;
};

/// Keeps the stand-in's device memory, and finds mistakes that a device would not report: accesses
/// outside of it, after it was freed, or by two queues that no event orders. Thread-safe.
class MemoryBook {
 public:
  ~MemoryBook();

  [[nodiscard]] void* allocate(std::size_t bytes);
  void free(void* memory);

  /// Enqueues the `number`th operation of `queue`, after all that `clock` holds.
  /// @param what for messages: "ncclSend".
  void enqueue(int queue, std::uint64_t number, const Clock& clock,
               const std::vector<Access>& accesses, const std::string& what);
  /// Marks that operation as run.
  void finish(int queue, std::uint64_t number);

  void report(const std::string& mistake);
  /// The mistakes so far.
  [[nodiscard]] std::vector<std::string> mistakes() const;

 private:
  struct Use {
    const std::byte* begin = nullptr;
    const std::byte* end = nullptr;
    bool writes = false;
    int queue = 0;
    std::uint64_t number = 0;
    bool finished = false;
    std::string what;
  };
  struct Block {
    std::unique_ptr<std::byte[]> memory;
    std::size_t bytes = 0;
    bool freed = false;
    std::vector<Use> uses;
  };

  [[nodiscard]] Block* find(const void* memory, std::size_t bytes);
  void use(Block& block, const Use& use, const Clock& clock);

  mutable std::mutex mutex_;
  std::map<const std::byte*, Block> blocks_;
  std::vector<std::string> mistakes_;
};

}  // namespace bluefog::testing
