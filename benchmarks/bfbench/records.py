"""Records of measurements: what several starts say together."""

import math
import statistics

from bfbench.contestants import PLAIN, fastest_ddp

KEY = ("peer", "op", "language", "ranks", "hosts", "device", "dtype", "bytes")
# The fields that measurements share which have the same limit.
LIMIT_PLACE = ("ranks", "hosts", "device", "dtype", "bytes")
# Measurements that are compared with one another share their language too.
PLACE = ("language", *LIMIT_PLACE)
# Peers that are limits, of one host and between hosts.
LIMITS = ("memcpy", "link")
# Streams between hosts are measured from so many bytes on: a smaller one tells more about the burst
# of a link (256 KiB, netns.sh) and the time of Python than about the link's rate.
LEAST_LINK_BYTES = 1 << 20
# Ends the names of torch.distributed's calls over its backends.
BY_TORCH = " by torch"
# Calls on memory that the backend gave, beside the same on any other.
OF_BACKENDS_MEMORY = " of the backend's memory"
FIGURES = ("median_us", "p95_us", "algbw_gbps", "busbw_gbps", "limit_ratio")


def count_text(count, what):
    """A number with its noun: "1 rank", "2 ranks"."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


DIVERGED = "diverged"
"""What tables say in place of a figure that is no finite number."""


def over_seeds(name, values):
    """A figure as records have it: mean and deviation over seeds, none of which is there where the
    run of a seed has diverged, and each seed's."""
    by_seed = [value if math.isfinite(value) else None for value in values]
    is_whole = None not in by_seed
    return {name: statistics.fmean(values) if is_whole else None,
            f"{name}_deviation": (statistics.stdev(values) if is_whole and len(values) > 1
                                  else None),
            f"{name}_by_seed": by_seed}


def diverged_text(by_seed):
    """The same for a figure of several seeds, of which some may have one."""
    missing = by_seed.count(None)
    return DIVERGED if missing == len(by_seed) else f"{missing} of {len(by_seed)} {DIVERGED}"


def key_of_operation(record):
    """The subject of a record; files of earlier versions know of no device but the CPU, and
    measured gloo and NCCL from Python."""
    is_of_python = (record["peer"] in ("gloo", "NCCL", "link") or record["op"].endswith(BY_TORCH)
                    or record.get("device", "cpu") != "cpu")
    usual = {"device": "cpu", "language": "Python" if is_of_python else "C++"}
    return tuple({**usual, **record}[name] for name in KEY)


def merge_starts(starts):
    """One record for each measurement: medians over the starts, and each start's median.

    `starts` is a list of lists of records. A measurement that some starts lack keeps those it has.
    """
    by_key = {}
    for start in starts:
        for record in start:
            if "not_run" not in record:
                by_key.setdefault(key_of_operation(record), []).append(record)
    merged = []
    for key, records in by_key.items():
        entry = dict(zip(KEY, key))
        entry.update({name: records[0][name] for name in ("settings",) if name in records[0]})
        entry.update({name: statistics.median(record[name] for record in records)
                      for name in (*FIGURES, "cpu_us", "peak_bytes") if name in records[0]})
        if "algbw_gbps" in entry:  # as the medians of the table have it
            bus_factor = records[0]["busbw_gbps"] / records[0]["algbw_gbps"]
            entry["algbw_gbps"] = entry["bytes"] / entry["median_us"] * 1e-3
            entry["busbw_gbps"] = entry["algbw_gbps"] * bus_factor
        entry["starts_us"] = [record["median_us"] for record in records]
        entry["starts_p95_us"] = [record["p95_us"] for record in records]
        merged.append(entry)
    return merged


def merge_not_run(starts):
    """Contestants that did not run, each with its reason once for all sizes and starts."""
    found = {}
    for record in (record for start in starts for record in start if "not_run" in record):
        reason = {name: value for name, value in record.items() if name != "bytes"}
        found.setdefault(tuple(reason.items()), reason)
    return list(found.values())


def kind(record):
    """The result of an operation of any peer: the mean of all ranks, or one of neighbours. A
    call of torch is compared with itself alone, over another backend, whatever memory it is of."""
    if record["op"].endswith(BY_TORCH):
        return record["op"].replace(OF_BACKENDS_MEMORY, "")
    name = record["op"].lower().replace("neighbor_allreduce", "")
    return "allreduce" if "allreduce" in name else "average"


def neighbours_of(record):
    """Whom a rank hears in an average with neighbours, by the graph in the operation's name; all in
    a mean of all ranks; 0 for other operations."""
    ranks, name = record["ranks"], record["op"]
    for graph, count in (("one-peer", 1), ("ring", min(2, ranks - 1)),
                         ("exponential", (ranks - 1).bit_length())):
        if f"({graph})" in name:
            return count
    return ranks - 1 if kind(record) == "allreduce" else 0


def place_of(record, names=PLACE):
    return tuple(record[name] for name in names)


