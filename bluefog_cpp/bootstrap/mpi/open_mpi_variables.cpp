#include "bluefog_cpp/bootstrap/mpi/open_mpi_variables.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>

namespace bluefog::mpi {

namespace {

// The folder below which Open MPI lies; empty where its texts are not there, as with Debian's.
std::filesystem::path prefix_of_open_mpi() {
  Dl_info library{};
  void* const symbol = ::dlsym(RTLD_DEFAULT, "MPI_Init_thread");
  if (symbol == nullptr || ::dladdr(symbol, &library) == 0 || library.dli_fname == nullptr) {
    return {};
  }
  std::error_code failed;
  const auto file = std::filesystem::canonical(library.dli_fname, failed);
  const auto prefix = file.parent_path().parent_path();
  const bool has_texts = !failed && std::filesystem::exists(prefix / "share" / "openmpi", failed);
  return has_texts ? prefix : std::filesystem::path();
}

bool offers_native_among_others(std::string_view modes) {
  return modes != "native" &&
         ("," + std::string(modes) + ",").find(",native,") != std::string::npos;
}

}  // namespace

OpenMpiVariables::OpenMpiVariables() {
  const std::filesystem::path prefix = prefix_of_open_mpi();
  if (prefix.empty()) {
    return;
  }
  set("OPAL_PREFIX", prefix);
  set("PMIX_PREFIX", prefix);
  const char* const modes = std::getenv("PMIX_SECURITY_MODE");
  if (modes != nullptr && offers_native_among_others(modes)) {
    set("PMIX_MCA_psec", "native");
  }
}

OpenMpiVariables::~OpenMpiVariables() {
  for (const char* const name : set_) {
    ::unsetenv(name);
  }
}

void OpenMpiVariables::set(const char* name, const std::string& value) {
  if (std::getenv(name) == nullptr && ::setenv(name, value.c_str(), 1) == 0) {
    set_.push_back(name);
  }
}

}  // namespace bluefog::mpi
