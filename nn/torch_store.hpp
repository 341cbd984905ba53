#pragma once

#include <memory>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "bluefog_cpp/store_bootstrap.hpp"

namespace bluefog {

/// A store of torch (`c10d::TCPStore`, `FileStore`, `HashStore`, …) as one in which ranks meet: a
/// C++ program of torch's starts without MPI and without a launcher of this library.
///
/// @code
/// c10d::TCPStoreOptions options;
/// options.port = 29500;
/// options.isServer = rank == 0;
/// auto store = c10::make_intrusive<c10d::TCPStore>("node1", options);
/// auto context = Context::create(make_torch_store(store), {.rank = rank, .size = size});
/// @endcode
///
/// Errors: what torch's store throws becomes TransportError, with the first line of its words. Cost:
/// a wait looks at the store every 1 to 10 ms, since a wait of torch's holds up other callers.
/// @throws InvalidArgument for a null pointer.
[[nodiscard]] std::shared_ptr<Store> make_torch_store(c10::intrusive_ptr<c10d::Store> store);

}  // namespace bluefog
