"""torch.distributed over the backend "bluefog" gives on a GPU what it gives on the CPU: one rank's
part.

    bfrun -np 4 python tests/cuda/backend.py

The last line is a JSON object: by call, how many elements differ, on any rank. Exit code 1 where
one differs.
"""

import os
import sys

import torch
import torch.distributed as dist

import bluefog_cpp.torch  # noqa: F401  # registers the backend, in a build tree too
import compared

COUNT = 10_007
STEPS = 3


def values(device, dtype=torch.float32, count=COUNT):
    """This rank's."""
    start = 10 * dist.get_rank()
    return torch.arange(start, start + count, dtype=torch.float64).mul(0.7).sin().mul(50).to(
        dtype).to(device)


def all_reduce(device):
    found = []
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.complex64):
        found.append(values(device, dtype))
        dist.all_reduce(found[-1])
    for rule in (dist.ReduceOp.AVG, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT):
        found.append(values(device))
        dist.all_reduce(found[-1], rule)
    transposed = values(device)[:100].view(10, 10).t()
    dist.all_reduce(transposed)
    return [*found, transposed]


def to_one_and_from_one(device):
    size, rank = dist.get_world_size(), dist.get_rank()
    spread, reduced, part = values(device), values(device), values(device, count=5)
    dist.broadcast(spread, size - 1)
    dist.reduce(reduced, 0)
    gathered = [torch.empty_like(part) for _ in range(size)] if rank == 0 else None
    dist.gather(part, gathered, 0)
    scattered = torch.empty_like(part)
    dist.scatter(scattered, [part + each for each in range(size)] if rank == 0 else None, 0)
    return [spread, scattered, *(gathered or ()), *([reduced] if rank == 0 else ())]


def all_to_all(device):
    size = dist.get_world_size()
    part, rows = values(device), values(device, count=6 * size)
    listed = [torch.empty_like(part) for _ in range(size)]
    dist.all_gather(listed, part)
    flat = torch.empty(size * COUNT, device=device)
    dist.all_gather_into_tensor(flat, part)
    summed, exchanged = torch.empty(6, device=device), torch.empty_like(rows)
    dist.reduce_scatter_tensor(summed, rows)
    dist.all_to_all_single(exchanged, rows)
    return [*listed, flat, summed, exchanged]


def messages(device):
    size, rank = dist.get_world_size(), dist.get_rank()
    if size == 1:
        return []
    sent, received = values(device), torch.zeros(COUNT, device=device)
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, sent, (rank + 1) % size),
                                    dist.P2POp(dist.irecv, received, (rank - 1) % size)])
    for work in works:
        work.wait()
    return [sent, received]


def started_and_waited_for(device):
    """By `wait` on another stream, and by a future."""
    first, second = values(device), values(device)
    work = dist.all_reduce(first, async_op=True)
    future = dist.all_reduce(second, async_op=True).get_future()
    if device.type == "cuda":
        other = torch.cuda.Stream()
        with torch.cuda.stream(other):
            work.wait()
            first.mul_(2)
        torch.cuda.current_stream().wait_stream(other)
    else:
        work.wait()
        first.mul_(2)
    return [first, future.wait()[0]]


def data_parallel(device):
    """Products and differences of single elements, which a GPU and the CPU round alike."""
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.arange(300, dtype=torch.float32).mul(0.7).sin())

        def forward(self, x):
            return self.weight * x

    model = Model().to(device)
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.0625, foreach=False)
    for _ in range(STEPS):
        optimizer.zero_grad()
        parallel(values(device, count=300)).sub(0.5).square().sum().backward()
        optimizer.step()
    return [model.weight.detach()]


CALLS = (all_reduce, to_one_and_from_one, all_to_all, messages, started_and_waited_for,
         data_parallel)


def main():
    device = compared.device_asked_for(__doc__)
    if "RANK" in os.environ:
        dist.init_process_group("bluefog")
    else:
        dist.init_process_group("bluefog", store=dist.HashStore(), rank=0, world_size=1)
    if device.type == "cuda":
        device = compared.take_gpu(dist.get_rank())
    different = {}
    for call in CALLS:
        count = torch.tensor([compared.differences(call, device)])
        dist.all_reduce(count)
        different[call.__name__] = int(count)
    code = compared.report(dist.get_rank(), different)
    dist.destroy_process_group()
    return code


if __name__ == "__main__":
    sys.exit(main())
