// Joins the launch and prints "rank 0 of 2", or the error, with the exit code 1. With the argument
// "again" it tries once more after each time-out; with "first" the program starts MPI itself
// before. With an argument N, N times over: starts itself anew as a rank's subprocess and forks,
// both of which have to be refused; the ranks then meet in a barrier.
#include <fmt/format.h>
#include <mpi.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/error.hpp"
#include "ops/barrier.hpp"

namespace {

constexpr int kRefused = 1;

int code_of(pid_t child) {
  int status = 0;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

enum class AfterTimeout { End, TryAgain };

int join(AfterTimeout after_timeout = AfterTimeout::End) {
  while (true) {
    try {
      const auto context = bluefog::Context::create();
      fmt::print("rank {} of {}\n", context->rank(), context->size());
      return 0;
    } catch (const bluefog::TimeoutError& error) {
      fmt::print(stderr, "{}\n", error.what());
      if (after_timeout == AfterTimeout::End) {
        return kRefused;
      }
    } catch (const bluefog::Error& error) {
      fmt::print(stderr, "{}\n", error.what());
      return kRefused;
    }
  }
}

int code_of_subprocess(char* program) {
  char* const words[] = {program, nullptr};
  pid_t child = -1;
  return ::posix_spawn(&child, program, nullptr, nullptr, words, environ) == 0 ? code_of(child)
                                                                               : -1;
}

int code_of_fork() {
  const pid_t child = ::fork();
  if (child == 0) {
    ::_exit(join());
  }
  return code_of(child);
}

int have_children(int times, char* program) {
  const auto context = bluefog::Context::create();
  for (int time = 0; time < times; ++time) {
    const int of_subprocess = code_of_subprocess(program);
    const int of_fork = code_of_fork();
    bluefog::ops::barrier(*context);
    if (of_subprocess != kRefused || of_fork != kRefused) {
      fmt::print(stderr, "a subprocess ended with {}, a fork with {}\n", of_subprocess, of_fork);
      return kRefused;
    }
  }
  fmt::print("rank {} of {}\n", context->rank(), context->size());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "again") {
    return join(AfterTimeout::TryAgain);
  }
  if (argc > 1 && std::string_view(argv[1]) == "first") {
    int level = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    const int code = join();
    MPI_Finalize();
    return code;
  }
  return argc > 1 ? have_children(std::atoi(argv[1]), argv[0]) : join();
}
