#include <fmt/format.h>

#include <string>

#include "tools/bfrun/build_info.hpp"

namespace bluefog::bfrun {
namespace {

/// Vector instructions of this machine, of which the kernels choose the best when they run.
std::string cpu_features() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f")) {
    return "AVX-512";
  }
  if (__builtin_cpu_supports("avx2")) {
    return "AVX2";
  }
  if (__builtin_cpu_supports("sse4.2")) {
    return "SSE4";
  }
  return "SSE2";
#elif defined(__aarch64__)
  return "NEON";
#else
  return "unknown";
#endif
}

}  // namespace

std::string describe_build(const std::string& mpirun) {
  const BuildInfo& info = build_info();
  return fmt::format(
      "bluefog_cpp {}\n"
      "  build       {}, {}\n"
      "  transports  {}\n"
      "  MPI         {}\n"
      "  mpirun      {}\n"
      "  LibTorch    {}\n"
      "  CUDA, NCCL  {}\n"
      "  SIMD        chosen when a program runs; this machine: {}\n",
      info.version, info.build_type, info.compiler, info.transports, info.mpi, mpirun, info.torch,
      info.cuda, cpu_features());
}

}  // namespace bluefog::bfrun
