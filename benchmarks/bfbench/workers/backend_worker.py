"""One rank of torch.distributed over its backends "bluefog" and "gloo": the same calls of torch, on
the same tensors, in turns, and a memcpy that all ranks do at the same time.

Prints one JSON object per line on rank 0, as operations_benchmark does.
"""

import itertools
import json

import torch
import torch.distributed as dist

import bluefog_cpp.torch  # noqa: F401  registers the backend
from bfbench.records import BY_TORCH, OF_BACKENDS_MEMORY
from bfbench.workers.gloo_worker import SHORT_BATCH, SHORT_BYTES, many_of, rewritten
from bfbench.workers.rounds import figures_of, join_ranks, parser_of_operations, take_turns


def parse_arguments():
    parser = parser_of_operations(__doc__)
    parser.add_argument("--hosts", type=int, default=1)
    return parser.parse_args()


def calls_of(group, size, like):
    """(op, bus factor, call) of each call of torch, the whole of which has `like.nbytes`."""
    part = torch.empty(max(1, like.numel() // size), dtype=like.dtype)
    whole = torch.empty(part.numel() * size, dtype=like.dtype)

    def all_gather(_):
        dist.all_gather_into_tensor(whole, part, group=group)

    def reduce_scatter(_):
        dist.reduce_scatter_tensor(part, whole, group=group)

    share = (size - 1) / size
    return [("all_reduce" + BY_TORCH, 2 * share, lambda x: dist.all_reduce(x, group=group)),
            ("all_gather_into_tensor" + BY_TORCH, share, all_gather),
            ("reduce_scatter_tensor" + BY_TORCH, share, reduce_scatter)]


def call_on_own_memory(group, size, like):
    """An all_reduce of tensors of the backend's, as DDP's buckets are: several in turn, of zeros,
    which sums leave as they are."""
    cpu = torch.device("cpu")
    backend = group._get_backend(cpu)
    tensors = itertools.cycle([backend.allocate_tensor(like.numel(), dtype=like.dtype, device=cpu)
                               for _ in range(many_of(like.nbytes))])
    return ("all_reduce" + OF_BACKENDS_MEMORY + BY_TORCH, 2 * (size - 1) / size,
            lambda _: dist.all_reduce(next(tensors), group=group))


def main():
    args = parse_arguments()
    rank, size = join_ranks(args.store)
    groups = {"bluefog_cpp": dist.new_group(backend="bluefog"), "gloo": dist.group.WORLD}
    dtype = getattr(torch, args.dtype)
    for nbytes in map(int, args.sizes.split(",")):
        like = torch.ones(nbytes // dtype.itemsize, dtype=dtype)
        calls = [(peer, *call) for peer, group in groups.items()
                 for call in calls_of(group, size, like)]
        calls.append(("bluefog_cpp", *call_on_own_memory(groups["bluefog_cpp"], size, like)))
        calls.append(("memcpy", "memcpy", 1.0, torch.empty_like(like).copy_))
        times = take_turns([call for *_, call in calls], args.seconds, rewritten(like),
                           SHORT_BATCH if nbytes <= SHORT_BYTES else 1)
        found = [figures_of(values, like.nbytes, factor)
                 for values, (_, _, factor, _) in zip(times, calls)]
        if rank == 0:
            for (peer, op, _, _), figures in zip(calls, found):
                figures["limit_ratio"] = figures["median_us"] / found[-1]["median_us"]
                print(json.dumps({"peer": peer, "op": op, "ranks": size, "hosts": args.hosts,
                                  "device": "cpu", "dtype": args.dtype, "bytes": like.nbytes,
                                  **figures}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
