"""Scaling past this machine: measured costs, and bftopo's α-β model of what graphs take."""

import functools
import json
import statistics
from collections.abc import Callable
from typing import NamedTuple

from bfbench.contestants import WITHOUT_COMMUNICATION, bucket_mib_of, is_ddp
from bfbench.launch import output_of, program_at

MOST_RANKS = 1024
MIB = 1 << 20
# The first bucket in a backward pass: torch's own where a program says nothing
# (torch._C._distributed_c10d._DEFAULT_FIRST_BUCKET_BYTES), and ours.
FIRST_BUCKET = MIB
TORCHS_BUCKET = 25 * MIB
# Ours, at most.
SUM_IN_BACKWARD = 2 * MIB
AVERAGE_IN_BACKWARD = MIB
FAMILIES = {"one_peer": "one-peer-exponential", "exponential": "exponential",
            "machines": "exponential"}


class Costs(NamedTuple):
    alpha_us: float
    """Seconds of an exchange of one number with one neighbour."""
    beta_ns_per_byte: float
    compute_sec: float
    """Seconds of a step without communication."""
    profile: dict
    """When in a step gradients come (`sleeping_model.measure`), and the bytes of each."""
    bucket_bytes: int
    """The size of this project's buckets."""

    @property
    def bytes(self):
        return sum(self.profile["bytes"])


def bftopo_of(build):
    return program_at(build, "tools/bftopo", "bftopo")


def bftopo_at(build):
    """simulate(family, ranks, bytes, costs): what bftopo says of one averaging step."""
    program = bftopo_of(build)

    @functools.cache
    def simulate(family, ranks, message_bytes, alpha_us, beta_ns_per_byte):
        said = json.loads(output_of(
            [program, "simulate", family, "--n", ranks, "--steps", 1, "--bytes", message_bytes,
             "--alpha", alpha_us, "--beta", beta_ns_per_byte, "--json"], None))
        return {"step_sec": said["steps"][0]["elapsed_s"],
                "allreduce_sec": said["ring_allreduce_s"]}
    return simulate


def buckets(profile, first_bytes, bucket_bytes):
    """(seconds from the begin of the step, bytes) of each bucket of gradients, filled as they
    come."""
    found, size, limit = [], 0, first_bytes
    for seconds, place in profile["ready"]:
        size += profile["bytes"][place]
        come = profile["forward_sec"] + seconds
        if size >= limit:
            found.append((come, size))
            size, limit = 0, bucket_bytes
    return found + ([(come, size)] if size else [])


def step_sec_beside_backward(compute_sec, profile, ready_buckets, allreduce_sec):
    """One bucket is reduced after the other, each once its gradients are there."""
    passes = profile["forward_sec"] + profile["backward_sec"]
    stretch = compute_sec / passes  # what no pass has: the local step
    end = 0.0
    for come, size in ready_buckets:
        end = max(end, come * stretch) + allreduce_sec(size)
    return max(compute_sec, end)


def buckets_of_ddp(algorithm):
    """(first, later) in bytes."""
    mib = bucket_mib_of(algorithm)
    return (FIRST_BUCKET, TORCHS_BUCKET) if mib is None else (mib * MIB, mib * MIB)


def step_sec(algorithm, graph, ranks, hosts, costs: Costs, simulate: Callable):
    """Of `ranks` ranks on `hosts` hosts. Ranks of one host take no time to hear each other."""
    def simulated(family, size, message_bytes):
        return simulate(family, size, message_bytes, costs.alpha_us, costs.beta_ns_per_byte)

    def beside_backward(sizes, seconds_of):
        return step_sec_beside_backward(
            costs.compute_sec, costs.profile, buckets(costs.profile, *sizes), seconds_of)

    def own_buckets(most):
        largest = min(most, costs.bucket_bytes)
        return (min(FIRST_BUCKET, largest), largest)

    if is_ddp(algorithm) or algorithm == "gradient_allreduce":
        return beside_backward(
            buckets_of_ddp(algorithm) if is_ddp(algorithm) else own_buckets(SUM_IN_BACKWARD),
            lambda size: simulated("ring", ranks, size)["allreduce_sec"])
    if algorithm == "atc_in_backward":
        return beside_backward(
            own_buckets(AVERAGE_IN_BACKWARD),
            lambda size: simulated(FAMILIES[graph], ranks, size)["step_sec"])
    if algorithm == "hierarchical":
        ranks = hosts
    exchange = simulated(FAMILIES[graph], ranks, costs.bytes)["step_sec"]
    if algorithm == "awc":
        return max(costs.compute_sec, exchange)  # a whole step hides it
    return costs.compute_sec + exchange


def sizes_of(measured_ranks):
    """The measured numbers of ranks, and powers of two on to the last."""
    powers, size = [], 1
    while size < MOST_RANKS:
        size *= 2
        if size > max(measured_ranks):
            powers.append(size)
    return sorted(measured_ranks) + powers


def costs_of(records, networks, profile, bucket_bytes):
    """The model's parameters, out of what was measured: α and compute of the job that the machine's
    cores held up least, the median of β."""
    compute_sec = min(r["batch_size"] * r["ranks"] / r["img_per_sec"] for r in records
                      if r["algorithm"] == "none")
    return Costs(min(n["alpha_us"] for n in networks),
                 statistics.median(n["beta_ns_per_byte"] for n in networks),
                 compute_sec, profile, bucket_bytes)


def simulated_records(records, costs, simulate):
    """A record for each way and number of ranks; measured ones are told what the model says of
    them.

    `records` are of one number of ranks per host.
    """
    made = []
    by_way = {}
    for record in records:
        if record["algorithm"] not in WITHOUT_COMMUNICATION:
            by_way.setdefault((record["algorithm"], record["graph"]), []).append(record)
    for (algorithm, graph), measured in by_way.items():
        by_ranks = {record["ranks"]: record for record in measured}
        per_host = measured[0]["ranks"] // measured[0]["hosts"]
        for ranks in sizes_of(by_ranks):
            if ranks % per_host:
                continue
            seconds = step_sec(algorithm, graph, ranks, ranks // per_host, costs, simulate)
            rate = measured[0]["batch_size"] * ranks / seconds
            if ranks in by_ranks:
                found = by_ranks[ranks]["img_per_sec"]
                by_ranks[ranks]["simulated_difference"] = rate / found - 1
            made.append({**{name: measured[0][name] for name in (
                "peer", "algorithm", "graph", "model", "batch_size", "image_size", "parameters",
                "emulated", "rate_mbit")}, "simulated": True, "ranks": ranks,
                "hosts": ranks // per_host, "img_per_sec": rate,
                "efficiency": costs.compute_sec / seconds, "sec_per_iter": {"p50": seconds}})
    return made
