"""One rank of this project's calls beside torch.distributed's, both from Python, on the memory of
one kind of device: NCCL on GPUs, gloo on CPUs. In turns with the limit: a copy on the device, which
all ranks make at the same time. A call counts until its result is there.

Prints one JSON object per line on rank 0, as operations_benchmark does.
"""

import json

import torch
import torch.distributed as dist

import bluefog_cpp.torch as bf
from bfbench.workers.gloo_worker import NeighbourAverage, rewritten
from bfbench.workers.rounds import figures_of, join_gloo, parser_of_operations, take_turns

PEERS = {"cuda": "NCCL", "cpu": "gloo"}


def parse_arguments():
    parser = parser_of_operations(__doc__)
    parser.add_argument("--device", choices=PEERS, required=True)
    return parser.parse_args()


def contestants(rank, size, like):
    """(peer, op, bus factor, call) of each; the last one is the limit."""
    peer = PEERS[like.device.type]
    average = NeighbourAverage(rank, size, like)
    sources = len(average.sources)
    return [
        ("bluefog_cpp", "neighbor_allreduce (exponential)", sources, bf.neighbor_allreduce_),
        ("bluefog_cpp", "allreduce", 2 * (size - 1) / size, bf.allreduce_),
        (peer, "allreduce", 2 * (size - 1) / size, dist.all_reduce),
        (peer, "send/receive and average (exponential)", sources, average),
        ("memcpy", "memcpy", 1.0, torch.empty_like(like).copy_),
    ]


def until_there(call, device):
    """`call`, which returns when the device has its result."""
    if device.type == "cpu":
        return call

    def complete(buffer):
        call(buffer)
        torch.cuda.synchronize(device)
    return complete


def main():
    args = parse_arguments()
    bf.init()
    rank, size = bf.rank(), bf.size()
    join_gloo(args.store, rank, size,
              backend="gloo" if args.device == "cpu" else "cpu:gloo,cuda:nccl")
    device = torch.device(args.device)
    if args.device == "cuda":
        device = torch.device("cuda", bf.local_rank() % torch.cuda.device_count())
        torch.cuda.set_device(device)
        bf.use_device()
    dtype = getattr(torch, args.dtype)
    for wanted in map(int, args.sizes.split(",")):
        like = torch.empty(-(-wanted // dtype.itemsize), dtype=dtype, device=device)
        calls = contestants(rank, size, like)
        buffers = rewritten(like)

        def prepare(buffers=buffers):
            buffer = buffers()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            return buffer

        times = take_turns([until_there(call, device) for *_, call in calls], args.seconds, prepare)
        found = [figures_of(values, like.nbytes, factor)
                 for values, (_, _, factor, _) in zip(times, calls)]
        if rank == 0:
            for (peer, op, _, _), figures in zip(calls, found):
                print(json.dumps({
                    "peer": peer, "op": op, "ranks": size, "hosts": 1, "device": args.device,
                    "dtype": args.dtype, "bytes": like.nbytes, **figures,
                    "limit_ratio": figures["median_us"] / found[-1]["median_us"]}), flush=True)
    bf.shutdown()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
