#include "tools/bfrun/options.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <memory>

#include "tools/bfrun/numbers.hpp"

namespace bluefog::bfrun {
namespace {

constexpr int kMaxRanks = 1 << 20;
constexpr int kMaxPort = 65535;
constexpr int kMaxRespawns = 10000;
constexpr int kLongestSeconds = 86400;

/// Values that are checked after CLI11 has collected them, for messages of our own.
struct RawValues {
  std::string num_proc;
  std::string ssh_port;
  std::string host_silence;
  std::string min_np;
  std::string respawn;
  std::string max_np;
  std::string elastic_timeout;
  std::string bind_to = "auto";
  std::string launcher = "auto";
  bool use_infiniband = false;
};

/// Says in the usage line where the command goes.
class HelpFormat : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: bfrun -np N [OPTIONS] COMMAND...\n";
  }
};

void declare_options(CLI::App& app, Options& options, RawValues& raw) {
  app.set_help_flag("-h,--help", "Print this help and exit");
  app.add_option("-n,--num-proc", raw.num_proc, "Number of ranks in all (also -np)")
      ->option_text("N");
  app.add_option("-H,--hosts,--host", options.hosts,
                 "Hosts and slots: host1:2,host2:4 (default: 1)")
      ->option_text("LIST");
  app.add_option("--hostfile", options.hostfile, "File with one host per line: NAME slots=N")
      ->option_text("FILE");
  app.add_option("-p,--ssh-port", raw.ssh_port, "Port of the ssh servers")->option_text("PORT");
  app.add_option("--network-interface", options.network_interface,
                 "Network interfaces to use, separated by commas")
      ->option_text("IF");
  app.add_flag("--use-infiniband", raw.use_infiniband,
               "Accepted for scripts written for BlueFog: MPI finds InfiniBand by itself");
  app.add_option("--extra-mpi-flags", options.extra_mpi_flags,
                 "More flags for mpirun, as one string")
      ->option_text("FLAGS");
  app.add_option("--prefix", options.prefix, "Where Open MPI is installed on the other hosts")
      ->option_text("PATH");
  app.add_option("--timeline-filename", options.timeline_filename,
                 "Write a timeline to FILE<rank>.json (sets BLUEFOG_TIMELINE)")
      ->option_text("FILE");
  app.add_option("-x", options.environment, "Set or export an environment variable (repeatable)")
      ->option_text("VAR[=VALUE]")
      ->expected(1)
      ->take_all();
  app.add_option("--bind-to", raw.bind_to, "Bind ranks to cores: auto, core or none")
      ->option_text("POLICY");
  app.add_option("--launcher", raw.launcher,
                 "Who starts the ranks: own (bfrun, on this machine), mpirun or auto")
      ->option_text("WHO");
  app.add_option("--mpirun", options.mpirun, "The mpirun to use")->option_text("PATH");
  app.add_flag("--fault-tolerant", options.fault_tolerant,
               "The other ranks go on when one dies (Open MPI 5 with ULFM)");
  app.add_option("--min-np", raw.min_np,
                 "So many ranks suffice: the others go on when some are lost (sets "
                 "BLUEFOG_ON_FAILURE=shrink)")
      ->option_text("N");
  app.add_option("--respawn", raw.respawn,
                 "With --min-np: start lost ranks again, to join the others, N times in all")
      ->option_text("N");
  app.add_option("--max-np", raw.max_np,
                 "With --min-np: at most so many ranks, of which those beyond -np join later")
      ->option_text("N");
  app.add_option("--host-discovery,--host-discovery-script", options.host_discovery,
                 "With --min-np: a program that prints HOST:SLOTS lines, asked every second; ranks "
                 "come and go by its answers")
      ->option_text("SCRIPT");
  app.add_option("--remote-shell", options.remote_shell,
                 "With --host-discovery: starts ranks on other hosts, in place of ssh")
      ->option_text("PROGRAM");
  app.add_option("--elastic-timeout", raw.elastic_timeout,
                 "Seconds to wait for --min-np slots at the start (600)")
      ->option_text("SECONDS");
  app.add_option("--host-silence", raw.host_silence,
                 "Seconds after which a host that answers nothing is lost; 0: never")
      ->option_text("SECONDS");
  app.add_flag("--oversubscribe", options.oversubscribe,
               "More than 64 ranks for each core of this machine");
  app.add_flag("--verbose", options.verbose, "Print the full mpirun command");
  app.add_flag("-v,--version", options.show_version, "Print the version and exit");
  app.add_flag("--check-build", options.check_build, "Print what was built in and exit");
}