def limits_of(records, peer):
    """The fastest of a limit's times at each place, whatever language it was called from."""
    found = {}
    for record in records:
        if record["peer"] == peer:
            place = place_of(record, LIMIT_PLACE)
            found[place] = min(record["median_us"], found.get(place, record["median_us"]))
    return found


def with_one_memcpy(records):
    """Adds, on one host, `limit_ratio` against the fastest memcpy of the table to records of
    programs that timed none beside theirs."""
    memcpys = limits_of(records, "memcpy")
    for record in records:
        limit_us = memcpys.get(place_of(record, LIMIT_PLACE))
        if limit_us and record.get("limit_ratio") is None:
            record["limit_ratio"] = record["median_us"] / limit_us
    return records


def add_peer_ratios(records):
    """Adds to each of this project's records the time of the fastest peer's operation of the same
    kind, with as many neighbours, as a multiple of its own: above 1, this project is faster.
    `gloo_ratio` is that of gloo's fastest way to average: its all-reduce counts beside its send and
    receive, but not alone where it hears more ranks than the average.
    """
    for record in records:
        if (record["peer"] != "bluefog_cpp" or record["op"].startswith(("win_", "hierarchical"))
                or record["ranks"] == 1):  # a rank alone averages with nobody
            continue
        rivals = [other for other in records
                  if other["peer"] not in ("bluefog_cpp", *LIMITS)
                  and place_of(other) == place_of(record)
                  and kind(record) in (kind(other), "average")]
        alike = [other for other in rivals if neighbours_of(other) == neighbours_of(record)]
        if any(other["peer"] == "gloo" for other in alike):
            record["gloo_ratio"] = min(other["median_us"] for other in rivals
                                       if other["peer"] == "gloo"
                                       ) / record["median_us"]
        rivals = [other for other in alike if kind(other) == kind(record)]
        if rivals:
            best = min(rivals, key=lambda other: other["median_us"])
            record["fastest_peer"] = f"{best['peer']} {best['op']}"
            record["peer_ratio"] = best["median_us"] / record["median_us"]
    return records


def with_link_as_limit(records):
    """Adds, on several hosts, `limit_ratio` against the stream between hosts in place of the
    memcpy, which is left out. There is no ratio without such a stream, nor with several ranks on a
    host: of theirs the links carry other shares than of the streams, by the operation's graph."""
    kept = [record for record in records if record["peer"] != "memcpy"]
    links = limits_of(kept, "link")
    for record in kept:
        is_alone = record["ranks"] == record["hosts"]
        limit_us = links.get(place_of(record, LIMIT_PLACE)) if is_alone else None
        record["limit_ratio"] = record["median_us"] / limit_us if limit_us else None
    return kept


TRAIN_KEY = ("peer", "algorithm", "model", "ranks", "batch_size", "image_size")
# The figures of training, each present in records that measured it.
TRAIN_FIGURES = ("img_per_sec", "page_faults_per_step", "epoch_sec", "peak_mib", "grown_mib",
                 "loss",
                 "accuracy")
# The fields that training shares with the none and DDP that it is compared with.
TRAIN_PLACE = ("model", "ranks", "batch_size", "image_size")


# The fields and figures of training on hosts (bfbench scale).
SCALE_KEY = (*TRAIN_KEY, "graph", "hosts", "emulated", "simulated", "rate_mbit")
SCALE_FIGURES = ("img_per_sec", "efficiency", "cpu_sec_per_step", "communication_cpu_sec")


def merge_train_starts(starts, key_names=TRAIN_KEY, figures=TRAIN_FIGURES):
    """One record for each algorithm, model and number of ranks: medians over the starts, and the
    figures of each start."""
    by_key = {}
    for start in starts:
        for record in start:
            if "not_run" not in record:
                by_key.setdefault(tuple(record[name] for name in key_names), []).append(record)
    merged = []
    for key, records in by_key.items():
        entry = dict(zip(key_names, key))
        entry["parameters"] = records[0]["parameters"]
        for name in figures:
            if name in records[0]:
                entry[f"starts_{name}"] = [record[name] for record in records]
                entry[name] = statistics.median(entry[f"starts_{name}"])
        entry["sec_per_iter"] = {
            quantile: statistics.median(record["sec_per_iter"][quantile] for record in records)
            for quantile in records[0]["sec_per_iter"]}
        entry["starts_sec_per_iter"] = [record["sec_per_iter"] for record in records]
        merged.append(entry)
    return merged


def add_shares(records):
    """Adds to each record of training its rate as a multiple of that without communication, in a
    plain loop, and of DDP's over gloo with the buckets that it is fastest with: of the medians that
    the table shows, as ratios to peers are."""
    def place(record):
        return tuple(record[name] for name in TRAIN_PLACE)
    for record in records:
        beside = [other for other in records if place(other) == place(record)]
        alone = next((other for other in beside if other["algorithm"] == PLAIN), None)
        for name, other in (("none", alone), ("ddp", fastest_ddp(beside))):
            if other:
                record[f"share_of_{name}"] = record["img_per_sec"] / other["img_per_sec"]
    return records
