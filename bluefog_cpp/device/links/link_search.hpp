#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "bluefog_cpp/bootstrap.hpp"
#include "bluefog_cpp/deadline.hpp"
#include "bluefog_cpp/device/device_link.hpp"
#include "bluefog_cpp/device/host_staging.hpp"
#include "bluefog_cpp/device/libraries.hpp"
#include "bluefog_cpp/device/links/loaded_kernels.hpp"
#include "bluefog_cpp/log.hpp"
#include "bluefog_cpp/machine_layout.hpp"
#include "bluefog_cpp/settings.hpp"

namespace bluefog {

namespace shm {
class HostArena;
}

/// A search of all ranks together for a link that serves the devices of all: by NCCL, or by copies
/// between ranks of one host.
class LinkSearch {
 public:
  /// The parts of the rank's channel that a link stands on, and the settings for it.
  struct Parts {
    /// NCCL is loaded into it, or must be there.
    gpu::Libraries& libraries;
    enum class Nccl : std::uint8_t { Load, AsGiven } nccl = Nccl::AsGiven;
    int device = 0;
    gpu::StreamHandle stream = nullptr;
    std::shared_ptr<gpu::HostStaging> staging{};
    gpu::LoadedKernels& kernels;
    const Settings& settings;
    const MachineLayout& hosts;
    /// The memory that the ranks of this host share; null where they share none.
    std::shared_ptr<shm::HostArena> arena{};
    Logger log;
  };

  LinkSearch(Bootstrap& bootstrap, const Parts& parts, Deadline deadline)
      : bootstrap_(bootstrap), parts_(parts), deadline_(deadline) {}

  /// Collective, once. Rank 0 logs which link was found, and why no other one.
  /// @return null, on all ranks, where none serves all of them.
  [[nodiscard]] std::shared_ptr<DeviceLink> find();

 private:
  void log_way(bool in_vain) const;
  /// Notes why a link that was tried does not serve, if it does not.
  /// @return whether it does.
  bool note(const char* what, const std::string& obstacle);
  /// Collective. @return why the kernels that calls need cannot be used; empty where they can.
  [[nodiscard]] std::string load_kernels();
  /// Collective where ranks are threads. @return which of them are on one device; empty where none
  /// are.
  [[nodiscard]] std::string threads_that_share_a_device();
  /// Collective. @return why NCCL is not used; empty where it is.
  [[nodiscard]] std::string join_by_nccl();
  /// Collective. @return why copies between devices are not used; empty where they are.
  [[nodiscard]] std::string join_peers();

  Bootstrap& bootstrap_;
  Parts parts_;
  Deadline deadline_;
  std::shared_ptr<DeviceLink> link_;
  /// Obstacles, and the setting that narrows the choice.
  std::string why_;
};

}  // namespace bluefog
