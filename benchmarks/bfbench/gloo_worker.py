"""One rank of torch.distributed over gloo: its all-reduce, and an average with neighbours made of
isend and irecv, in turns with a memcpy that all ranks do at the same time.

Prints one JSON object per line on rank 0, as operations_benchmark does.
"""

import argparse
import json
import os
import random
import statistics
import time

import torch
import torch.distributed as dist

ROTATED_BYTES = 64 << 20
MOST_BUFFERS = 16


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", required=True, help="file where ranks meet; must not exist")
    parser.add_argument("--sizes", required=True, help="bytes per rank, by commas")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--seconds", type=float, default=2.0)
    return parser.parse_args()


def exponential_neighbours(rank, size):
    """Whom `rank` sends to and hears in the exponential graph of base 2."""
    hops = [1 << k for k in range((size - 1).bit_length())]
    return [(rank + hop) % size for hop in hops], [(rank - hop) % size for hop in hops]


class NeighbourAverage:
    def __init__(self, rank, size, like):
        self.destinations, self.sources = exponential_neighbours(rank, size)
        self.received = [torch.empty_like(like) for _ in self.sources]

    def __call__(self, buffer):
        works = [dist.irecv(r, source) for r, source in zip(self.received, self.sources)]
        works += [dist.isend(buffer, destination) for destination in self.destinations]
        for work in works:
            work.wait()
        for received in self.received:
            buffer.add_(received)
        buffer.mul_(1 / (len(self.sources) + 1))


def contestants(rank, size, like):
    """(peer, op, bus factor, call) of each."""
    copy = torch.empty_like(like)
    average = NeighbourAverage(rank, size, like)
    return [
        ("gloo", "allreduce", 2 * (size - 1) / size, dist.all_reduce),
        ("gloo", "isend/irecv and average (exponential)", len(average.sources), average),
        ("memcpy", "memcpy", 1.0, copy.copy_),
    ]


def measure(rank, size, count, dtype, seconds):
    like = torch.empty(count, dtype=dtype)
    bytes_ = count * like.element_size()
    many = max(1, min(MOST_BUFFERS, ROTATED_BYTES // max(bytes_, 1)))
    buffers = [torch.empty_like(like) for _ in range(many)]
    calls = contestants(rank, size, like)
    order = list(range(len(calls)))
    shuffler = random.Random(1)
    times = [[] for _ in calls]
    turn = 0

    def one_round():
        nonlocal turn
        shuffler.shuffle(order)
        for i in order:
            buffer = buffers[turn % many]
            buffer.fill_(1 + turn % 8 / 8)
            turn += 1
            dist.barrier()
            start = time.perf_counter()
            calls[i][3](buffer)
            times[i].append((time.perf_counter() - start) * 1e6)

    for _ in range(3):
        one_round()
    start = time.perf_counter()
    one_round()
    rounds = torch.tensor([seconds / max(time.perf_counter() - start, 1e-6)])
    dist.broadcast(rounds, 0)
    for values in times:
        values.clear()
    for _ in range(max(7, min(2000, int(rounds.item())))):
        one_round()
    return calls, times, bytes_


def slowest(values):
    """Each round's slowest rank."""
    worst = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(worst, dist.ReduceOp.MAX)
    return sorted(worst.tolist())


def main():
    args = parse_arguments()
    rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
    size = int(os.environ["OMPI_COMM_WORLD_SIZE"])
    dist.init_process_group("gloo", store=dist.FileStore(args.store, size), rank=rank,
                            world_size=size)
    dtype = getattr(torch, args.dtype)
    for bytes_wanted in map(int, args.sizes.split(",")):
        element = torch.empty(0, dtype=dtype).element_size()
        calls, times, bytes_ = measure(rank, size, -(-bytes_wanted // element), dtype, args.seconds)
        results = [slowest(values) for values in times]
        limit = statistics.median(results[-1])
        if rank == 0:
            for (peer, op, factor, _), values in zip(calls, results):
                median = statistics.median(values)
                print(json.dumps({
                    "peer": peer, "op": op, "ranks": size, "hosts": 1, "dtype": args.dtype,
                    "bytes": bytes_, "median_us": median,
                    "p95_us": values[int(0.95 * (len(values) - 1))],
                    "algbw_gbps": bytes_ / median * 1e-3,
                    "busbw_gbps": bytes_ / median * 1e-3 * factor,
                    "limit_ratio": median / limit}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
