"""Calls from Python give on a GPU what they give on the CPU: one rank's part.

    bfrun -np 4 python tests/cuda/calls.py

The last line is a JSON object: by call, how many elements differ, on any rank, or why it was not
made. Exit code 1 where one differs.
"""

import sys

import torch

import bluefog_cpp.torch as bf
import compared

COUNT = 100_003
GRAPH_LAUNCHES = 3


class NotMade(Exception):
    """A call that cannot be made here, and why."""


def values(device, dtype=torch.float32, count=COUNT):
    """This rank's, none of which is a short fraction."""
    start = 10 * bf.rank()
    return torch.arange(start, start + count, dtype=torch.float64).mul(0.7).sin().to(dtype).to(
        device)


def averages(device):
    found = []
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        x = values(device, dtype)
        found += [bf.neighbor_allreduce(x), bf.allreduce(x), bf.allreduce(x, average=False),
                  bf.neighbor_allreduce_(x.clone()), bf.synchronize(
                      bf.neighbor_allreduce_nonblocking(x))]
    return found


def gathers(device):
    x = values(device, count=60 + bf.rank()).view(-1, 1)
    return [bf.allgather(x), bf.neighbor_allgather(x), bf.broadcast(values(device), 0)]


def pairs(device):
    pair = bf.rank() ^ 1
    if pair >= bf.size():
        return []
    return [bf.pair_gossip(values(device), pair)]


def slices(device):
    """Memory that does not begin a block, and a tensor that is not contiguous."""
    x = values(device)
    return [bf.neighbor_allreduce(x[1:]), bf.allreduce(x[:COUNT // 2 * 2].view(-1, 2).t())]


def windows(device):
    x = values(device)
    name = f"window on {device.type}"
    bf.win_create(x, name)
    found = []
    for change in (lambda: bf.win_put(x, name), lambda: bf.win_accumulate(x, name),
                   lambda: bf.win_get(name)):
        change()
        bf.barrier()
        found.append(bf.win_update(name, clone=True))
        bf.barrier()
    bf.win_free(name)
    return found


def batch_norm(device):
    """Forward and backward; the inputs make sums that no order of additions changes. What roots
    come into is compared to four decimals."""
    layer = bf.SyncBatchNorm(2).to(device)
    x = torch.tensor([[1.0, 2.0], [3.0, 6.0]]).add(4 * bf.rank()).to(device).requires_grad_()
    y = layer(x)
    y.backward(x.detach().square() * 0.25)
    rounded = [tensor.detach().round(decimals=4) for tensor in (y, x.grad, layer.weight.grad)]
    return [layer.running_mean, layer.running_var, layer.bias.grad, *rounded]


def captured(device):
    """A CUDA graph of a step: each launch makes the calls once more."""
    x = values(device)
    if device.type == "cpu":
        for _ in range(GRAPH_LAUNCHES):
            x.mul_(0.5).add_(bf.rank())
            bf.neighbor_allreduce_(x)
            bf.allreduce_(x)
        return [x]

    def step():
        buffer.mul_(0.5).add_(bf.rank())
        bf.neighbor_allreduce_(buffer)
        bf.allreduce_(buffer)

    if not bf.nccl_built():
        raise NotMade("calls are captured where they go by NCCL")
    buffer = x.clone()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    buffer.copy_(x)
    for _ in range(GRAPH_LAUNCHES):
        graph.replay()
    torch.cuda.synchronize()
    return [buffer]


CALLS = (averages, gathers, pairs, slices, windows, batch_norm, captured)


def main():
    device = compared.device_asked_for(__doc__)
    bf.init()
    if device.type == "cuda":
        device = compared.take_gpu(bf.local_rank())
        bf.use_device()
    different, not_made = {}, {}
    for call in CALLS:
        try:
            count = compared.differences(call, device)
        except NotMade as reason:  # the same on all ranks
            not_made[call.__name__] = str(reason)
            continue
        different[call.__name__] = int(bf.allreduce(torch.tensor([float(count)]), average=False))
    code = compared.report(bf.rank(), different, not_made=not_made)
    bf.shutdown()
    return code


if __name__ == "__main__":
    sys.exit(main())
