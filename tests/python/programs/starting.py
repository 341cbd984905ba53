"""starting.py [WAY …]: joins the ranks, trains a little, and prints "rank R of N: mean".

group_first, group_after: torch's default group is made before, or after, `init`, and used.
backend: that group is of this project's backend, in place of gloo.
ddp: the model is torch's DistributedDataParallel, decentralized; asks for one of the two.
own_group: it is made before, with a store, rank and size that the program chooses.
store PATH: the ranks meet in a file, by `init(store=…)`.
twice: joins, leaves and joins again.
fail_once: rank 1 fails in torchrun's first attempt.
spawn, fork, forkserver: the rank has a child, which is refused.
hosts: each rank is on a host of its own.
"""

import multiprocessing
import os
import sys

import torch
import torch.distributed as dist

import bluefog_cpp.torch as bf

WAYS = sys.argv[1:]
GROUP = "bluefog" if "backend" in WAYS else "gloo"


def train():
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if "ddp" in WAYS:
        model = torch.nn.parallel.DistributedDataParallel(model)
        optimizer = bf.decentralize(model, optimizer, schedule="ring")
    else:
        bf.broadcast_parameters(model.state_dict(), root_rank=0)
        optimizer = bf.DistributedAdaptThenCombineOptimizer(optimizer, model)
    torch.manual_seed(bf.rank())
    for _ in range(3):
        inputs = torch.randn(8, 4)
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
    optimizer.finish()


def use_group():
    total = torch.ones(1)
    dist.all_reduce(total)
    assert total.item() == bf.size() == dist.get_world_size()
    assert bf.rank() == dist.get_rank()


def has_refused_child(way):
    child = multiprocessing.get_context(way).Process(target=bf.init)
    child.start()
    child.join()
    return child.exitcode == 1


def main():
    if "hosts" in WAYS:
        os.environ["BLUEFOG_HOST_ID"] = os.environ["RANK"]
    if "group_first" in WAYS:
        dist.init_process_group(GROUP)
    if "own_group" in WAYS:
        rank, size = int(os.environ["PLACE"]), int(os.environ["PLACES"])
        dist.init_process_group(GROUP, store=dist.HashStore(), rank=rank, world_size=size)
    if "store" in WAYS:
        rank, size = int(os.environ.pop("PLACE")), int(os.environ.pop("PLACES"))
        bf.init(store=dist.FileStore(WAYS[1], size), rank=rank, size=size)
    else:
        bf.init()
    if "twice" in WAYS:
        bf.barrier()
        bf.shutdown()
        bf.init()
    if "group_after" in WAYS:
        dist.init_process_group(GROUP)
    if "fail_once" in WAYS and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and bf.rank() == 1:
        sys.exit(3)
    for way in ("spawn", "fork", "forkserver"):
        assert way not in WAYS or has_refused_child(way), "expected the child to be refused"
    train()
    mean = bf.allreduce(torch.tensor([float(bf.rank())])).item()
    if dist.is_initialized():
        use_group()
        dist.destroy_process_group()
    # In one piece: torchrun's ranks write without a buffer.
    sys.stdout.write(f"rank {bf.rank()} of {bf.size()}: {mean}\n")


if __name__ == "__main__":
    main()
