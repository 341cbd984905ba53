"""Trains a ResNet on CIFAR-10 or CIFAR-100, each rank on its share of the images.

    bfrun -np 4 python examples/pytorch_resnet.py --data cifar-10-batches-bin --atc-style

What helps where more ranks give less accuracy (docs/examples.md says more): --atc-style, a small
--warmup-start, --global-average-period, an earlier or steeper decay.
"""

import argparse
import os
import pathlib
import sys

import torch
from torch.nn import functional

import bluefog_cpp.torch as bf
from helpers import cifar, devices, dist_optimizer
from helpers.counts import at_least
from helpers.evaluation import evaluate

try:
    from torchvision import models
except ImportError:
    sys.exit("pytorch_resnet.py takes its models from torchvision: pip install torchvision==0.26.0 fits "
             "torch 2.11.0")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, help="folder with the binary files of CIFAR")
    parser.add_argument("--synthetic", type=at_least(1), metavar="N", help="N made-up images in place of CIFAR")
    parser.add_argument("--model", choices=("resnet18", "resnet34", "resnet50"), default="resnet18")
    parser.add_argument("--epochs", type=at_least(0), default=90)
    parser.add_argument("--batch-size", type=at_least(1), default=32)
    parser.add_argument("--val-batch-size", type=at_least(1), default=256)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--checkpoint", type=pathlib.Path, metavar="FOLDER",
                        help="each rank saves its state here after each epoch")
    parser.add_argument("--resume", action="store_true", help="go on from --checkpoint")
    devices.add_argument(parser)
    dist_optimizer.add_arguments(parser)
    rates = parser.add_argument_group("learning rate")
    rates.add_argument("--base-lr", type=float, default=0.0125, help="for one rank; scaled with their number")
    rates.add_argument("--momentum", type=float, default=0.9)
    rates.add_argument("--wd", type=float, default=5e-5, help="weight decay")
    rates.add_argument("--warmup-epochs", type=float, default=5)
    rates.add_argument("--warmup-start", type=float, metavar="RATE",
                       help="rate that the warm-up starts from; default: the base rate")
    rates.add_argument("--decay-epochs", type=float, nargs="*", default=[30, 60, 80])
    rates.add_argument("--decay", type=float, default=0.1, help="factor at each of these epochs")
    parser.add_argument("--global-average-period", type=at_least(0), default=0, metavar="STEPS",
                        help="every so many steps the average goes over all ranks; 0: never")
    arguments = parser.parse_args()
    if (arguments.data is None) == (arguments.synthetic is None):
        parser.error("expected either --data or --synthetic")
    if arguments.resume and arguments.checkpoint is None:
        parser.error("--resume: expected --checkpoint too")
    if arguments.global_average_period and arguments.dist_optimizer not in (
            "neighbor_allreduce", "hierarchical_neighbor_allreduce"):
        parser.error("--global-average-period: expected --dist-optimizer neighbor_allreduce or "
                     f"hierarchical_neighbor_allreduce, found {arguments.dist_optimizer}")
    return arguments


def small_image_resnet(name, classes):
    """torchvision's, with a stem for images of 32 × 32."""
    model = models.get_model(name, weights=None, num_classes=classes)
    model.conv1 = torch.nn.Conv2d(3, 64, 3, padding=1, bias=False)
    model.maxpool = torch.nn.Identity()
    return model


def learning_rate(arguments, epoch):
    """At a moment of training: the epochs that have passed, with their fraction.

    It rises from --warmup-start to the base rate times the number of ranks, and then falls in steps.
    """
    peak = arguments.base_lr * bf.size()
    if epoch < arguments.warmup_epochs:
        start = arguments.base_lr if arguments.warmup_start is None else arguments.warmup_start
        return start + (peak - start) * epoch / arguments.warmup_epochs
    return peak * arguments.decay ** sum(epoch >= limit for limit in arguments.decay_epochs)


class PeriodicAverage:
    """Every so many steps, the average goes over all ranks."""

    def __init__(self, period, optimizer):
        self._period, self._optimizer, self._step = period, optimizer, 0
        self._usual = optimizer.communication_type if period else None

    def next(self):
        if self._period:
            self._step += 1
            is_global = self._step % self._period == 0
            self._optimizer.communication_type = (bf.CommunicationType.allreduce if is_global
                                                  else self._usual)


def train(arguments, device, model, optimizer, choices, loader, epoch):
    model.train()
    total = 0.0
    for batch, (images, labels) in enumerate(loader):
        images, labels = images.to(device), labels.to(device)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(arguments, epoch + batch / len(loader))
        for choice in choices:
            choice.next()
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(loader)


class Checkpoints:
    """One file for each rank: models differ between ranks, and so does what optimizers know."""

    def __init__(self, folder, model, optimizer):
        self._path = folder and folder / f"rank{bf.rank()}-of-{bf.size()}.pt"
        self._model, self._optimizer = model, optimizer

    def save(self, epochs_done):
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self._path.with_suffix(".new")
        torch.save({"epochs_done": epochs_done, "model": self._model.state_dict(),
                    "optimizer": self._optimizer.state_dict()}, unfinished)
        os.replace(unfinished, self._path)

    def load(self):
        """The number of epochs that were done; the same on all ranks."""
        if not self._path.exists():
            sys.exit(f"rank {bf.rank()}: {self._path} is not there: expected a checkpoint of as many ranks")
        state = torch.load(self._path)
        self._model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        done = bf.allgather(torch.tensor([state["epochs_done"]]), name="epochs done").tolist()
        if len(set(done)) > 1:
            sys.exit(f"{self._path.parent}: expected checkpoints of one epoch, found {done}, by rank")
        return done[0]


def main():
    arguments = parse_arguments()
    bf.init()
    device = devices.choose(arguments)
    torch.manual_seed(arguments.seed)
    train_data, test_data, classes = (
        cifar.load(arguments.data) if arguments.data
        else cifar.made_up(arguments.synthetic, max(bf.size(), arguments.synthetic // 4)))
    sampler = torch.utils.data.distributed.DistributedSampler(train_data, bf.size(), bf.rank(),
                                                              seed=arguments.seed)
    loader = torch.utils.data.DataLoader(cifar.Augmented(train_data), arguments.batch_size,
                                         sampler=sampler,
                                         # One small image alone has no variance to normalise by.
                                         drop_last=len(sampler) > arguments.batch_size and
                                         len(sampler) % arguments.batch_size == 1)
    model = small_image_resnet(arguments.model, classes).to(device)
    bf.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = dist_optimizer.wrap(
        arguments,
        torch.optim.SGD(model.parameters(), lr=arguments.base_lr, momentum=arguments.momentum,
                        weight_decay=arguments.wd), model)
    choices = (dist_optimizer.Turns(arguments, optimizer),
               PeriodicAverage(arguments.global_average_period, optimizer))
    checkpoints = Checkpoints(arguments.checkpoint, model, optimizer)
    for epoch in range(checkpoints.load() if arguments.resume else 0, arguments.epochs):
        sampler.set_epoch(epoch)
        loss = train(arguments, device, model, optimizer, choices, loader, epoch)
        optimizer.finish()
        accuracy, test_loss = evaluate(model, test_data, arguments.val_batch_size)
        checkpoints.save(epoch + 1)
        if bf.rank() == 0:
            print(f"Epoch {epoch + 1}: training loss {loss:.4f}, test loss {test_loss:.4f}, test accuracy "
                  f"{100 * accuracy:.2f} %", flush=True)


if __name__ == "__main__":
    main()
