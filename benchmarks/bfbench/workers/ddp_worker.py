"""One rank of bfbench ddp: one way of data-parallel training, in a process of its own, whose memory
counts. Prints one JSON object on rank 0.
"""

import argparse
import contextlib
import json
import statistics
import time

import torch
import torch.distributed as dist

import bluefog_cpp.torch as bf
from bfbench import images
from bfbench.contestants import is_ddp, peer_of
from bfbench.memory import Growth
from bfbench.training import make_optimizer, quantiles_of, with_ddp
from bfbench.workers.rounds import join_gloo
from bfbench.workers.train_models import make_model

SEED = 5


class TorchDdp:
    """Gradients add up without communication but in the last backward pass of a step."""

    def __init__(self, model, optimizer, args):
        join_gloo(args.store, bf.rank(), bf.size())
        self.model = with_ddp(model, args.algorithm)
        self.optimizer = optimizer

    def backward_of(self, is_last):
        return contextlib.nullcontext() if is_last else self.model.no_sync()


class GradientAllreduce:
    def __init__(self, model, optimizer, args):
        self.model = model
        bf.broadcast_parameters(model.state_dict(), root_rank=0)
        self.optimizer = bf.DistributedGradientAllreduceOptimizer(
            optimizer, model, num_steps_per_communication=args.accumulation)

    def backward_of(self, _):
        return contextlib.nullcontext()


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", required=True, help="file where ranks of gloo meet")
    parser.add_argument("--algorithm", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--lr", type=float, required=True)
    for name in ("accumulation", "batch-size", "epochs", "train-images",
                 "test-images"):
        parser.add_argument(f"--{name}", type=int, required=True)
    return parser.parse_args()


def train_epoch(way, data, order, args):
    """(seconds of each step, mean loss)."""
    way.model.train()
    seconds, losses = [], []
    per_step = args.batch_size * args.accumulation
    for begin in range(0, len(order) - per_step + 1, per_step):
        start = time.perf_counter()
        way.optimizer.zero_grad()
        for part, chosen in enumerate(order[begin:begin + per_step].split(args.batch_size)):
            pixels, labels = data.batch(chosen)
            with way.backward_of(part + 1 == args.accumulation):
                loss = torch.nn.functional.cross_entropy(way.model(pixels), labels)
                (loss / args.accumulation).backward()
            losses.append(loss.item())
        way.optimizer.step()
        seconds.append(time.perf_counter() - start)
    return seconds, statistics.fmean(losses)


@torch.no_grad()
def accuracy(model, data):
    model.eval()
    right = sum((model(pixels).argmax(1) == labels).sum().item() for pixels, labels in
                map(data.batch, torch.arange(len(data.labels)).split(500)))
    return right / len(data.labels)


def of_all_ranks(value):
    return bf.allgather(torch.tensor([value], dtype=torch.float64))


def import_what_models_and_optimizers_import(name, classes):
    """torch imports much with the first optimizer, some models torchvision."""
    make_optimizer(make_model(name, images.SIDE, classes).parameters())


def main():
    args = parse_arguments()
    torch.set_num_threads(1)
    bf.init()
    dataset = images.load(args.data)
    import_what_models_and_optimizers_import(args.model, dataset.classes)
    growth = Growth()
    torch.manual_seed(SEED)
    model = make_model(args.model, images.SIDE, dataset.classes)
    make_way = TorchDdp if is_ddp(args.algorithm) else GradientAllreduce
    way = make_way(model, make_optimizer(model.parameters(), args.lr), args)
    train, test = dataset.train.part(0, args.train_images), dataset.test.part(0, args.test_images)
    epochs, steps = [], []
    for epoch in range(args.epochs):
        order = torch.randperm(len(train.labels),
                               generator=torch.Generator().manual_seed(SEED + epoch))
        bf.barrier()
        start = time.perf_counter()
        share = order[bf.rank()::bf.size()][:len(order) // bf.size()]  # as many on every rank
        seconds, loss = train_epoch(way, train, share, args)
        epochs.append(of_all_ranks(time.perf_counter() - start).max().item())
        steps += seconds
    slowest = bf.allgather(torch.tensor([steps], dtype=torch.float64)).max(dim=0).values
    record = {
        "peer": peer_of(args.algorithm), "algorithm": args.algorithm, "model": args.model,
        "ranks": bf.size(),
        "batch_size": args.batch_size, "image_size": images.SIDE, "data": dataset.name,
        "parameters": sum(p.numel() for p in model.parameters()),
        "img_per_sec": len(steps) * args.batch_size * args.accumulation * bf.size() / sum(epochs),
        "sec_per_iter": quantiles_of(slowest),
        "epoch_sec": statistics.median(epochs),
        "peak_mib": of_all_ranks(growth.peak_mib()).max().item(),
        "grown_mib": of_all_ranks(growth.grown_mib()).max().item(),
        "loss": of_all_ranks(loss).mean().item(),
        "accuracy": of_all_ranks(accuracy(model, test)).mean().item()}
    if bf.rank() == 0:
        print(json.dumps(record), flush=True)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
