#include "topology/edge_list.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "bluefog_cpp/base/quoted.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog::topology {
namespace {

constexpr int kMaxRanks = 10'000'000;
constexpr std::size_t kMaxLineLength = 1000;

std::uint64_t edge_key(const WeightedEdge& edge) {
  return static_cast<std::uint64_t>(edge.source) << 32 |
         static_cast<std::uint32_t>(edge.destination);
}

std::vector<std::string_view> words_of(std::string_view line) {
  constexpr std::string_view kBlank = " \t\r";
  line = line.substr(0, line.find('#'));
  std::vector<std::string_view> words;
  for (std::size_t begin = line.find_first_not_of(kBlank); begin != std::string_view::npos;
       begin = line.find_first_not_of(kBlank)) {
    line.remove_prefix(begin);
    const std::size_t length = std::min(line.find_first_of(kBlank), line.size());
    words.push_back(line.substr(0, length));
    line.remove_prefix(length);
  }
  return words;
}

/// Reads the lines of one text and knows where it is for the messages.
class EdgeListReader {
 public:
  EdgeListReader(std::string_view name, const EdgeListOptions& options)
      : name_(name), limit_(options.size > 0 ? options.size : kMaxRanks) {}

  /// Reads all of `text`, a line at a time: no more than one is ever held.
  void read(std::istream& text) {
    std::array<char, kMaxLineLength + 2> line;
    while (text.getline(line.data(), line.size())) {
      const auto consumed = static_cast<std::size_t>(text.gcount());
      ++line_;
      read_line({line.data(), text.eof() ? consumed : consumed - 1});
    }
    if (text.bad()) {
      throw InvalidArgument(fmt::format("edge list {}: cannot be read", name_));
    }
    if (!text.eof()) {
      ++line_;
      fail(fmt::format("more than {} characters", kMaxLineLength));
    }
  }

  [[nodiscard]] const std::vector<WeightedEdge>& edges() const { return edges_; }
  [[nodiscard]] bool weighted() const { return weighted_.value_or(false); }
  [[nodiscard]] int highest_rank() const { return highest_rank_; }

 private:
  void read_line(std::string_view text) {
    const std::vector<std::string_view> words = words_of(text);
    if (words.empty()) {
      return;
    }
    if (words.size() != 2 && words.size() != 3) {
      fail(fmt::format("{} words, expected 'i j' or 'i j weight'", words.size()));
    }
    const bool has_weight = words.size() == 3;
    if (weighted_.value_or(has_weight) != has_weight) {
      fail(has_weight ? "a weight, but earlier lines have none"
                      : "no weight, but earlier lines have one");
    }
    weighted_ = has_weight;
    add({rank_of(words[0]), rank_of(words[1]), has_weight ? weight_of(words[2]) : 1.0});
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw InvalidArgument(fmt::format("edge list {}, line {}: {}", name_, line_, what));
  }

  int rank_of(std::string_view word) {
    int rank = -1;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), rank);
    if (error != std::errc{} || end != word.data() + word.size() || rank < 0 || rank >= limit_) {
      fail(fmt::format("{} is not a rank, expected 0 to {}", quoted(word), limit_ - 1));
    }
    highest_rank_ = std::max(highest_rank_, rank);
    return rank;
  }

  [[nodiscard]] double weight_of(std::string_view word) const {
    double weight = 0.0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), weight);
    if (error != std::errc{} || end != word.data() + word.size() || !std::isfinite(weight)) {
      fail(fmt::format("{} is not a weight, expected a finite number", quoted(word)));
    }
    return weight;
  }

  void add(const WeightedEdge& edge) {
    const auto [first, is_new] = line_of_.emplace(edge_key(edge), line_);
    if (!is_new) {
      fail(fmt::format("edge {} {} again, first on line {}", edge.source, edge.destination,
                       first->second));
    }
    edges_.push_back(edge);
  }

  std::string_view name_;
  int limit_;
  std::int64_t line_ = 0;
  int highest_rank_ = -1;
  std::optional<bool> weighted_;
  std::vector<WeightedEdge> edges_;
  std::unordered_map<std::uint64_t, std::int64_t> line_of_;
};

