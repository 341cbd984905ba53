"""One rank of bfbench syncbn: batch normalisation over all ranks, forward and backward, in turns.

Prints one JSON object per contestant and shape on rank 0.
"""

import argparse
import json
import time

import torch
import torch.distributed as dist

import bluefog_cpp.torch as bf
from bfbench.workers.rounds import figures_of, join_ranks, take_turns
from bfbench.workers.torch_sync_batch_norm import TorchSyncBatchNorm

# The last one, each rank for itself, is the limit.
CONTESTANTS = {
    "bluefog_cpp": bf.SyncBatchNorm,
    "torch's formulas (gloo)": TorchSyncBatchNorm,
    "no communication": torch.nn.BatchNorm1d,
}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", required=True, help="file where ranks of gloo meet")
    parser.add_argument("--batches", required=True, help="rows of a rank, by commas")
    parser.add_argument("--hidden", required=True, help="channels, by commas")
    parser.add_argument("--seconds", type=float, required=True)
    return parser.parse_args()


def step(layer):
    def call(input):
        layer.zero_grad()
        output = layer(input)
        output.backward(output)
        return output
    return call


def peak_bytes(call, input):
    """The most memory that tensors hold at a time which the call makes."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU],
                                profile_memory=True) as profile:
        call(input)
    changes = [(event.start_ns(), event.nbytes())
               for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = most = 0
    for _, change in sorted(changes, key=lambda item: item[0]):
        held += change
        most = max(most, held)
    return most


def check_alike(calls, input):
    """All who communicate compute the same."""
    one, other = (call(input).detach() for call in calls[:2])
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def measure(batch, hidden, seconds):
    calls = [step(make(hidden)) for make in CONTESTANTS.values()]
    inputs = [torch.randn(batch, hidden, requires_grad=True) for _ in range(8)]
    calls_before = iter(range(1 << 62))

    def prepare():
        chosen = inputs[next(calls_before) % len(inputs)]
        chosen.grad = None
        return chosen

    check_alike(calls, inputs[0])
    times = take_turns(calls, seconds, prepare)
    found = [figures_of(values, inputs[0].nbytes) for values in times]
    for figures, call in zip(found, calls):
        figures["peak_bytes"] = peak_bytes(call, prepare())
        figures["limit_ratio"] = figures["median_us"] / found[-1]["median_us"]
    return found


def main():
    args = parse_arguments()
    torch.set_num_threads(1)
    rank, size = join_ranks(args.store)
    bf.init()
    torch.manual_seed(rank)
    for batch in map(int, args.batches.split(",")):
        for hidden in map(int, args.hidden.split(",")):
            for peer, figures in zip(CONTESTANTS, measure(batch, hidden, args.seconds)):
                if rank == 0:
                    print(json.dumps({"peer": peer, "op": f"batch norm {batch} × {hidden}",
                                      "ranks": size, "hosts": 1, "dtype": "float32",
                                      "bytes": 4 * batch * hidden, **figures}), flush=True)
    bf.shutdown()
    dist.destroy_process_group()
    # The pause is for the threads of torch.profiler, which live on: they let go of the last call's
    # tensors in a moment, for which the interpreter must not have begun to end.
    time.sleep(0.5)


if __name__ == "__main__":
    main()