bool takes_value(const CLI::App& app, const std::string& name) {
  const CLI::Option* option = app.get_option_no_throw(name);
  return option != nullptr && option->get_type_size() > 0 && option->get_items_expected_max() > 0;
}

/// Splits the arguments into bfrun's own (with -np spelled as CLI11 knows it, and each value joined
/// to its long option so that it may begin with a dash) and the command.
std::vector<std::string> own_arguments(const CLI::App& app,
                                       const std::vector<std::string>& arguments,
                                       std::vector<std::string>& command) {
  std::vector<std::string> own;
  std::size_t next = 0;
  while (next < arguments.size()) {
    std::string argument = arguments[next];
    if (argument.size() < 2 || argument.front() != '-') {
      break;
    }
    ++next;
    if (argument == "--") {
      break;
    }
    if (argument == "-np" || argument.starts_with("-np=")) {
      argument = "--num-proc" + argument.substr(3);
    }
    if (!takes_value(app, argument)) {
      own.push_back(argument);
      continue;
    }
    if (next == arguments.size() || arguments[next].empty()) {
      throw UsageError(fmt::format("{} wants a value, found {}", arguments[next - 1],
                                   next == arguments.size() ? "the end of the line" : "''"));
    }
    const std::string& value = arguments[next++];
    if (argument.starts_with("--")) {
      own.push_back(argument + "=" + value);
    } else {
      own.push_back(argument);
      own.push_back(value);
    }
  }
  command.assign(arguments.begin() + static_cast<std::ptrdiff_t>(next), arguments.end());
  return own;
}

int parse_in_range(const char* option, const std::string& text, int highest) {
  const auto value = parse_int(text);
  if (!value || *value < 1 || *value > highest) {
    throw UsageError(
        fmt::format("{} wants a number from 1 to {}, found '{}'", option, highest, text));
  }
  return *value;
}

/// The value of an option that is one of a few words. `words` lists them, for the message.
template <typename Choice>
Choice parse_choice(const char* option, const std::string& text, const char* words,
                    const std::map<std::string, Choice>& choices) {
  const auto found = choices.find(text);
  if (found == choices.end()) {
    throw UsageError(fmt::format("{} wants {}, found '{}'", option, words, text));
  }
  return found->second;
}

/// Less than a few seconds would take a busy switch for a loss.
int parse_silence(const std::string& text) {
  constexpr int kShortest = 3;
  const auto value = parse_int(text);
  if (!value || *value < 0 || *value > kLongestSeconds || (*value > 0 && *value < kShortest)) {
    throw UsageError(
        fmt::format("--host-silence wants 0 or a number of seconds from {} to {}, found '{}'",
                    kShortest, kLongestSeconds, text));
  }
  return *value;
}

void check_environment(const std::vector<std::string>& environment) {
  for (const auto& entry : environment) {
    const std::string name = entry.substr(0, entry.find('='));
    if (!is_identifier(name)) {
      throw UsageError(
          fmt::format("-x wants VAR or VAR=VALUE with a name of letters, digits and '_', "
                      "found '{}'",
                      entry));
    }
  }
}

