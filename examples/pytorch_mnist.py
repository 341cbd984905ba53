"""Trains a small network on Fashion-MNIST (or MNIST), each rank on its share of the images.

    bfrun -np 4 python examples/pytorch_mnist.py --epochs 2 --dist-optimizer neighbor_allreduce --atc-style

Under bfrun --min-np 2 it goes on where ranks are lost.
"""

import argparse
import pathlib

import torch
from torch.nn import functional

import bluefog_cpp.torch as bf
from helpers import devices, dist_optimizer, evaluation, idx
from helpers.counts import at_least, between, rate
from helpers.networks import SmallNet


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data",
        type=pathlib.Path,
        default=idx.DEFAULT_DATA,
        help="folder with the four IDX files, plain or .gz",
    )
    parser.add_argument("--epochs", type=at_least(0), default=10)
    parser.add_argument("--batch-size", type=at_least(1), default=64)
    parser.add_argument("--test-batch-size", type=at_least(1), default=1000)
    parser.add_argument("--max-batches", type=at_least(1), help="of an epoch, for short runs")
    parser.add_argument(
        "--lr", type=rate, default=0.01, help="for one rank; scaled with their number"
    )
    parser.add_argument("--momentum", type=between(0, 1), default=0.5)
    parser.add_argument(
        "--log-interval",
        type=at_least(1),
        default=10,
        metavar="BATCHES",
        help="between lines of a rank",
    )
    parser.add_argument("--seed", type=int, default=42)
    evaluation.add_argument(parser)
    devices.add_argument(parser)
    dist_optimizer.add_arguments(parser)
    arguments = parser.parse_args()
    dist_optimizer.check(parser, arguments)
    return arguments


def train(arguments, device, model, optimizer, turns, loader, epoch):
    model.train()
    for batch, (images, labels) in enumerate(loader):
        if arguments.max_batches is not None and batch >= arguments.max_batches:
            break
        images, labels = images.to(device), labels.to(device)
        turns.next()
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        if batch % arguments.log_interval == 0:
            print(
                f"[rank {bf.rank()}] epoch {epoch}, batch {batch}/{len(loader)}: loss "
                f"{loss.item():.4f}",
                flush=True,
            )


def main():
    arguments = parse_arguments()
    bf.init()
    device = devices.choose(arguments)
    torch.manual_seed(arguments.seed)
    train_data, test_data = (
        torch.utils.data.TensorDataset(*part) for part in idx.load_parts(arguments.data)
    )
    sampler = bf.ElasticSampler(train_data, seed=arguments.seed)
    loader = torch.utils.data.DataLoader(
        train_data, batch_size=arguments.batch_size, sampler=sampler
    )
    model = SmallNet(train_data[0][0].shape[-1]).to(device)
    bf.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = dist_optimizer.wrap(
        arguments,
        torch.optim.SGD(
            model.parameters(), lr=arguments.lr * bf.size(), momentum=arguments.momentum
        ),
        model,
    )
    turns = dist_optimizer.Turns(arguments, optimizer)
    bf.broadcast_optimizer_state(optimizer, root_rank=0)
    for epoch in range(1, arguments.epochs + 1):
        sampler.set_epoch(epoch)
        train(arguments, device, model, optimizer, turns, loader, epoch)
        optimizer.finish()
        accuracy, loss = evaluation.evaluate(model, test_data, arguments.test_batch_size)
        if bf.rank() == 0:
            print(
                f"Epoch {epoch}: test accuracy {100 * accuracy:.2f} %, test loss {loss:.4f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
