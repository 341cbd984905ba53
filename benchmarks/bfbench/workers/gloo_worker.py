"""One rank of torch.distributed over gloo, from Python: its all-reduce, and an average with
neighbours made of isend and irecv, in turns with this project's from Python, and on several hosts
with the limit, streams between them.

Prints one JSON object per line on rank 0, as operations_benchmark does.
"""

import contextlib
import itertools
import json
import pathlib
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.distributed as dist

import bluefog_cpp.torch as bf
from bfbench.records import LEAST_LINK_BYTES, LIMITS
from bfbench.workers.link_stream import LinkStream
from bfbench.workers.rounds import figures_of, join_ranks, parser_of_operations, take_turns

ROTATED_BYTES = 64 << 20
MOST_BUFFERS = 16
# Values of operations_benchmark: one short call is not much longer than the timing itself.
SHORT_BYTES, SHORT_BATCH = 4096, 32
BOUND = ", threads bound"
TOO_LARGE = "its memory at {} bytes, beside that of the operations before it, is more than is free"


def parse_arguments():
    parser = parser_of_operations(__doc__)
    parser.add_argument("--hosts", type=int, default=1)
    parser.add_argument("--pause-ms", type=float, default=0,
                        help="before each timed batch of calls")
    parser.add_argument("--bound", action="store_true",
                        help="gloo's threads stay on their rank's cores; gloo alone")
    return parser.parse_args()


def exponential_neighbours(rank, size):
    """Whom `rank` sends to and hears in the exponential graph of base 2."""
    hops = [1 << k for k in range((size - 1).bit_length())]
    return [(rank + hop) % size for hop in hops], [(rank - hop) % size for hop in hops]


class NeighbourAverage:
    def __init__(self, rank, size, like):
        self.destinations, self.sources = exponential_neighbours(rank, size)
        self.like = like
        self.received = []

    def __call__(self, buffer):
        if not self.received:
            self.received = [torch.empty_like(self.like) for _ in self.sources]
        calls: list = [(dist.irecv, r, source) for r, source in zip(self.received, self.sources)]
        calls += [(dist.isend, buffer, destination) for destination in self.destinations]
        if buffer.is_cuda:  # one group, or each would wait for the one before
            works: list = dist.batch_isend_irecv([dist.P2POp(*call) for call in calls])
        else:
            works = [call(tensor, peer) for call, tensor, peer in calls]
        for work in works:
            work.wait()
        for received in self.received:
            buffer.add_(received)
        buffer.mul_(1 / (len(self.sources) + 1))


def limits(rank, size, hosts, like):
    """One contestant or none: a stream of few bytes does not tell what the link carries."""
    if hosts == 1 or like.nbytes < LEAST_LINK_BYTES:
        return []
    return [("link", "TCP stream to the next host", 1.0,
             LinkStream(rank, size, size // hosts, like))]


def own_calls(size):
    """(op, bus factor, call) of this project's from Python."""
    bf.set_topology(bf.ExponentialGraph(size))
    return [("neighbor_allreduce (exponential)", float((size - 1).bit_length()),
             bf.neighbor_allreduce_), ("allreduce", 2 * (size - 1) / size, bf.allreduce_)]


def available_bytes():
    """Memory of this machine that is free or can be; of what it does not tell, plenty."""
    with contextlib.suppress(OSError, StopIteration):
        lines = pathlib.Path("/proc/meminfo").read_text().splitlines()
        return 1024 * int(next(line for line in lines
                               if line.startswith("MemAvailable:")).split()[1])
    return 2**62


class Contestant(NamedTuple):
    peer: str
    op: str
    bus_factor: float
    call: Callable
    is_shared: bool = False
    """Its buffers lie in memory that the ranks of a host share."""


def contestants(rank, size, hosts, like, with_own):
    """Contestants that all ranks' memory suffices for, the last one the limit if there is one; and
    (peer, op) of the others."""
    # A fifth of the memory is left to others.
    budget = torch.tensor(0.8 * available_bytes() / (size // hosts), dtype=torch.float64)
    dist.broadcast(budget, 0)
    average = NeighbourAverage(rank, size, like)
    own = own_calls(size) if with_own else []
    # The first number is the call's own memory in buffers: gloo's all-reduce has room of its own.
    wanted = [(1, Contestant("gloo", "allreduce", 2 * (size - 1) / size, dist.all_reduce)),
              (len(average.sources), Contestant("gloo", "isend/irecv and average (exponential)",
                                                len(average.sources), average)),
              *((0, Contestant("bluefog_cpp", *call)) for call in own)]
    if hosts == 1:
        wanted += [(0 if place else many_of(like.nbytes), Contestant(
            "bluefog_cpp", op + ", shared buffers", factor, call, True))
            for place, (op, factor, call) in enumerate(own)]
    used = like.nbytes * (many_of(like.nbytes) + 1)
    found, too_large = [], []
    for more, contestant in wanted:
        if used + more * like.nbytes <= budget:
            used += more * like.nbytes
            found.append(contestant)
        else:
            too_large.append(contestant[:2])
    return found + [Contestant(*limit) for limit in limits(rank, size, hosts, like)
                    ] if found else [], too_large


def many_of(nbytes):
    return max(1, min(MOST_BUFFERS, ROTATED_BYTES // max(nbytes, 1)))


def rewritten(like, allocate=torch.empty):
    """A function that gives one of several buffers, rewritten, as operations_benchmark has them."""
    many = many_of(like.nbytes)
    buffers = [allocate(like.numel(), dtype=like.dtype) for _ in range(many)]
    calls_before = itertools.count()

    def prepare():
        call = next(calls_before)
        return buffers[call % many].fill_(1 + call % 8 / 8)
    return prepare


def main():
    args = parse_arguments()
    rank, size = join_ranks(args.store, args.bound)
    bf.init()
    dtype = getattr(torch, args.dtype)
    for wanted in map(int, args.sizes.split(",")):
        like = torch.empty(1, dtype=dtype).expand(-(-wanted // dtype.itemsize))  # without memory
        calls, too_large = contestants(rank, size, args.hosts, like, not args.bound)
        how = BOUND if args.bound else ""
        for peer, op in too_large if rank == 0 else []:
            print(json.dumps({"peer": peer, "op": op + how, "language": "Python", "ranks": size,
                              "dtype": args.dtype, "bytes": like.nbytes,
                              "not_run": TOO_LARGE.format(like.nbytes)}), flush=True)
        if not calls:
            continue
        apart = rewritten(like)
        shared = rewritten(like, bf.shared_zeros) if any(c.is_shared for c in calls) else apart
        times = take_turns([c.call for c in calls], args.seconds,
                           [shared if c.is_shared else apart for c in calls],
                           SHORT_BATCH if like.nbytes <= SHORT_BYTES else 1, args.pause_ms / 1e3,
                           bf.barrier)  # which ranks leave nearly at once
        found = [figures_of(values, like.nbytes, c.bus_factor)
                 for values, c in zip(times, calls)]
        for contestant, figures in zip(calls, found) if rank == 0 else []:
            if calls[-1].peer in LIMITS:
                figures["limit_ratio"] = figures["median_us"] / found[-1]["median_us"]
            print(json.dumps({
                "peer": contestant.peer,
                "op": contestant.op + (how if contestant.peer == "gloo" else ""), "ranks": size,
                "hosts": args.hosts,
                "device": "cpu", "dtype": args.dtype, "bytes": like.nbytes, **figures}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
