#include "optimizers/round_calls.hpp"

#include "bluefog_cpp/context/context_core.hpp"

namespace bluefog::optimizers {

void refuse_calls(Context& context, std::size_t count, std::string_view reason) {
  for (; count > 0; --count) {
    context.core().engine().refuse(reason);
  }
}

}  // namespace bluefog::optimizers
