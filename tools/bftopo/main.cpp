#include <fmt/format.h>

#include <cstdio>
#include <exception>

#include "tools/bftopo/commands.hpp"

int main(int argc, char** argv) {
  constexpr int kUsageCode = 2;
  try {
    return bluefog::bftopo::run({argv + 1, argv + argc});
  } catch (const bluefog::InvalidArgument& error) {
    fmt::print(stderr, "bftopo: {}\n(bftopo --help lists the commands)\n", error.what());
    return kUsageCode;
  } catch (const std::exception& error) {
    fmt::print(stderr, "bftopo: {}\n", error.what());
    return 1;
  }
}
