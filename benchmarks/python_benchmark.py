"""Times the Python package against gloo and memcpy, in turns within one run.

    bfrun -np 2 python benchmarks/python_benchmark.py

Rank 0 prints, for each case, the median over rounds of the slowest rank, and the ratio to what it
is compared with: a blocking call of 4 B, also prepared; 100 MiB out of place and in place; the
parameters of resnet18 (62 tensors, 44.6 MiB) through an optimizer, as single non-blocking calls, as
one call, and as one bucket.
"""

import argparse
import os
import statistics
import time

import torch
import torch.distributed as dist

import bluefog_cpp.torch as bf

# Shapes of resnet18 for 1000 classes: 7 × 7 convolution and batch norm, four stages, dense layer.
SHAPES = [(64, 3, 7, 7), (64,), (64,)]
for _inputs, _outputs in ((64, 64), (64, 128), (128, 256), (256, 512)):
    SHAPES += [(_outputs, _inputs, 3, 3), (_outputs,), (_outputs,)]
    SHAPES += [(_outputs, _outputs, 3, 3), (_outputs,), (_outputs,)] * 3
    if _inputs != _outputs:
        SHAPES += [(_outputs, _inputs, 1, 1), (_outputs,), (_outputs,)]
SHAPES += [(1000, 512), (1000,)]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=200, help="of 4 B in each round")
    parser.add_argument("--bytes", type=int, default=100 * 2**20, help="of the large tensor")
    return parser.parse_args()


def median_seconds(cases, rounds, calls=1):
    """The median over rounds of the slowest rank, for each case; the cases take turns."""
    found = {name: [] for name in cases}
    for number in range(rounds + 1):
        for name, case in cases.items():
            bf.barrier()
            begin = time.perf_counter()
            for _ in range(calls):
                case()
            if number > 0:  # the first one warms up
                found[name].append((time.perf_counter() - begin) / calls)
    medians = torch.tensor([statistics.median(times) for times in found.values()],
                           dtype=torch.float64)
    slowest = bf.allgather(medians.unsqueeze(0)).max(0).values
    return dict(zip(cases, slowest.tolist()))


def report(title, seconds, reference):
    if bf.rank() == 0:
        print(title)
        for name, value in seconds.items():
            shown = f"{1e6 * value:10.1f} µs" if value < 1e-3 else f"{1e3 * value:10.2f} ms"
            print(f"  {name:34}{shown}   {value / seconds[reference]:6.3f} × {reference}",
                  flush=True)


def small(arguments):
    x, y = torch.ones(1), torch.ones(1)
    prepared = bf.neighbor_allreduce_.prepare(x)
    report("4 B, blocking", median_seconds({
        "neighbor_allreduce": lambda: bf.neighbor_allreduce(x),
        "neighbor_allreduce_ (in place)": lambda: bf.neighbor_allreduce_(x),
        "neighbor_allreduce_.prepare": prepared,
        "gloo all_reduce": lambda: dist.all_reduce(y)}, arguments.rounds, arguments.calls),
           "gloo all_reduce")


def large(arguments):
    count = arguments.bytes // 4
    x, y, z, gloo = (torch.ones(count) for _ in range(4))
    report(f"{arguments.bytes / 2**20:.1f} MiB", median_seconds({
        "neighbor_allreduce": lambda: bf.neighbor_allreduce(x),
        "neighbor_allreduce_ (in place)": lambda: bf.neighbor_allreduce_(y),
        "memcpy by all ranks": lambda: z.copy_(x),
        "gloo all_reduce": lambda: dist.all_reduce(gloo)}, arguments.rounds), "memcpy by all ranks")


def model_of_shapes():
    model = torch.nn.Module()
    model.values = torch.nn.ParameterList(torch.nn.Parameter(torch.randn(shape))
                                          for shape in SHAPES)
    for parameter in model.values:
        parameter.grad = torch.zeros_like(parameter)
    return model


def parameters(arguments):
    wrapped, plain = model_of_shapes(), model_of_shapes()
    optimizer = bf.DistributedAdaptThenCombineOptimizer(
        torch.optim.SGD(wrapped.parameters(), lr=0.0), wrapped)
    local = torch.optim.SGD(plain.parameters(), lr=0.0)
    tensors = [torch.randn(shape) for shape in SHAPES]
    count = sum(tensor.numel() for tensor in tensors)
    bucket, shared_bucket = torch.randn(count), bf.shared_zeros(count)

    def single_calls():
        for handle in [bf.neighbor_allreduce_nonblocking_(tensor) for tensor in tensors]:
            bf.synchronize(handle)

    def single_gloo_calls():
        for work in [dist.all_reduce(tensor, async_op=True) for tensor in tensors]:
            work.wait()

    seconds = median_seconds({
        "optimizer.step with averages": optimizer.step, "plain optimizer.step": local.step,
        f"{len(SHAPES)} calls in place": single_calls,
        "neighbor_allreduce_multi_": lambda: bf.neighbor_allreduce_multi_(tensors),
        "one bucket in place": lambda: bf.neighbor_allreduce_(bucket),
        "one bucket of shared_zeros": lambda: bf.neighbor_allreduce_(shared_bucket),
        f"{len(SHAPES)} calls of gloo": single_gloo_calls}, arguments.rounds)
    seconds["what the averages add to a step"] = max(
        0.0, seconds["optimizer.step with averages"] - seconds["plain optimizer.step"])
    total = sum(parameter.numel() for parameter in plain.parameters()) * 4 / 2**20
    report(f"resnet18: {len(SHAPES)} tensors, {total:.1f} MiB", seconds,
           f"{len(SHAPES)} calls of gloo")


def main():
    arguments = parse_arguments()
    bf.init()
    torch.set_num_threads(1)
    store = None if "RANK" in os.environ else (
        dist.HashStore())  # type: ignore[attr-defined]  # has no stub
    dist.init_process_group("gloo", rank=bf.rank(), world_size=bf.size(), store=store)
    if bf.rank() == 0:
        print(f"{bf.size()} ranks; torch {torch.__version__}; load of the machine "
              f"{os.getloadavg()[0]:.1f}; medians of {arguments.rounds} rounds, slowest rank")
    small(arguments)
    large(arguments)
    parameters(arguments)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