/// Ranks that come and go want others that go on meanwhile, and places that are not fixed.
void check_elastic(const RawValues& raw, Options& options) {
  if (!raw.elastic_timeout.empty() && options.host_discovery.empty()) {
    throw UsageError("--elastic-timeout is for --host-discovery SCRIPT, found none");
  }
  if (raw.max_np.empty() && options.host_discovery.empty()) {
    return;
  }
  const char* const option = options.host_discovery.empty() ? "--max-np" : "--host-discovery";
  if (options.min_np == 0) {
    throw UsageError(
        fmt::format("{} has ranks come while the others go on: expected --min-np N, which says how "
                    "many suffice for that, found none",
                    option));
  }
  if (!options.host_discovery.empty() && !(options.hosts + options.hostfile).empty()) {
    throw UsageError("--host-discovery says where ranks are to be: give it, or -H or --hostfile");
  }
  if (options.is_elastic() && options.bind == BindPolicy::Core) {
    throw UsageError(fmt::format(
        "--bind-to core shares the cores among a fixed number of ranks, found {}", option));
  }
  if (options.is_elastic()) {
    options.bind = BindPolicy::None;
  }
}

/// How many ranks suffice, and how many there may be.
void check_numbers_of_ranks(const RawValues& raw, Options& options) {
  if (!raw.min_np.empty()) {
    options.min_np = parse_in_range("--min-np", raw.min_np, options.num_proc);
    if (options.fault_tolerant) {
      throw UsageError("--min-np and --fault-tolerant both say who goes on: give one of them");
    }
  }
  if (!raw.respawn.empty()) {
    options.respawn = parse_in_range("--respawn", raw.respawn, kMaxRespawns);
    if (options.min_np == 0) {
      throw UsageError(
          "--respawn starts lost ranks again while the others go on: expected --min-np N, which "
          "says how many suffice for that, found none");
    }
  }
  options.max_np = options.num_proc;
  if (!raw.max_np.empty()) {
    options.max_np = parse_in_range("--max-np", raw.max_np, kMaxRanks);
    if (options.max_np < options.num_proc) {
      throw UsageError(fmt::format("--max-np wants at least as many as -np {}, found '{}'",
                                   options.num_proc, raw.max_np));
    }
  }
  if (!raw.elastic_timeout.empty()) {
    options.elastic_timeout =
        parse_in_range("--elastic-timeout", raw.elastic_timeout, kLongestSeconds);
  }
  check_elastic(raw, options);
}

void check_options(const RawValues& raw, Options& options) {
  if (!raw.ssh_port.empty()) {
    options.ssh_port = parse_in_range("-p", raw.ssh_port, kMaxPort);
  }
  if (!raw.host_silence.empty()) {
    options.host_silence = parse_silence(raw.host_silence);
  }
  options.bind = parse_choice<BindPolicy>(
      "--bind-to", raw.bind_to, "auto, core or none",
      {{"auto", BindPolicy::Auto}, {"core", BindPolicy::Core}, {"none", BindPolicy::None}});
  options.launcher = parse_choice<Launcher>(
      "--launcher", raw.launcher, "own, mpirun or auto",
      {{"auto", Launcher::Auto}, {"own", Launcher::Own}, {"mpirun", Launcher::Mpirun}});
  check_environment(options.environment);
  if (!options.hosts.empty() && !options.hostfile.empty()) {
    throw UsageError("give -H or --hostfile, not both");
  }
  if (options.show_version || options.check_build) {
    return;
  }
  if (raw.num_proc.empty()) {
    throw UsageError("-np N is missing: how many ranks?");
  }
  options.num_proc = parse_in_range("-np", raw.num_proc, kMaxRanks);
  check_numbers_of_ranks(raw, options);
  if (options.command.empty()) {
    throw UsageError("no command given: bfrun -np N COMMAND...");
  }
}

}  // namespace

Options parse_options(const std::vector<std::string>& arguments) {
  CLI::App app("Start a program on many ranks, on this machine or on several hosts.", "bfrun");
  app.formatter(std::make_shared<HelpFormat>());
  Options options;
  RawValues raw;
  declare_options(app, options, raw);

  std::vector<std::string> own = own_arguments(app, arguments, options.command);
  std::reverse(own.begin(), own.end());  // CLI11 takes them from the back
  try {
    app.parse(own);
  } catch (const CLI::CallForHelp&) {
    options.help_text = app.help();
    return options;
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what());
  }
  check_options(raw, options);
  return options;
}

}  // namespace bluefog::bfrun
