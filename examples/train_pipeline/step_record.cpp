#include "examples/train_pipeline/step_record.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace bluefog::examples {
namespace {

using pipeline::StepTimes;
using pipeline::StepTraffic;

constexpr double kMegabyte = 1e6;

constexpr std::array kTimes{
    &StepTimes::loading,   &StepTimes::forward,         &StepTimes::backward,  &StepTimes::waiting,
    &StepTimes::averaging, &StepTimes::averaging_whole, &StepTimes::optimizer, &StepTimes::total};
constexpr std::array kCounts{&StepTraffic::stage_bytes, &StepTraffic::averaged_bytes,
                             &StepTraffic::averaged_parameters, &StepTraffic::machine_syncs};
constexpr std::array kPlaces{&StepRecord::replica, &StepRecord::stage, &StepRecord::rows,
                             &StepRecord::cached_rows};
static_assert(kTimes.size() + kCounts.size() + kPlaces.size() == PackedRecord{}.size());

double seconds_of(const StepRecord& record) { return record.times.total + record.times.loading; }

}  // namespace

void StepRecord::add(const StepRecord& other) {
  replica = other.replica;
  stage = other.stage;
  rows += other.rows;
  cached_rows += other.cached_rows;
  for (const auto field : kTimes) {
    times.*field += other.times.*field;
  }
  for (const auto field : kCounts) {
    traffic.*field += other.traffic.*field;
  }
}

PackedRecord packed(const StepRecord& record) {
  PackedRecord values{};
  auto next = values.begin();
  for (const auto field : kPlaces) {
    *next++ = static_cast<double>(record.*field);
  }
  for (const auto field : kTimes) {
    *next++ = record.times.*field;
  }
  for (const auto field : kCounts) {
    *next++ = static_cast<double>(record.traffic.*field);
  }
  return values;
}

StepRecord unpacked(const PackedRecord& values) {
  StepRecord record;
  auto next = values.begin();
  for (const auto field : kPlaces) {
    record.*field = static_cast<std::int64_t>(*next++);
  }
  for (const auto field : kTimes) {
    record.times.*field = *next++;
  }
  for (const auto field : kCounts) {
    record.traffic.*field = static_cast<std::int64_t>(*next++);
  }
  return record;
}

std::string breakdown_text(const StepRecord& sum, std::int64_t steps) {
  const double seconds = std::max(seconds_of(sum), 1e-9);
  const auto share = [&](double part) { return fmt::format("{:.0f} %", 100 * part / seconds); };
  const auto rate = [&](std::int64_t count) { return static_cast<double>(count) / seconds; };
  return fmt::format(
      "loading {}, forward {}, backward {}, bubble {}, all-reduce {} ({} whole), optimizer {}; "
      "{:.2f} MB/s to stages, {:.2f} MB/s in all-reduces of {} parameters, {:.1f} syncs/s between "
      "machines",
      share(sum.times.loading), share(sum.times.forward), share(sum.times.backward),
      share(sum.times.waiting), share(sum.times.averaging), share(sum.times.averaging_whole),
      share(sum.times.optimizer), rate(sum.traffic.stage_bytes) / kMegabyte,
      rate(sum.traffic.averaged_bytes) / kMegabyte,
      sum.traffic.averaged_parameters / std::max<std::int64_t>(steps, 1),
      rate(sum.traffic.machine_syncs));
}

nlohmann::json json_of(const StepRecord& record, int rank) {
  return {{"rank", rank},
          {"pipeline", record.replica},
          {"stage", record.stage},
          {"seconds",
           {{"loading", record.times.loading},
            {"forward", record.times.forward},
            {"backward", record.times.backward},
            {"bubble", record.times.waiting},
            {"allreduce_exposed", record.times.averaging},
            {"allreduce", record.times.averaging_whole},
            {"optimizer", record.times.optimizer},
            {"total", record.times.total}}},
          {"stage_bytes", record.traffic.stage_bytes},
          {"allreduce_bytes", record.traffic.averaged_bytes},
          {"allreduce_parameters", record.traffic.averaged_parameters},
          {"machine_syncs", record.traffic.machine_syncs},
          {"cached_rows", record.cached_rows}};
}

}  // namespace bluefog::examples
