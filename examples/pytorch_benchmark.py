"""Images per second of training a torchvision model on synthetic images.

    bfrun -np 4 python examples/pytorch_benchmark.py --model resnet50 --batch-size 64 \\
        --dist-optimizer neighbor_allreduce --atc-style
"""

import argparse
import atexit
import contextlib
import os
import statistics
import sys
import timeit

import torch

import bluefog_cpp.torch as bf
from helpers import devices, dist_optimizer, networks
from helpers.counts import at_least

try:
    from torchvision import models
except ImportError:
    sys.exit(
        "pytorch_benchmark.py takes its models from torchvision: pip install torchvision==0.26.0 "
        "fits torch 2.11.0"
    )


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--model",
        default="resnet50",
        help="any classification model of torchvision, or lenet, a small one",
    )
    parser.add_argument(
        "--batch-size", type=at_least(1), default=32, help="images of one rank and step"
    )
    parser.add_argument(
        "--image-size",
        type=at_least(1),
        help="pixels along an edge; default: 28 for lenet, 32 for resnet18, else 224",
    )
    parser.add_argument("--num-classes", type=at_least(2), default=1000)
    parser.add_argument("--num-warmup-batches", type=at_least(0), default=10)
    parser.add_argument("--num-batches-per-iter", type=at_least(1), default=10)
    parser.add_argument("--num-iters", type=at_least(1), default=10)
    parser.add_argument(
        "--profiler", action="store_true", help="rank 0 shows what its time went into"
    )
    devices.add_argument(parser)
    dist_optimizer.add_arguments(parser, more=("pytorch_ddp",))
    arguments = parser.parse_args()
    networks.check_name(parser, models, arguments.model, more=("lenet",))
    dist_optimizer.check(parser, arguments)
    if arguments.image_size is None:
        arguments.image_size = {"lenet": 28, "resnet18": 32}.get(arguments.model, 224)
    if arguments.model == "lenet" and arguments.image_size < networks.SmallNet.LEAST_SIDE:
        parser.error(
            f"--image-size: expected at least {networks.SmallNet.LEAST_SIDE} pixels for lenet, found "
            f"{arguments.image_size}"
        )
    return arguments


def with_ddp(model, device):
    """torch's own data parallelism, over gloo, or NCCL on GPUs."""
    if not torch.distributed.is_initialized():
        # bfrun tells the ranks that it starts where they meet.
        launched = {} if "RANK" in os.environ else {"store": torch.distributed.HashStore()}
        backend = "gloo" if device.type == "cpu" else "nccl"
        torch.distributed.init_process_group(
            backend, rank=bf.rank(), world_size=bf.size(), **launched
        )
        atexit.register(torch.distributed.destroy_process_group)
    return torch.nn.parallel.DistributedDataParallel(model)


class Training:
    """One step after the other on the same images."""

    def __init__(self, arguments, device):
        torch.manual_seed(0)
        side, classes = arguments.image_size, arguments.num_classes
        is_small = arguments.model == "lenet"
        self.model = (
            networks.SmallNet(side, classes)
            if is_small
            else models.get_model(arguments.model, weights=None, num_classes=classes)
        ).to(device)
        bf.broadcast_parameters(self.model.state_dict(), root_rank=0)
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        if arguments.dist_optimizer == "pytorch_ddp":
            self.model, self.optimizer = with_ddp(self.model, device), optimizer
        else:
            self.optimizer = dist_optimizer.wrap(arguments, optimizer, self.model)
        self.turns = dist_optimizer.Turns(arguments, self.optimizer)
        self.images = torch.randn(
            arguments.batch_size, 1 if is_small else 3, side, side, device=device
        )
        self.labels = torch.randint(classes, (arguments.batch_size,), device=device)

    def step(self):
        self.turns.next()
        self.optimizer.zero_grad()
        output = self.model(self.images)
        # Models with auxiliary classifiers return several outputs.
        output = getattr(output, "logits", output)
        torch.nn.functional.cross_entropy(output, self.labels).backward()
        self.optimizer.step()


def show(*words):
    if bf.rank() == 0:
        print(*words, flush=True)


def measure(arguments, device, training):
    """This rank's images per second, by iteration."""
    rates = []
    unit = "CPU" if device.type == "cpu" else "GPU"

    def seconds_of(steps):
        def run():
            for _ in range(steps):
                training.step()
            devices.synchronize(device)

        return timeit.timeit(run, number=1)

    show(f"Running warmup: {arguments.num_warmup_batches} batches")
    seconds_of(arguments.num_warmup_batches)
    show("Running benchmark...")
    profiles = arguments.profiler and bf.rank() == 0
    with (
        torch.profiler.profile(acc_events=True) if profiles else contextlib.nullcontext() as profile
    ):
        for iteration in range(arguments.num_iters):
            seconds = seconds_of(arguments.num_batches_per_iter)
            rates.append(arguments.batch_size * arguments.num_batches_per_iter / seconds)
            show(f"Iter #{iteration}: {rates[-1]:.1f} img/sec per {unit}")
    if profiles:
        show(
            profile.key_averages().table(
                sort_by=f"self_{unit.lower()}_time_total".replace("gpu", "cuda"), row_limit=20
            )
        )
    return rates


def main():
    arguments = parse_arguments()
    bf.init()
    device = devices.choose(arguments)
    unit = "CPU" if device.type == "cpu" else "GPU"
    show(
        f"Model: {arguments.model}\nBatch size: {arguments.batch_size}\n"
        f"Number of {unit}s: {bf.size()}\nDistributed optimizer: {arguments.dist_optimizer}"
    )
    rates = measure(arguments, device, Training(arguments, device))
    # The mean over ranks, whose rates are equal where each step waits for others.
    rates = bf.allreduce(torch.tensor(rates, dtype=torch.float64), name="rates").tolist()
    mean, margin = statistics.fmean(rates), 1.96 * statistics.pstdev(rates)
    show(f"Img/sec per {unit}: {mean:.1f} +- {margin:.1f}")
    show(
        f"Total img/sec on {bf.size()} {unit}(s): {bf.size() * mean:.1f} +- {bf.size() * margin:.1f}"
    )


if __name__ == "__main__":
    main()
