// NCCL's library behind the table.
#include <fmt/format.h>
#include <nccl.h>

#include <bit>
#include <string>
#include <string_view>
#include <vector>

#include "bluefog_cpp/device/cuda/shared_object.hpp"
#include "bluefog_cpp/device/nccl/nccl_api.hpp"
#include "bluefog_cpp/error.hpp"

#define BF_NCCL_FUNCTION(name) decltype(&::name) name##_ = nullptr
#define BF_BIND(name) library.bind(name##_, #name)

namespace bluefog::gpu {
namespace {

static_assert(sizeof(ncclUniqueId) == sizeof(NcclId));

class NcclLibrary final : public NcclApi {
 public:
  explicit NcclLibrary(const SharedObject& library) {
    BF_BIND(ncclGetVersion);
    BF_BIND(ncclGetErrorString);
    BF_BIND(ncclGetLastError);
    BF_BIND(ncclGetUniqueId);
    BF_BIND(ncclCommInitRank);
    BF_BIND(ncclCommDestroy);
    BF_BIND(ncclCommAbort);
    BF_BIND(ncclCommGetAsyncError);
    BF_BIND(ncclGroupStart);
    BF_BIND(ncclGroupEnd);
    BF_BIND(ncclSend);
    BF_BIND(ncclRecv);
    // Headers before 2.27 and 2.28 have no such names, and libraries no such functions.
#ifdef NCCL_SHRINK_ABORT
    library.bind_if_there(ncclCommShrink_, "ncclCommShrink");
#endif
#ifdef NCCL_REVOKE_DEFAULT
    library.bind_if_there(ncclCommRevoke_, "ncclCommRevoke");
#endif
  }

  int version() override {
    int version = 0;
    check(ncclGetVersion_(&version), "ncclGetVersion");
    return version;
  }

  NcclId make_id() override {
    ncclUniqueId id;
    check(ncclGetUniqueId_(&id), "ncclGetUniqueId");
    return std::bit_cast<NcclId>(id);
  }

  CommHandle init(int size, const NcclId& id, int rank) override {
    ncclComm_t comm = nullptr;
    const ncclResult_t result =
        ncclCommInitRank_(&comm, size, std::bit_cast<ncclUniqueId>(id), rank);
    if (result == ncclInProgress) {
      (void)ncclCommAbort_(comm);
      throw UnsupportedError(
          "expected NCCL to make communicators that block, found that it does not: "
          "NCCL_COMM_BLOCKING is 0");
    }
    check(result, "ncclCommInitRank");
    return comm;
  }

  void destroy(CommHandle comm) override {
    check(ncclCommDestroy_(static_cast<ncclComm_t>(comm)), "ncclCommDestroy");
  }

  void abort(CommHandle comm) override {
    check(ncclCommAbort_(static_cast<ncclComm_t>(comm)), "ncclCommAbort");
  }

  void revoke([[maybe_unused]] CommHandle comm) override {
#ifdef NCCL_REVOKE_DEFAULT
    if (ncclCommRevoke_ != nullptr) {
      check(ncclCommRevoke_(static_cast<ncclComm_t>(comm), NCCL_REVOKE_DEFAULT), "ncclCommRevoke");
      return;
    }
#endif
    throw_too_old("ncclCommRevoke", "2.28");
  }

  CommHandle shrink([[maybe_unused]] CommHandle comm,
                    [[maybe_unused]] std::span<const int> gone) override {
#ifdef NCCL_SHRINK_ABORT
    if (ncclCommShrink_ != nullptr) {
      std::vector<int> excluded(gone.begin(), gone.end());  // NCCL's signature has no const
      ncclComm_t shrunk = nullptr;
      check(ncclCommShrink_(static_cast<ncclComm_t>(comm), excluded.data(),
                            static_cast<int>(excluded.size()), &shrunk, nullptr, NCCL_SHRINK_ABORT),
            "ncclCommShrink");
      return shrunk;
    }
#endif
    throw_too_old("ncclCommShrink", "2.27");
  }

