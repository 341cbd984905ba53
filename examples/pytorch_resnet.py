"""Trains a ResNet on CIFAR-10, CIFAR-100 or ImageNet, each rank on its share of the images.

    bfrun -np 4 python examples/pytorch_resnet.py --data cifar-10-batches-bin --atc-style
    bfrun -np 4 python examples/pytorch_resnet.py --dataset imagenet --model resnet50 --train-dir train \\
        --val-dir validation

What helps where more ranks give less accuracy (docs/examples.md says more): --atc-style, a small
--warmup-start, --global-average-period, an earlier or steeper decay.
"""

import argparse
import pathlib
import sys

import torch
from torch.nn import functional

import bluefog_cpp.torch as bf
from helpers import checkpoints, cifar, devices, dist_optimizer, evaluation, imagenet, networks
from helpers.counts import at_least, between, rate

try:
    from torchvision import models
except ImportError:
    sys.exit(
        "pytorch_resnet.py takes its models from torchvision: pip install torchvision==0.26.0 fits "
        "torch 2.11.0"
    )


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_data_arguments(parser)
    parser.add_argument(
        "--model", default="resnet18", help="any classification model of torchvision"
    )
    parser.add_argument("--epochs", type=at_least(0), default=90)
    parser.add_argument("--batch-size", type=at_least(1), default=32)
    parser.add_argument("--val-batch-size", type=at_least(1), default=32)
    parser.add_argument(
        "--batches-per-allreduce",
        type=at_least(1),
        default=1,
        metavar="N",
        help="one step, with N times the rate, for the gradients of N batches",
    )
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--log-dir", metavar="FOLDER", help="losses and accuracies for TensorBoard")
    checkpoints.add_arguments(parser)
    devices.add_argument(parser)
    dist_optimizer.add_arguments(parser)
    evaluation.add_argument(parser)
    rates = parser.add_argument_group("learning rate")
    rates.add_argument(
        "--base-lr", type=rate, default=0.0125, help="for one rank; scaled with their number"
    )
    rates.add_argument("--momentum", type=between(0, 1), default=0.9)
    rates.add_argument("--wd", type=between(0), default=5e-5, help="weight decay")
    rates.add_argument("--warmup-epochs", type=between(0), default=5)
    rates.add_argument(
        "--warmup-start",
        type=between(0),
        metavar="RATE",
        help="rate that the warm-up starts from; default: the base rate",
    )
    rates.add_argument("--decay-epochs", type=between(0), nargs="*", default=[30, 60, 80])
    rates.add_argument(
        "--decay", type=between(0), default=0.1, help="factor at each of these epochs"
    )
    parser.add_argument(
        "--global-average-period",
        type=at_least(0),
        default=0,
        metavar="STEPS",
        help="every so many steps the average goes over all ranks; 0: never",
    )
    arguments = parser.parse_args()
    networks.check_name(parser, models, arguments.model)
    check_data(parser, arguments)
    checkpoints.check(parser, arguments)
    dist_optimizer.check(parser, arguments)
    if arguments.global_average_period and arguments.dist_optimizer not in (
        "neighbor_allreduce",
        "hierarchical_neighbor_allreduce",
    ):
        parser.error(
            "--global-average-period: expected --dist-optimizer neighbor_allreduce or "
            f"hierarchical_neighbor_allreduce, found {arguments.dist_optimizer}"
        )
    return arguments


def add_data_arguments(parser):
    data = parser.add_argument_group("data")
    data.add_argument(
        "--dataset",
        choices=("cifar10", "imagenet"),
        help="default: imagenet with --train-dir or --val-dir, else cifar10",
    )
    data.add_argument(
        "--data",
        type=pathlib.Path,
        help="folder with the binary files of CIFAR-10 or CIFAR-100; without it torchvision "
        "fetches CIFAR-10 into the folder data",
    )
    data.add_argument(
        "--synthetic", type=at_least(1), metavar="N", help="N made-up images in place of CIFAR"
    )
    data.add_argument(
        "--train-dir",
        type=pathlib.Path,
        help="of imagenet: a folder for each class; default: ~/imagenet/train",
    )
    data.add_argument("--val-dir", type=pathlib.Path, help="default: ~/imagenet/validation")


def check_data(parser, arguments):
    """Refuses options that do not go together, and chooses the dataset."""

    def given(*options):
        return [option for option in options if getattr(arguments, option) is not None]

    folders = [f"--{option.replace('_', '-')}" for option in given("train_dir", "val_dir")]
    if arguments.dataset is None:
        arguments.dataset = "imagenet" if folders else "cifar10"
    elif folders and arguments.dataset != "imagenet":
        parser.error(f"{folders[0]}: expected --dataset imagenet, found {arguments.dataset}")
    chosen = given("data", "synthetic")
    if arguments.dataset == "imagenet" and chosen:
        parser.error(f"--dataset imagenet: expected --train-dir and --val-dir, found --{chosen[0]}")
    if len(chosen) > 1:
        parser.error("expected --data or --synthetic, found both")


