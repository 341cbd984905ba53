#pragma once

#include <functional>
#include <memory>
#include <string>

#include "bluefog_cpp/store/store_address.hpp"

namespace bluefog::store {

/// A store that serves clients over TCP, on a thread of its own, until the object goes.
///
/// Who connects and does not greet with the secret within 5 s, sends half a greeting, or a request
/// beyond the limits, is dropped, and disturbs nobody. It keeps at most 2 GiB; a request beyond is
/// answered, and is the client's error. Where no descriptor is left for a client, it is told so:
/// one is kept back for that.
class StoreServer {
 public:
  /// Listens at `address`; with port 0 at one that is free. Clients may connect from now on, and
  /// are served from `start` on.
  /// @throws TransportError that names the address where that cannot be had.
  explicit StoreServer(StoreAddress address);
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;
  ~StoreServer();

  /// The address it listens on, with the port.
  [[nodiscard]] const StoreAddress& address() const noexcept { return address_; }

  /// Begins to serve. A process that forks and executes does that before: its children would get
  /// connections.
  /// @param needs how many descriptors this process needs ("192 suffice for 64 ranks"), for a
  ///   client that finds none left.
  /// @throws TransportError where the system has no thread left.
  void start(const std::string& needs = {});

  /// Sets a value, as a client would, once the server has been started. Does not wait for it.
  void set(const std::string& key, const std::string& value);

  /// Calls `listener` with each value that a client sets at `key`, on the thread that serves. Before
  /// `start`; one key.
  void listen(std::string key, std::function<void(const std::string& value)> listener);

 private:
  class Impl;

  StoreAddress address_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace bluefog::store
