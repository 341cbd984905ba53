#pragma once

#include <memory>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "bluefog_cpp/store.hpp"

namespace bluefog::c10d_backend {

/// A store of torch as one of this library. Called without the interpreter's lock, which a store that
/// is written in Python takes by itself.
[[nodiscard]] std::shared_ptr<Store> make_torch_store(c10::intrusive_ptr<::c10d::Store> store);

}  // namespace bluefog::c10d_backend
