#include "python/c10d/tcp_store.hpp"

#include <torch/csrc/utils/pybind.h>

#include <exception>
#include <future>
#include <stdexcept>
#include <thread>
#include <utility>

namespace bluefog::c10d_backend {

c10::intrusive_ptr<::c10d::TCPStore> open_tcp_store(const std::string& host, std::uint16_t port,
                                                    bool keeps_it,
                                                    std::chrono::milliseconds timeout) {
  using TcpStore = c10::intrusive_ptr<::c10d::TCPStore>;
  constexpr std::chrono::seconds kGrace{2};  // torch's own words come first, and say more
  constexpr std::chrono::milliseconds kLook{20};
  constexpr std::chrono::hours kNever{24 * 365};
  const bool ends = timeout.count() > 0;
  ::c10d::TCPStoreOptions options;
  options.port = port;
  options.isServer = keeps_it;
  options.waitWorkers = false;
  options.multiTenant = true;
  options.timeout = ends ? timeout : kNever;

  std::packaged_task<TcpStore()> open(
      [host, options] { return c10::make_intrusive<::c10d::TCPStore>(host, options); });
  std::future<TcpStore> store = open.get_future();
  std::thread(std::move(open)).detach();
  const auto end = std::chrono::steady_clock::now() + timeout + kGrace;
  const auto is_there = [&] {
    const py::gil_scoped_release released;
    return store.wait_for(kLook) == std::future_status::ready;
  };
  while (!is_there()) {
    if (PyErr_CheckSignals() != 0) {
      throw py::error_already_set();
    }
    if (ends && std::chrono::steady_clock::now() > end) {
      return {};
    }
  }
  try {
    return store.get();
  } catch (const std::exception& error) {
    const std::string words = error.what();
    throw std::runtime_error(words.substr(0, words.find('\n')));
  }
}

}  // namespace bluefog::c10d_backend
