#include "tools/bftopo/options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <string_view>
#include <system_error>

#include "tools/command_line/number_checks.hpp"

namespace bluefog::bftopo {
namespace {

using command_line::Bound;
using command_line::number;
using command_line::whole_number;

constexpr std::uint64_t kMaxRanks = 10'000'000;
constexpr std::uint64_t kMaxSteps = std::uint64_t{1} << 40;
/// The largest rate or time of the cost model, so that sums over steps stay finite.
constexpr double kMostCost = 1e12;

/// Values that CLI11 collects and that need checks of their own.
struct RawValues {
  std::string shape;
  std::string rule;
  std::string format;
  double latency_us = 5.0;
  double gigabits = 10.0;
  double beta_ns = 0.0;
  double compute_ms = 0.0;
  std::vector<CLI::Option*> of_families;
};

const std::map<std::string, Command>& commands() {
  static const std::map<std::string, Command> kCommands{
      {"show", Command::Show},         {"check", Command::Check}, {"gap", Command::Gap},
      {"simulate", Command::Simulate}, {"draw", Command::Draw},   {"list", Command::List}};
  return kCommands;
}

/// Prints how a command is called.
class HelpFormat : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App* app, std::string) const override {
    if (app->get_parent() == nullptr) {
      return "Usage: bftopo show|check|gap|simulate|draw FAMILY|FILE [OPTIONS]\n"
             "       bftopo list\n";
    }
    const std::string& name = app->get_name();
    return fmt::format("Usage: bftopo {}{} [OPTIONS]\n", name,
                       name == "list" ? "" : " FAMILY|FILE");
  }
};

/// One line per family, for the end of the help.
std::string table_of_families() {
  std::string text = "Families, and the options they read besides --n:\n";
  for (const topology::Family& family : topology::families()) {
    std::string names;
    for (const std::string_view option : family.options) {
      names += fmt::format(" --{}", option);
    }
    text += fmt::format("  {:<25}{}{}\n", family.name, family.description,
                        names.empty() ? "" : ";" + names);
  }
  return text;
}

void add_family_options(CLI::App& command, Options& options, RawValues& raw) {
  topology::FamilyOptions& family = options.family_options;
  command.add_option("graph", options.subject, "A family, or a file of lines 'i j [weight]'")
      ->option_text("FAMILY|FILE")
      ->required();
  command.add_option("-n,--n", family.size, "Number of ranks; of a file, its highest rank + 1")
      ->check(whole_number(1, kMaxRanks))
      ->option_text("N");
  const auto of_family = [&](CLI::Option* option, const char* text) {
    raw.of_families.push_back(option->option_text(text));
    return option;
  };
  const CLI::Validator count = whole_number(1, kMaxRanks);
  const CLI::Validator share = number({.at_low = Bound::Excluded, .high = 1.0});
  of_family(command.add_option("-k,--k", family.peers, "Most neighbours a rank has in a step"),
            "K (1)")
      ->check(count);
  of_family(command.add_option("--base", family.base, "Base of the distances"), "B")
      ->check(whole_number(2, kMaxRanks));
  of_family(command.add_option("--local-size", family.local_size, "Ranks per machine"), "L (1)")
      ->check(count);
  of_family(command.add_option("--seed", family.seed, "Seed of what is drawn"), "S (1)")
      ->check(whole_number(0, std::numeric_limits<std::uint64_t>::max()));
  of_family(command.add_option("--period", family.period_steps, "Steps before draws repeat"),
            "P (65536)")
      ->check(whole_number(1, kMaxSteps));
  auto* draws = of_family(command.add_option("--draws", family.draws, "Shifts that are drawn"), "M")
                    ->check(count);
  of_family(command.add_option("--rho", family.rho, "Distance from J to aim at, 0 … 1"), "R (0.5)")
      ->check(share)
      ->excludes(draws);
  of_family(command.add_option("--eta", family.eta, "Share of the drawn step, 0 … 1"), "E (0.5)")
      ->check(share);
  of_family(command.add_option("--shape", raw.shape, "Rows and columns of a grid"), "3x4");
  of_family(command.add_option("--center", family.center, "The middle of the star"), "R (0)")
      ->check(whole_number(0, kMaxRanks - 1));
  command.add_option("--without", options.without, "Ranks that are lost; the others go on")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(whole_number(0, kMaxRanks - 1))
      ->option_text("R,...");
  command.add_option("--rule", raw.rule, "Weights of a file that has none: uniform or metropolis")
      ->check(CLI::IsMember({"uniform", "metropolis"}))
      ->option_text("RULE (uniform)");
}

