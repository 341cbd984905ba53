"""A DDP program that gossips; its two lines with `bf` make the difference.

    torchrun --nproc-per-node 2 ddp.py
    bfrun -np 2 python ddp.py
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import bluefog_cpp.torch as bf


def main():
    dist.init_process_group("gloo")
    bf.init()
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = bf.decentralize(model, optimizer)
    torch.manual_seed(1 + dist.get_rank())  # each rank has data of its own
    for _ in range(8):
        optimizer.zero_grad()
        with model.no_sync():
            loss_of(model).backward()
        loss_of(model).backward()
        optimizer.step()
    print(f"rank {bf.rank()}: loss {loss_of(model).item():.3f}")


def loss_of(model):
    inputs = torch.randn(16, 4)
    return torch.nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True)) / 2


if __name__ == "__main__":
    main()