def load_data(arguments):
    """Collective. (training set, test set, number of classes)"""
    if arguments.dataset == "imagenet":
        return imagenet.load(
            (arguments.train_dir or pathlib.Path("~/imagenet/train")).expanduser(),
            (arguments.val_dir or pathlib.Path("~/imagenet/validation")).expanduser(),
        )
    if arguments.synthetic:
        train, test, classes = cifar.made_up(
            arguments.synthetic,
            max(bf.size(), arguments.synthetic // 4),
            side=8 if arguments.model in SMALL_STEMS else cifar.SIDE,
        )
    else:
        train, test, classes = (
            cifar.load(arguments.data) if arguments.data else cifar.fetched("data")
        )
    return cifar.Augmented(train), test, classes


SMALL_STEMS = ("resnet18", "resnet34", "resnet50")


def make_model(arguments, classes):
    """torchvision's; for images of 32 × 32 a ResNet has a stem that keeps their size."""
    model = models.get_model(arguments.model, weights=None, num_classes=classes)
    if arguments.dataset != "imagenet" and arguments.model in SMALL_STEMS:
        model.conv1 = torch.nn.Conv2d(3, 64, 3, padding=1, bias=False)
        model.maxpool = torch.nn.Identity()
    return model


def make_loader(arguments, data, sampler):
    size = arguments.batch_size * arguments.batches_per_allreduce
    # One small image alone has no variance to normalise by; a step takes as many batches as
    # another.
    drops_last = len(sampler) > size and (
        len(sampler) % size == 1 or arguments.batches_per_allreduce > 1
    )
    if len(sampler) < 2 * arguments.batches_per_allreduce > 2:
        sys.exit(
            f"--batches-per-allreduce: expected two images a batch or more, found {len(sampler)} images "
            f"of a rank for {arguments.batches_per_allreduce} batches"
        )
    return torch.utils.data.DataLoader(data, size, sampler=sampler, drop_last=drops_last)


def log_writer(arguments):
    """TensorBoard's, on rank 0."""
    if arguments.log_dir is None:
        return None
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        sys.exit("--log-dir: expected the package tensorboard, found none: pip install tensorboard")
    return SummaryWriter(arguments.log_dir) if bf.rank() == 0 else None


def learning_rate(arguments, epoch):
    """At a moment of training: the epochs that have passed, with their fraction.

    It rises from --warmup-start to the base rate times the number of ranks, and then falls in steps.
    """
    base = arguments.base_lr * arguments.batches_per_allreduce
    peak = base * bf.size()
    if epoch < arguments.warmup_epochs:
        start = base if arguments.warmup_start is None else arguments.warmup_start
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
            self._optimizer.communication_type = (
                bf.CommunicationType.allreduce if is_global else self._usual
            )


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
        parts = arguments.batches_per_allreduce
        for part, of_part in zip(images.tensor_split(parts), labels.tensor_split(parts)):
            output = model(part)
            # Models with auxiliary classifiers return several outputs.
            loss = functional.cross_entropy(getattr(output, "logits", output), of_part) / parts
            loss.backward()
            total += loss.item()
        optimizer.step()
    return total / len(loader)


def main():
    arguments = parse_arguments()
    bf.init()
    device = devices.choose(arguments)
    torch.manual_seed(arguments.seed)
    train_data, test_data, classes = load_data(arguments)
    sampler = torch.utils.data.distributed.DistributedSampler(
        train_data, bf.size(), bf.rank(), seed=arguments.seed
    )
    loader = make_loader(arguments, train_data, sampler)
    log = log_writer(arguments)
    model = make_model(arguments, classes).to(device)
    bf.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = dist_optimizer.wrap(
        arguments,
        torch.optim.SGD(
            model.parameters(),
            lr=arguments.base_lr,
            momentum=arguments.momentum,
            weight_decay=arguments.wd,
        ),
        model,
        num_steps_per_communication=arguments.batches_per_allreduce,
    )
    choices = (
        dist_optimizer.Turns(arguments, optimizer),
        PeriodicAverage(arguments.global_average_period, optimizer),
    )
    saved = checkpoints.Checkpoints(arguments, model, optimizer)
    for epoch in range(saved.load() if arguments.resume else 0, arguments.epochs):
        sampler.set_epoch(epoch)
        loss = train(arguments, device, model, optimizer, choices, loader, epoch)
        optimizer.finish()
        accuracy, test_loss = evaluation.evaluate(model, test_data, arguments.val_batch_size)
        saved.save(epoch + 1)
        if log is not None:
            for name, value in (
                ("train/loss", loss),
                ("val/loss", test_loss),
                ("val/accuracy", accuracy),
            ):
                log.add_scalar(name, value, epoch)
        if bf.rank() == 0:
            print(
                f"Epoch {epoch + 1}: training loss {loss:.4f}, test loss {test_loss:.4f}, test accuracy "
                f"{100 * accuracy:.2f} %",
                flush=True,
            )
    if log is not None:
        log.close()


if __name__ == "__main__":
    main()
