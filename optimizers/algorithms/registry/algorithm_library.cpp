#include "optimizers/algorithms/registry/algorithm_library.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstddef>
#include <exception>
#include <map>
#include <mutex>
#include <system_error>

#include "bluefog_cpp/error.hpp"
#include "optimizers/algorithm_row.hpp"

namespace bluefog::optimizers {
namespace {

constexpr const char* kEntry = "bluefog_register_algorithms";

std::string last_error() {
  const char* const text = ::dlerror();
  return text == nullptr ? "unknown reason" : text;
}

InvalidArgument refusal(const std::filesystem::path& path, const std::string& problem) {
  return InvalidArgument(fmt::format("load_algorithms, '{}': {}", path.string(), problem));
}

/// Names by handle: the loader gives the same one for the same file.
class Libraries {
 public:
  static Libraries& instance() {
    static Libraries libraries;
    return libraries;
  }

  std::vector<std::string> load(const std::filesystem::path& path) {
    const std::scoped_lock lock(mutex_);
    std::error_code no_path;  // of an empty name
    const std::filesystem::path whole = std::filesystem::absolute(path, no_path);
    if (no_path) {
      throw refusal(path, "expected the name of a shared object, found: " + no_path.message());
    }
    void* const handle = ::dlopen(whole.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      throw refusal(path, "expected a shared object that can be loaded, found: " + last_error());
    }
    // The handle is never closed: rows hold functions of the library.
    if (const auto loaded = names_.find(handle); loaded != names_.end()) {
      return loaded->second;
    }
    const auto enter = reinterpret_cast<void (*)()>(::dlsym(handle, kEntry));
    if (enter == nullptr) {
      throw refusal(
          path, fmt::format("expected a function `extern \"C\" void {}()`, found none", kEntry));
    }
    const std::size_t known = algorithms().size();
    try {
      enter();
    } catch (const InvalidArgument& error) {
      throw refusal(path, error.what());
    } catch (const std::exception&) {
      throw;
    } catch (...) {
      throw refusal(path, fmt::format("expected that {} throws a std::exception, if anything; it "
                                      "has thrown something else",
                                      kEntry));
    }
    std::vector<std::string>& names = names_[handle];
    const std::vector<const AlgorithmRow*> rows = algorithms();
    for (std::size_t i = known; i < rows.size(); ++i) {
      names.push_back(rows[i]->name);
    }
    return names;
  }

 private:
  std::recursive_mutex mutex_;  // a library may load others
  std::map<void*, std::vector<std::string>> names_;
};

}  // namespace

std::vector<std::string> load_algorithms(const std::filesystem::path& path) {
  return Libraries::instance().load(path);
}

}  // namespace bluefog::optimizers
