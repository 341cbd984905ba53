#include "bluefog_cpp/bootstrap/mpi/mpi_part.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <atomic>
#include <filesystem>
#include <mutex>
#include <string_view>
#include <system_error>

#include "bluefog_cpp/base/version.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog::mpi {

namespace {

// Open MPI 3 to 5. The part was compiled with its headers.
constexpr const char* kOpenMpi = "libmpi.so.40";
constexpr const char* kMpich = "libmpi.so.12";
constexpr const char* kPart = "libbluefog_mpi.so";

constexpr const char* kWaysOut =
    "install Open MPI (pip install 'bluefog_cpp[mpi]', or Debian's libopenmpi3), or start the ranks "
    "without MPI: by bfrun on one host, or by torchrun";

std::atomic<const MpiFunctions*> loaded{nullptr};
std::mutex loading;

bool has_loaded(const char* name) noexcept {
  void* const library = ::dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
  if (library != nullptr) {
    ::dlclose(library);
  }
  return library != nullptr;
}

std::string last_error() {
  const char* const text = ::dlerror();
  return text == nullptr ? "unknown reason" : text;
}

// Both stay loaded: MPI cannot be started twice, and has threads. Local, as the linker loads what a
// Python extension needs: Open MPI's own plug-ins name the libraries that they stand on.
void* load(const std::string& file, std::vector<std::string>& problems) {
  void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    problems.push_back(last_error());
  }
  return library;
}

void* load_first(const std::vector<std::string>& files, std::vector<std::string>& problems) {
  for (const std::string& file : files) {
    if (void* const library = load(file, problems)) {
      return library;
    }
  }
  return nullptr;
}

[[noreturn]] void refuse(const std::vector<std::string>& problems) {
  throw UnsupportedError(fmt::format(
      "expected Open MPI's library {}, which is loaded when ranks join over MPI, found none that "
      "can be used{}: {}; {}",
      kOpenMpi, has_loaded(kMpich) ? ", and MPICH's libmpi.so.12 in this process" : "",
      fmt::join(problems, "; "), kWaysOut));
}

const MpiFunctions* functions_of(void* part) {
  const auto get = reinterpret_cast<GetMpiFunctions>(::dlsym(part, kMpiFunctionsSymbol));
  const MpiFunctions* const functions = get == nullptr ? nullptr : get();
  const std::string_view version = functions == nullptr ? "unknown" : functions->version;
  if (version != own_version()) {
    throw UnsupportedError(fmt::format(
        "expected {} of bluefog_cpp {}, as the library that loads it, found version {}; install "
        "the package again",
        kPart, own_version(), version));
  }
  return functions;
}

}  // namespace

MpiPlaces MpiPlaces::beside_this_code() {
  MpiPlaces places{.libraries = {}, .parts = {kPart}};
  Dl_info code{};
  std::error_code failed;
  if (::dladdr(reinterpret_cast<const void*>(&has_loaded_mpi), &code) == 0 ||
      code.dli_fname == nullptr) {
    return places;
  }
  const auto folder = std::filesystem::canonical(code.dli_fname, failed).parent_path();
  if (failed) {
    return places;  // a program that was found by PATH
  }
  if (std::filesystem::exists(folder / kPart, failed)) {
    places.parts = {folder / kPart};
  }
  // PREFIX/lib/python3.11/site-packages/bluefog_cpp
  const auto packages = folder.parent_path().filename();
  if (packages == "site-packages" || packages == "dist-packages") {
    places.libraries = {folder.parent_path().parent_path().parent_path() / kOpenMpi};
  }
  return places;
}

const MpiFunctions* loaded_mpi_part() noexcept { return loaded; }

bool has_loaded_mpi() noexcept { return has_loaded(kOpenMpi); }

const MpiFunctions& load_mpi_part(const MpiPlaces& places) {
  const std::scoped_lock lock(loading);
  if (loaded == nullptr) {
    std::vector<std::string> problems;
    if (!has_loaded_mpi()) {
      (void)load_first(places.libraries, problems);
    }
    void* const part = load_first(places.parts, problems);
    if (part == nullptr) {
      refuse(problems);
    }
    loaded = functions_of(part);
  }
  return *loaded;
}

}  // namespace bluefog::mpi
