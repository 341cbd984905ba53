#include <cstdio>

#include "bluefog_cpp/base/dtype.hpp"
#include "bluefog_cpp/base/error.hpp"

int main() {
  std::printf("bluefog_cpp is installed\n");
  return 0;
}
