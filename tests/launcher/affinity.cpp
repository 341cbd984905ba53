// Prints `RANK:` and the hardware threads that this process may run on, separated by commas.
#include <sched.h>

#include <cstdio>
#include <cstdlib>

int main() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) {
    return 1;
  }
  const char* rank = std::getenv("RANK");
  std::printf("%s:", rank == nullptr ? "?" : rank);
  const char* separator = "";
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) {
      std::printf("%s%d", separator, cpu);
      separator = ",";
    }
  }
  std::printf("\n");
  return 0;
}
