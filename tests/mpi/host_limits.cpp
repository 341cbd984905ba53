// What of a process may keep ranks of a host from sharing memory. By its first argument:
//   addresses     after three contexts a GiB of addresses must be left within the limit
//   descriptors   every descriptor that the soft limit allows is in use before the context begins
//   plain         nothing
//   stranger      no rank, but a process of another user that connects to whatever ranks listen on
// Each rank prints by which transport it reaches the next one.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "bluefog_cpp/bootstrap/default_bootstrap.hpp"
#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/deadline.hpp"
#include "ops/collectives.hpp"

namespace {

using namespace bluefog;

/// Connects to each new name, says half of a greeting, and keeps the connection. Never returns
/// unless it cannot become another user.
int bother_everybody() {
  constexpr uid_t kNobody = 65534;
  constexpr std::string_view kMark = "@bluefog-";
  if (::setgid(kNobody) != 0 || ::setuid(kNobody) != 0) {
    return 77;
  }
  std::puts("ready");
  std::fflush(stdout);
  std::set<std::string> known;
  while (true) {
    std::ifstream file("/proc/net/unix");
    for (std::string line; std::getline(file, line);) {
      const auto found = line.find(kMark);
      if (found == std::string::npos || !known.insert(line.substr(found + 1)).second) {
        continue;
      }
      const std::string name = line.substr(found + 1);
      sockaddr_un address{};
      address.sun_family = AF_UNIX;
      std::memcpy(address.sun_path + 1, name.data(),
                  std::min(name.size(), sizeof(address.sun_path) - 1));
      const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
      for (int i = 0; i < 4; ++i) {  // never closed
        const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (::connect(socket, reinterpret_cast<const sockaddr*>(&address), length) == 0) {
          (void)::send(socket, "half", 4, MSG_NOSIGNAL);
        }
      }
    }
  }
}

void use_all_descriptors() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_cur, 256);
  ::setrlimit(RLIMIT_NOFILE, &limit);
  while (::open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0) {
  }
}

bool has_gib_of_addresses() {
  constexpr std::size_t kGiB = std::size_t{1} << 30U;
  void* const data =
      ::mmap(nullptr, kGiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return data != MAP_FAILED && ::munmap(data, kGiB) == 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc > 1 ? argv[1] : "plain";
  if (what == "stranger") {
    return bother_everybody();
  }
  const Settings settings = Settings::from_environment();
  const auto bootstrap = make_default_bootstrap(settings, Deadline::after(settings.timeout));
  if (what == "descriptors") {
    use_all_descriptors();
  }
  const auto context = Context::create(bootstrap, settings);
  std::vector<std::shared_ptr<Context>> copies;
  if (what == "addresses") {
    copies = {context->duplicate(), context->duplicate()};
  }
  std::vector<float> values(100'000, 1.0F);
  ops::allreduce(*context, {.data = values.data(), .count = 100'000},
                 {.reduction = ops::Reduction::Sum});
  const bool is_right = values.back() == static_cast<float>(context->size());
  const bool has_room = what != "addresses" || has_gib_of_addresses();
  std::printf("rank %d: %s%s%s\n", context->rank(),
              std::string(context->transport_to((context->rank() + 1) % context->size())).c_str(),
              is_right ? "" : ", wrong values", has_room ? "" : ", no addresses are left");
  return is_right && has_room ? 0 : 1;
}
