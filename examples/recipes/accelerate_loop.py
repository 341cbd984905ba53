"""Accelerate: after `prepare`, the optimizer inside of its own is decentralized.

    torchrun --nproc-per-node 2 accelerate_loop.py
    bfrun -np 2 python accelerate_loop.py
"""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

import bluefog_cpp.torch as bf


def main():
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    bf.init()
    torch.manual_seed(0)
    inputs = torch.randn(64, 4)
    loader = DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=4)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 4, 0.5)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    optimizer.optimizer = bf.decentralize(model, optimizer.optimizer)
    for batch, targets in loader:
        with accelerator.accumulate(model):
            loss = torch.nn.functional.mse_loss(model(batch), targets)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()


if __name__ == "__main__":
    main()