/// The graph with weight 1 everywhere and without self loops.
MixingMatrix adjacency(int size, std::span<const WeightedEdge> edges) {
  std::vector<WeightedEdge> proper;
  for (const WeightedEdge& edge : edges) {
    const bool is_loop = edge.source == edge.destination && edge.source >= 0 && edge.source < size;
    if (!is_loop) {
      proper.push_back({edge.source, edge.destination, 1.0});
    }
  }
  return MixingMatrix::from_edges(size, proper);
}

void require_edges_back(const MixingMatrix& graph) {
  for (int rank = 0; rank < graph.size(); ++rank) {
    const std::vector<int> in = graph.in_neighbors(rank);
    const std::vector<int> out = graph.out_neighbors(rank);
    std::vector<int> one_way;
    std::ranges::set_difference(in, out, std::back_inserter(one_way));
    if (!one_way.empty()) {
      throw InvalidArgument(
          fmt::format("Metropolis-Hastings weights: edge {} -> {} has no edge back, expected an "
                      "undirected graph",
                      one_way.front(), rank));
    }
  }
}

}  // namespace

MixingMatrix from_unweighted_edges(int size, std::span<const WeightedEdge> edges, WeightRule rule) {
  const MixingMatrix graph = adjacency(size, edges);
  if (rule == WeightRule::MetropolisHastings) {
    require_edges_back(graph);
  }
  std::vector<std::size_t> degree(size);
  for (int rank = 0; rank < size; ++rank) {
    degree[rank] = graph.in_neighbors(rank).size();
  }
  std::vector<std::vector<WeightedRank>> rows(size);
  for (int rank = 0; rank < size; ++rank) {
    double self = 1.0;
    for (const int neighbor : graph.in_neighbors(rank)) {
      const std::size_t larger =
          rule == WeightRule::Uniform ? degree[rank] : std::max(degree[rank], degree[neighbor]);
      rows[rank].push_back({neighbor, 1.0 / static_cast<double>(1 + larger)});
      self -= rows[rank].back().weight;
    }
    // Exactly equal weights where they are meant to be equal.
    if (rule == WeightRule::Uniform) {
      self = 1.0 / static_cast<double>(1 + degree[rank]);
    }
    rows[rank].push_back({rank, self});
  }
  return MixingMatrix::from_rows(std::move(rows));
}

namespace {

/// The number of ranks of a file that is read without one. One high rank among few edges, a slip of
/// a key, would take gigabytes for ranks that no edge names.
int inferred_size(const EdgeListReader& reader, std::string_view name) {
  constexpr std::size_t kAlwaysTaken = 1024;
  constexpr std::size_t kRanksPerEdge = 4;
  const int size = reader.highest_rank() + 1;
  const std::size_t edges = reader.edges().size();
  if (std::cmp_greater(size, std::max(kAlwaysTaken, kRanksPerEdge * edges))) {
    throw InvalidArgument(fmt::format(
        "edge list {}: rank {} is the highest, and {} edges name few of those below it: "
        "give the size where this is meant",
        name, size - 1, edges));
  }
  return size;
}

}  // namespace

MixingMatrix read_edge_list(std::istream& text, std::string_view name,
                            const EdgeListOptions& options) {
  if (options.size < 0 || options.size > kMaxRanks) {
    throw InvalidArgument(
        fmt::format("edge list {}: size is {}, expected 1 to {}, or 0 for that of "
                    "the file",
                    name, options.size, kMaxRanks));
  }
  EdgeListReader reader(name, options);
  reader.read(text);
  if (reader.edges().empty()) {
    throw InvalidArgument(fmt::format("edge list {}: no edges", name));
  }
  const int size = options.size > 0 ? options.size : inferred_size(reader, name);
  if (!reader.weighted()) {
    return from_unweighted_edges(size, reader.edges(), options.rule.value_or(WeightRule::Uniform));
  }
  if (options.rule) {
    throw InvalidArgument(fmt::format(
        "edge list {}: has weights, expected none where a rule for weights is given", name));
  }
  return MixingMatrix::from_edges(size, reader.edges());
}

MixingMatrix load_edge_list(const std::filesystem::path& path, const EdgeListOptions& options) {
  std::ifstream file(path);
  if (!file) {
    throw InvalidArgument(fmt::format("edge list {}: cannot be opened", path.string()));
  }
  return read_edge_list(file, path.string(), options);
}

}  // namespace bluefog::topology
