"""Checkpoints of torch.distributed.checkpoint that any number of ranks loads.

    torchrun --nproc-per-node 2 checkpoint.py FOLDER
    torchrun --nproc-per-node 3 checkpoint.py FOLDER   # goes on from the mean of the two models
"""

import pathlib
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_state_dict,
    set_state_dict,
)
from torch.nn.parallel import DistributedDataParallel

import bluefog_cpp.torch as bf


def save(folder, model, optimizer):
    """Ranks hold different models: each one's lies under a name of its own."""
    optimizer.finish()
    of_model, of_optimizer = get_state_dict(model, optimizer)
    dcp.save({f"rank {bf.rank()}": {"model": of_model, "optimizer": of_optimizer}},
             checkpoint_id=folder)


def load(folder, model, optimizer):
    """Goes on where as many ranks were; another number begins from the mean model, with the state
    of a new optimizer."""
    names = dcp.FileSystemReader(folder).read_metadata().state_dict_metadata
    saved = len({name.partition(".")[0] for name in names})
    if saved == bf.size():
        of_model, of_optimizer = get_state_dict(model, optimizer)
        own = {"model": of_model, "optimizer": of_optimizer}
        dcp.load({f"rank {bf.rank()}": own}, checkpoint_id=folder)
        set_state_dict(model, optimizer, model_state_dict=own["model"],
                       optim_state_dict=own["optimizer"])
        return
    own = get_model_state_dict(model)  # tensors of the model itself
    total = {name: torch.zeros_like(value, dtype=torch.float64) for name, value in own.items()}
    for rank in range(saved):
        dcp.load({f"rank {rank}": {"model": own}}, checkpoint_id=folder)
        for name, value in own.items():
            total[name] += value
    for name, value in own.items():
        value.copy_(total[name] / saved)


def main(folder):
    dist.init_process_group("gloo")
    bf.init()
    net = torch.nn.Linear(4, 1)
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    if pathlib.Path(folder).exists():
        load(folder, model, optimizer)
    sys.stdout.write(f"rank {bf.rank()} of {bf.size()} starts from "
                     f"{net.weight.flatten().tolist()}\n")
    # The values that were loaded stay, and are averaged every second step.
    optimizer = bf.decentralize(model, optimizer, root_rank=None, num_steps_per_communication=2)
    torch.manual_seed(bf.rank())
    for _ in range(5):
        inputs = torch.randn(16, 4)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True)).backward()
        optimizer.step()
    save(folder, model, optimizer)


if __name__ == "__main__":
    main(sys.argv[1])
