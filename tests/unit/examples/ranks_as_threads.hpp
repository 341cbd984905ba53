#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/settings.hpp"
#include "bluefog_cpp/thread_bootstrap.hpp"

namespace bluefog::examples {

/// Runs `body` on `size` ranks that are threads of this process; rethrows the first rank's
/// exception.
inline void on_ranks(int size, const std::function<void(Context&)>& body) {
  auto bootstraps = make_thread_bootstraps(size);
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(size));
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < errors.size(); ++rank) {
      threads.emplace_back([&errors, &body, rank, own = std::move(bootstraps[rank])]() mutable {
        try {
          const auto context = Context::create(std::move(own), Settings::from_environment());
          body(*context);
        } catch (...) {
          errors[rank] = std::current_exception();
        }
      });
    }
  }
  for (const auto& error : errors) {
    if (error) {
      std::rethrow_exception(error);
    }
  }
}

}  // namespace bluefog::examples
