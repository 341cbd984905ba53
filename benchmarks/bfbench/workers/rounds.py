"""Calls that take turns on the ranks of gloo; the slowest rank counts."""

import argparse
import os
import random
import time

import torch
import torch.distributed as dist

WARM_UP_ROUNDS = 3
FEWEST_ROUNDS, MOST_ROUNDS = 7, 2000


def parser_of_operations(description):
    """The arguments of every program that times calls of several sizes."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--store", required=True, help="file where ranks meet; must not exist")
    parser.add_argument("--sizes", required=True, help="bytes per rank, by commas")
    parser.add_argument("--dtype", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    return parser


def join_gloo(store, rank, size, threads_are_bound=False, backend="gloo"):
    """The process group over gloo, or another backend, of ranks that meet in the file `store`. Its
    threads may run on all cores, as under torchrun, although bfrun binds a rank: bound to the core
    of the thread that calls, they take turns with it, which is better for a few bytes and worse for
    many.
    """
    bound = os.sched_getaffinity(0)
    os.sched_setaffinity(0, bound if threads_are_bound else range(os.cpu_count() or 1))
    try:
        file = dist.FileStore(store, size)  # type: ignore[attr-defined]  # has no stub
        dist.init_process_group(backend, store=file, rank=rank, world_size=size)
    finally:
        os.sched_setaffinity(0, bound)


def join_ranks(store, threads_are_bound=False):
    """(rank, number of ranks) of this launch, whose ranks meet in the file `store`."""
    rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
    size = int(os.environ["OMPI_COMM_WORLD_SIZE"])
    join_gloo(store, rank, size, threads_are_bound)
    return rank, size


def take_turns(calls, seconds, prepares, batch=1, pause_sec=0, barrier=None):
    """Samples of each call, a list for each, of its time and what the process computed meanwhile,
    all threads together, in µs. All calls make a round, in an order shuffled alike on all ranks,
    until `seconds` are over. Each call gets what its own of `prepares`, or the one of all, returns
    before its time begins; of a batch of more the time is the mean, what that takes for the later
    ones included. Ranks rest for `pause_sec` before each batch, which
    `barrier` begins, by default gloo's."""
    if callable(prepares):
        prepares = [prepares] * len(calls)
    order = list(range(len(calls)))
    shuffler = random.Random(1)
    samples = [[] for _ in calls]

    def one_round():
        shuffler.shuffle(order)
        for place in order:
            given = prepares[place]()
            if pause_sec:
                time.sleep(pause_sec)
            (barrier or dist.barrier)()
            start, cpu = time.perf_counter(), time.process_time()
            calls[place](given)
            for _ in range(1, batch):
                calls[place](prepares[place]())
            samples[place].append(((time.perf_counter() - start) * 1e6 / batch,
                                   (time.process_time() - cpu) * 1e6 / batch))

    for _ in range(WARM_UP_ROUNDS):
        one_round()
    start = time.perf_counter()
    one_round()
    rounds = torch.tensor([seconds / max(time.perf_counter() - start, 1e-6)])
    dist.broadcast(rounds, 0)  # all ranks make as many
    for taken in samples:
        taken.clear()
    for _ in range(max(FEWEST_ROUNDS, min(MOST_ROUNDS, int(rounds.item())))):
        one_round()
    return samples


def figures_of(samples, bytes_, bus_factor=1.0):
    """The samples of one call, as a record has them; collective."""
    worst = torch.tensor(samples, dtype=torch.float64)
    dist.all_reduce(worst, dist.ReduceOp.MAX)
    times, cpu_times = worst.unbind(1)
    median, p95 = times.quantile(torch.tensor([0.5, 0.95], dtype=torch.float64)).tolist()
    return {"language": "Python", "median_us": median, "p95_us": p95,
            "cpu_us": cpu_times.median().item(),
            "algbw_gbps": bytes_ / median * 1e-3, "busbw_gbps": bytes_ / median * 1e-3 * bus_factor}
