"""One rank of torch.distributed over gloo: its all-reduce, and an average with neighbours made of
isend and irecv, in turns with the limit: a memcpy that all ranks do at the same time, or, on
several hosts, streams between them.

Prints one JSON object per line on rank 0, as operations_benchmark does.
"""

import contextlib
import itertools
import json
import pathlib

import torch
import torch.distributed as dist

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
                        help="gloo's threads stay on their rank's cores")
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
    """As contestants, one or none: a stream of few bytes does not tell what the link carries."""
    if hosts == 1:
        return [("memcpy", "memcpy", 1.0, torch.empty_like(like).copy_)]
    if like.nbytes < LEAST_LINK_BYTES:
        return []
    return [("link", "TCP stream to the next host", 1.0,
             LinkStream(rank, size, size // hosts, like))]


def available_bytes():
    """Memory of this machine that is free or can be; of what it does not tell, plenty."""
    with contextlib.suppress(OSError, StopIteration):
        lines = pathlib.Path("/proc/meminfo").read_text().splitlines()
        return 1024 * int(next(line for line in lines
                               if line.startswith("MemAvailable:")).split()[1])
    return 2**62


def contestants(rank, size, hosts, like):
    """(peer, op, bus factor, call) of each that all ranks' memory suffices for, the last one the
    limit if there is one; and (peer, op) of the others."""
    # A fifth of the memory is left to others.
    budget = torch.tensor(0.8 * available_bytes() / (size // hosts), dtype=torch.float64)
    dist.broadcast(budget, 0)
    average = NeighbourAverage(rank, size, like)
    # The first number is the call's own memory in buffers: gloo's all-reduce has room of its own.
    wanted = [(1, ("gloo", "allreduce", 2 * (size - 1) / size, dist.all_reduce)),
              (len(average.sources),
               ("gloo", "isend/irecv and average (exponential)", len(average.sources), average))]
    used = like.nbytes * (many_of(like.nbytes) + 1)
    found, too_large = [], []
    for more, contestant in wanted:
        if used + more * like.nbytes <= budget:
            used += more * like.nbytes
            found.append(contestant)
        else:
            too_large.append(contestant[:2])
    return found + limits(rank, size, hosts, like) if found else [], too_large


def many_of(nbytes):
    return max(1, min(MOST_BUFFERS, ROTATED_BYTES // max(nbytes, 1)))


def rewritten(like):
    """A function that gives one of several buffers, rewritten, as operations_benchmark has them."""
    many = many_of(like.nbytes)
    buffers = [torch.empty_like(like) for _ in range(many)]
    calls_before = itertools.count()

    def prepare():
        call = next(calls_before)
        return buffers[call % many].fill_(1 + call % 8 / 8)
    return prepare


def main():
    args = parse_arguments()
    rank, size = join_ranks(args.store, args.bound)
    dtype = getattr(torch, args.dtype)
    for wanted in map(int, args.sizes.split(",")):
        like = torch.empty(1, dtype=dtype).expand(-(-wanted // dtype.itemsize))  # without memory
        calls, too_large = contestants(rank, size, args.hosts, like)
        how = BOUND if args.bound else ""
        for peer, op in too_large if rank == 0 else []:
            print(json.dumps({"peer": peer, "op": op + how, "ranks": size, "dtype": args.dtype,
                              "bytes": like.nbytes, "not_run": TOO_LARGE.format(like.nbytes)}),
                  flush=True)
        if not calls:
            continue
        times = take_turns([call for *_, call in calls], args.seconds, rewritten(like),
                           SHORT_BATCH if like.nbytes <= SHORT_BYTES else 1, args.pause_ms / 1e3)
        found = [figures_of(values, like.nbytes, factor)
                 for values, (_, _, factor, _) in zip(times, calls)]
        if rank == 0:
            for (peer, op, _, _), figures in zip(calls, found):
                if calls[-1][0] in LIMITS:
                    figures["limit_ratio"] = figures["median_us"] / found[-1]["median_us"]
                print(json.dumps({
                    "peer": peer, "op": op + (how if peer == "gloo" else ""), "ranks": size,
                    "hosts": args.hosts,
                    "device": "cpu", "dtype": args.dtype, "bytes": like.nbytes, **figures}),
                      flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
