"""One rank of bfbench scale: ways to train the same model, which take turns, on hosts with limited
links. Prints JSON objects on rank 0: one for each way, and one for the network; with --search-share
the rate of links at which DDP, with the buckets that it is fastest with there, has that share of
its speed without communication.
"""

import argparse
import json
import os
import time

import torch
import torch.distributed as dist

import bluefog_cpp.torch as bf
from bfbench import hosts
from bfbench.contestants import DDP_ALONE, is_ddp, peer_of
from bfbench.link_rate import find_rate
from bfbench.training import quantiles_of
from bfbench.workers.rounds import join_gloo
from bfbench.workers.scale_ways import Way, baseline_of, ways_of

WARM_UP_STEPS = 1
SMALL_CALLS, LARGE_CALLS = 100, 3
FAST = 0.1


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", required=True, help="file where ranks of gloo meet")
    parser.add_argument("--model", required=True)
    parser.add_argument("--algorithms", required=True)
    parser.add_argument("--graphs", required=True)
    parser.add_argument("--rate", type=float, required=True, help="of the links, in Mbit/s")
    parser.add_argument("--search-share", type=float)
    parser.add_argument("--profile", help="file with times to sleep in place of computing")
    for name in ("threads", "batch-size", "image-size", "classes", "rounds", "steps", "bucket-mb"):
        parser.add_argument(f"--{name}", type=int, required=True)
    return parser.parse_args()


def slowest(values):
    """Element by element, over the ranks."""
    return bf.allgather(torch.tensor([values], dtype=torch.float64)).max(dim=0).values


class Turns:
    """The times that a way has taken so far on this rank."""

    def __init__(self, way):
        self.way = way
        self.seconds, self.turns, self.cpu_seconds = [], [], []

    def take(self, steps):
        """The steady pace: the time begins when a step's messages are in flight already, and ends
        when the last step's are."""
        bf.barrier()
        self.way.step()
        before, begun = time.process_time(), time.perf_counter()
        for _ in range(steps):
            start = time.perf_counter()
            self.way.step()
            self.seconds.append(time.perf_counter() - start)
        self.turns.append(time.perf_counter() - begun)
        self.cpu_seconds.append((time.process_time() - before) / steps)
        self.way.finish()

    def forget(self):
        self.seconds, self.turns, self.cpu_seconds = [], [], []


def img_per_sec(turns, args):
    """Of all ranks; collective. The slowest rank of each turn counts."""
    rates = args.batch_size * args.steps * bf.size() / slowest(turns.turns)
    return rates.median().item(), rates.tolist()


def record_of(turns, args):
    """The figures of a way; collective."""
    way = turns.way
    rate, by_round = img_per_sec(turns, args)
    each = slowest(turns.seconds)
    cpu = bf.allreduce(torch.tensor(turns.cpu_seconds, dtype=torch.float64)).median().item()
    return {"peer": peer_of(way.algorithm), "algorithm": way.algorithm, "graph": way.graph,
            "model": args.model, "hosts": bf.machine_size(), "ranks": bf.size(),
            "batch_size": args.batch_size, "image_size": args.image_size,
            "parameters": way.parameters, "emulated": way.is_slept, "simulated": False,
            "rate_mbit": args.rate, "img_per_sec": rate, "rounds_img_per_sec": by_round,
            "sec_per_iter": quantiles_of(each),
            "cpu_sec_per_step": cpu}


def add_shares(records):
    """Efficiency, and the processor's time that communication takes, beside the same side's
    training without communication."""
    alone = {record["algorithm"]: record for record in records}
    for record in records:
        base = alone[baseline_of(record["algorithm"])]
        record["efficiency"] = record["img_per_sec"] / base["img_per_sec"]
        record["communication_cpu_sec"] = record["cpu_sec_per_step"] - base["cpu_sec_per_step"]
    return records


def say(record):
    if bf.rank() == 0:
        print(json.dumps(record), flush=True)


def times_of_exchange(count, calls):
    """Seconds of each exchange of `count` floats between ranks of the same place on neighbouring
    hosts; the slowest rank counts."""
    hop, size = bf.local_size(), bf.size()
    values = torch.zeros(count)
    times = []
    for _ in range(calls + 1):
        bf.barrier()
        start = time.perf_counter()
        bf.neighbor_allreduce_(values, self_weight=0.5,
                               src_weights={(bf.rank() - hop) % size: 0.5},
                               dst_weights=[(bf.rank() + hop) % size], enable_topo_check=False)
        times.append(time.perf_counter() - start)
    return slowest(times[1:])


def network_record(model_bytes, args):
    """α and β of the links as this project's exchange finds them; collective."""
    # Fast exchanges count: slower ones are held up by the many ranks on this machine's cores.
    alpha = times_of_exchange(1, SMALL_CALLS).quantile(FAST).item()
    large = times_of_exchange(model_bytes // 4, LARGE_CALLS).median().item()
    return {"alpha_us": alpha * 1e6, "beta_ns_per_byte": (large - alpha) / model_bytes * 1e9,
            "bytes": model_bytes, "hosts": bf.machine_size(), "ranks": bf.size(),
            "rate_mbit": args.rate}


def measure(all_turns, args):
    for _ in range(args.rounds):
        for turns in all_turns:
            turns.take(args.steps)
    for record in add_shares([record_of(turns, args) for turns in all_turns]):
        say(record)


def search(all_turns, args):
    """DDP alone once, then DDP at one rate after the other, with buckets of each size."""
    by_name = {turns.way.algorithm: turns for turns in all_turns}
    fastest_at = {}

    def speed(name):
        by_name[name].forget()
        for _ in range(args.rounds):
            by_name[name].take(args.steps)
        return img_per_sec(by_name[name], args)[0]

    alone = speed(DDP_ALONE)

    def probe(mbit):
        if bf.local_rank() == 0:
            hosts.set_rate(mbit)
        bf.barrier()
        speeds = {name: speed(name) for name in by_name if is_ddp(name)}
        fastest_at[mbit] = max(speeds, key=lambda name: speeds[name])
        return speeds[fastest_at[mbit]] / alone

    found = find_rate(probe, args.search_share, args.rate)
    say({"rate_mbit": found.rate, "share_of_ddp_alone": found.share, "probes": found.probes,
         "fastest_ddp": fastest_at[found.rate], "hosts": bf.machine_size()})


def main():
    args = parse_arguments()
    torch.set_num_threads(args.threads)
    os.environ["BLUEFOG_FUSION_THRESHOLD"] = str(args.bucket_mb << 20)
    bf.init()
    join_gloo(args.store, bf.rank(), bf.size())
    ways = ways_of(args.algorithms.split(","), args.graphs.split(","))
    all_turns = [Turns(Way(algorithm, graph, args)) for algorithm, graph in ways]
    for turns in all_turns:
        turns.take(WARM_UP_STEPS)
        turns.forget()
    if args.search_share is not None:
        search(all_turns, args)
    else:
        measure(all_turns, args)
        say(network_record(all_turns[0].way.bytes, args))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