void add_cost_options(CLI::App& command, Options& options, RawValues& raw) {
  command
      .add_option("--steps", options.simulated_steps, "Averaging steps (two periods, 20 to 200)")
      ->check(whole_number(0, 10'000'000))
      ->option_text("T");
  command.add_option("--alpha", raw.latency_us, "Microseconds per message")
      ->check(number({.high = kMostCost}))
      ->option_text("US (5)");
  auto* bandwidth = command.add_option("--bandwidth", raw.gigabits, "Gigabits per second")
                        ->check(number({.low = 1 / kMostCost, .high = kMostCost}))
                        ->option_text("GBIT (10)");
  command.add_option("--beta", raw.beta_ns, "Nanoseconds per byte, instead of the bandwidth")
      ->check(number({.low = 1 / kMostCost, .high = kMostCost}))
      ->option_text("NS")
      ->excludes(bandwidth);
  command.add_option("--compute", raw.compute_ms, "Milliseconds of computing per step")
      ->check(number({.high = kMostCost}))
      ->option_text("MS (0)");
}

void add_command_options(CLI::App& command, Command kind, Options& options, RawValues& raw) {
  const CLI::Validator any_step = whole_number(0, kMaxSteps);
  if (kind != Command::Draw) {
    command.add_flag("--json", options.json, "Print JSON");
  }
  if (kind == Command::Show || kind == Command::Draw) {
    command.add_option("--step", options.step, "Only this step")->check(any_step)->option_text("T");
  }
  if (kind == Command::Show) {
    command.add_option("--ranks", options.rank_limit, "Ranks to print")
        ->check(whole_number(1, kMaxRanks))
        ->option_text("R (32)");
  }
  if (kind == Command::Draw) {
    command.add_option("--format", raw.format, "dot (default) or svg; or by the output's name")
        ->check(CLI::IsMember({"dot", "svg"}))
        ->option_text("FORMAT");
    command.add_option("-o,--output", options.output, "Where to, instead of standard output")
        ->option_text("FILE");
  }
  if (kind == Command::Check) {
    command.add_flag("--push-sum", options.push_sum, "Columns are to sum to 1, not rows");
  }
  if (kind == Command::Check || kind == Command::Simulate) {
    command.add_option("--bytes", options.cost.message_bytes, "Bytes that a rank sends to another")
        ->check(whole_number(0, std::uint64_t{1} << 50))
        ->option_text("B (1000000)");
  }
  if (kind == Command::Simulate) {
    add_cost_options(command, options, raw);
  }
}

topology::GridShape shape_of(const std::string& text) {
  topology::GridShape shape;
  char rest = 0;
  if (std::sscanf(text.c_str(), "%9dx%9d%c", &shape.rows, &shape.columns, &rest) != 2) {
    throw UsageError(fmt::format("--shape wants ROWSxCOLUMNS as 3x4, found '{}'", text));
  }
  return shape;
}

/// The format that is asked for, or that the output's name says.
PictureFormat format_of(const std::string& asked_for, const std::string& output) {
  const std::string ending = std::filesystem::path(output).extension().string();
  if (asked_for == "svg" || (asked_for.empty() && ending == ".svg")) {
    return PictureFormat::Svg;
  }
  if (!asked_for.empty() || ending.empty() || ending == ".dot" || ending == ".gv") {
    return PictureFormat::Dot;
  }
  throw UsageError(
      fmt::format("--output: expected a name that ends in .svg, .dot or .gv, or --format besides, "
                  "found '{}'; Graphviz makes other pictures: bftopo draw ... | dot -Tpng > FILE",
                  output));
}

/// Refuses options that mean nothing to this family and command.
void check_family_options(const Options& options, const RawValues& raw) {
  for (const CLI::Option* option : raw.of_families) {
    if (option->count() == 0) {
      continue;
    }
    const std::string name = option->get_lnames().front();
    const bool is_layout = name == "local-size" && options.command == Command::Check;
    const bool is_start = name == "seed" && options.command == Command::Simulate;
    const bool is_read =
        options.family && std::ranges::count(options.family->options, std::string_view(name)) > 0;
    if (is_layout || is_start || is_read) {
      continue;
    }
    throw UsageError(
        fmt::format("--{}: {} does not read it", name,
                    options.family ? fmt::format("'{}'", options.subject) : "a graph from a file"));
  }
}

