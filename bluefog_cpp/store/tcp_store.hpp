#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "bluefog_cpp/store.hpp"
#include "bluefog_cpp/store/store_address.hpp"

namespace bluefog::store {

struct TcpStoreOptions {
  enum class Server {
    IsThere,
    MayComeLater,  ///< the first call tries to connect until its deadline
  };

  std::string name = "the store";  ///< for messages
  Server server = Server::IsThere;
  /// Is told, once, why a server that may come later is not there, where more is wrong than that
  /// nobody listens yet: its host has no name, or no route leads to it.
  std::function<void(const std::string& why)> on_absence = {};
  /// How long a call waits for the server's answer beyond its own deadline.
  std::chrono::milliseconds longest_silence = std::chrono::seconds(10);
};

/// A client of a `StoreServer`. Connections are made when first needed, one for each call under
/// way: calls of several threads do not wait for each other.
[[nodiscard]] std::shared_ptr<Store> make_tcp_store(const StoreAddress& address,
                                                    const TcpStoreOptions& options = {});

}  // namespace bluefog::store
