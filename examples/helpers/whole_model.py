"""torch's DistributedDataParallel with the calls of an elastic pipeline, as its yardstick: each rank
has the whole model, and nothing changes."""

import os
import socket

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from bluefog_cpp.pipeline import StepTimes


class WholeModel:
    """A pipeline of one stage on each rank, whose gradients DDP averages in the backward pass."""

    stages, stage, frozen, cached_rows = 1, 0, 0, 0

    def __init__(self, model, loss):
        self._ddp = DistributedDataParallel(model)
        self._loss = loss
        self.times = StepTimes()
        self.replicas, self.replica = dist.get_world_size(), dist.get_rank()
        hosts = [""] * self.replicas
        dist.all_gather_object(hosts, os.environ.get("BLUEFOG_HOST_ID") or socket.gethostname())
        self._machine_syncs = int(len(set(hosts)) > 1)
        self.costs = [float(sum(p.numel() for p in layer.parameters())) for layer in model]

    def step(self, optimizer, inputs, targets, rows, all_rows, samples):
        """As ElasticPipeline's; a rank without rows is none of DDP's."""
        if not rows:
            raise SystemExit(f"--ddp: expected rows for each of {self.replicas} ranks, found "
                             f"{all_rows} in all: choose a batch_size that divides the images")
        self.times = StepTimes()
        with self.times.part("total", "step"):
            optimizer.zero_grad()
            with self.times.part("forward", "forward"):
                loss = self._loss(self._ddp(inputs), targets)
            with self.times.part("backward", "backward"):
                # DDP takes the mean over ranks, where the mean over rows is meant.
                (loss * (rows * self.replicas / all_rows)).backward()
            with self.times.part("optimizer", "optimizer"):
                optimizer.step()
        gradients = [p.grad for p in self._ddp.parameters() if p.grad is not None]
        self.times.averaged_parameters = sum(gradient.numel() for gradient in gradients)
        self.times.averaged_bytes = sum(gradient.nbytes for gradient in gradients)
        self.times.machine_syncs = self._machine_syncs
        return float(loss.detach())

    @torch.no_grad()
    def evaluate(self, inputs, rows):
        return self._ddp.module(inputs)