void check_command_name(const std::vector<std::string>& arguments) {
  const std::string first = arguments.empty() ? "" : arguments.front();
  if (first.starts_with('-') || commands().contains(first)) {
    return;
  }
  throw UsageError(fmt::format("expected show, check, gap, simulate, draw or list, found {}",
                               arguments.empty() ? "nothing" : "'" + first + "'"));
}

void resolve_subject(const CLI::App& command, Options& options) {
  const std::vector<std::string> names = topology::family_names();
  if (std::ranges::count(names, options.subject) > 0) {
    options.family = &topology::find_family(options.subject);
    if (command.count("--n") == 0) {
      throw UsageError(fmt::format("--n N is missing: how many ranks has '{}'?", options.subject));
    }
    return;
  }
  std::error_code none;  // what cannot be looked up is no file either
  if (!std::filesystem::exists(options.subject, none)) {
    throw UsageError(
        fmt::format("'{}' is neither a file nor a family, expected a file or one of {}",
                    options.subject, fmt::join(names, ", ")));
  }
  if (command.count("--n") == 0) {
    options.family_options.size = 0;
  }
}

void finish(const CLI::App& command, const RawValues& raw, Options& options) {
  if (options.command == Command::List) {
    return;
  }
  resolve_subject(command, options);
  check_family_options(options, raw);
  if (options.family && command.count("--rule") > 0) {
    throw UsageError(
        fmt::format("--rule: '{}' does not read it, a graph from a file does", options.subject));
  }
  if (!options.without.empty() && options.family &&
      options.family->kind == topology::FamilyKind::TwoVariables) {
    throw UsageError(
        fmt::format("--without: '{}' keeps two variables per rank, expected a graph "
                    "or schedule of one mixing matrix a step",
                    options.subject));
  }
  if (!raw.shape.empty()) {
    options.family_options.shape = shape_of(raw.shape);
  }
  if (!raw.rule.empty()) {
    options.rule = raw.rule == "metropolis" ? topology::WeightRule::MetropolisHastings
                                            : topology::WeightRule::Uniform;
  }
  options.format = format_of(raw.format, options.output);
  options.cost.latency = topology::Seconds(raw.latency_us * 1e-6);
  options.cost.compute = topology::Seconds(raw.compute_ms * 1e-3);
  options.cost.bytes_per_second = raw.beta_ns > 0.0 ? 1e9 / raw.beta_ns : raw.gigabits * 1e9 / 8.0;
}

}  // namespace

Options parse_options(const std::vector<std::string>& arguments) {
  static const std::map<Command, std::string> kDescriptions{
      {Command::Show, "Print who averages with whom"},
      {Command::Check, "Print sums, degrees, messages, residual and gap"},
      {Command::Gap, "Print the spectral gaps"},
      {Command::Simulate, "Average random numbers, and say what it costs"},
      {Command::Draw, "Write a picture as DOT or SVG"},
      {Command::List, "Print the families"}};
  CLI::App app("Look at the graphs and schedules that ranks average on.", "bftopo");
  app.set_version_flag("-v,--version", std::string("bftopo ") + BLUEFOG_VERSION);
  app.formatter(std::make_shared<HelpFormat>());
  app.footer("'bftopo COMMAND --help' lists a command's options, 'bftopo list' the families.");
  Options options;
  std::map<std::string, RawValues> raw;
  for (const auto& [name, kind] : commands()) {
    CLI::App* command = app.add_subcommand(name, kDescriptions.at(kind));
    if (kind != Command::List) {
      add_family_options(*command, options, raw[name]);
      command->footer(table_of_families());
    }
    add_command_options(*command, kind, options, raw[name]);
  }
  check_command_name(arguments);
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
  try {
    app.parse(reversed);  // CLI11 takes them from the back
  } catch (const CLI::CallForVersion& version) {
    options.help_text = fmt::format("{}\n", version.what());
    return options;
  } catch (const CLI::Success&) {
    const auto asked = app.get_subcommands();
    options.help_text = asked.empty() ? app.help() : asked.front()->help();
    return options;
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what());
  }
  if (app.get_subcommands().empty()) {
    throw UsageError("no command given");
  }
  const CLI::App* command = app.get_subcommands().front();
  options.command = commands().at(command->get_name());
  finish(*command, raw[command->get_name()], options);
  return options;
}

}  // namespace bluefog::bftopo