  std::optional<std::string> async_error(CommHandle comm) override {
    ncclResult_t state = ncclSuccess;
    check(ncclCommGetAsyncError_(static_cast<ncclComm_t>(comm), &state), "ncclCommGetAsyncError");
    return state == ncclSuccess || state == ncclInProgress ? std::nullopt
                                                           : std::optional(text_of(state, comm));
  }

  void group_start() override { check(ncclGroupStart_(), "ncclGroupStart"); }
  void group_end() override { check(ncclGroupEnd_(), "ncclGroupEnd"); }

  void send(const void* data, std::size_t bytes, int peer, CommHandle comm,
            StreamHandle stream) override {
    check(ncclSend_(data, bytes, ncclUint8, peer, static_cast<ncclComm_t>(comm),
                    static_cast<cudaStream_t>(stream)),
          "ncclSend");
  }

  void receive(void* data, std::size_t bytes, int peer, CommHandle comm,
               StreamHandle stream) override {
    check(ncclRecv_(data, bytes, ncclUint8, peer, static_cast<ncclComm_t>(comm),
                    static_cast<cudaStream_t>(stream)),
          "ncclRecv");
  }

 private:
  [[noreturn]] void throw_too_old(std::string_view call, std::string_view since) {
    throw UnsupportedError(
        fmt::format("{}: expected NCCL {} or newer, where this library was built "
                    "and at run time, found {} and {}",
                    call, since, NCCL_VERSION_CODE, version()));
  }

  [[nodiscard]] std::string text_of(ncclResult_t result, CommHandle comm) const {
    const char* const detail = ncclGetLastError_(static_cast<ncclComm_t>(comm));
    return fmt::format("{}{}{}", ncclGetErrorString_(result),
                       detail == nullptr || *detail == '\0' ? "" : ": ",
                       detail == nullptr ? "" : detail);
  }

  void check(ncclResult_t result, std::string_view call) const {
    if (result != ncclSuccess) {
      throw NcclError(static_cast<int>(result),
                      fmt::format("{}: {}", call, text_of(result, nullptr)));
    }
  }

  BF_NCCL_FUNCTION(ncclGetVersion);
  BF_NCCL_FUNCTION(ncclGetErrorString);
  BF_NCCL_FUNCTION(ncclGetLastError);
  BF_NCCL_FUNCTION(ncclGetUniqueId);
  BF_NCCL_FUNCTION(ncclCommInitRank);
  BF_NCCL_FUNCTION(ncclCommDestroy);
  BF_NCCL_FUNCTION(ncclCommAbort);
  BF_NCCL_FUNCTION(ncclCommGetAsyncError);
  BF_NCCL_FUNCTION(ncclGroupStart);
  BF_NCCL_FUNCTION(ncclGroupEnd);
  BF_NCCL_FUNCTION(ncclSend);
  BF_NCCL_FUNCTION(ncclRecv);
#ifdef NCCL_SHRINK_ABORT
  BF_NCCL_FUNCTION(ncclCommShrink);
#endif
#ifdef NCCL_REVOKE_DEFAULT
  BF_NCCL_FUNCTION(ncclCommRevoke);
#endif
};

}  // namespace

std::shared_ptr<NcclApi> load_nccl(const std::string& library) {
  if (!library.empty()) {
    return std::make_shared<NcclLibrary>(SharedObject(library));
  }
  // A library that is loaded already is found by its soname, wherever it came from.
  try {
    return std::make_shared<NcclLibrary>(SharedObject("libnccl.so.2"));
  } catch (const UnsupportedError&) {
    constexpr std::string_view kFoundByBuild = BLUEFOG_NCCL_LIBRARY;
    if (kFoundByBuild.empty()) {
      throw;
    }
    return std::make_shared<NcclLibrary>(SharedObject(std::string(kFoundByBuild)));
  }
}

}  // namespace bluefog::gpu
