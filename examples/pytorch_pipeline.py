"""Trains a vision transformer in an elastic pipeline on Fashion-MNIST: layers freeze as they converge,
the rest is packed into fewer stages, and ranks that become free are further pipelines.

    bfrun -np 4 python examples/pytorch_pipeline.py examples/pipeline_configurations/all.yaml

Any launcher of torch.distributed will do. --backend gloo runs it without this library's transports.
"""

import argparse
import pathlib
import time

import torch
import torch.distributed as dist
from torch.nn import functional

import bluefog_cpp.torch  # noqa: F401  registers the backend
from bluefog_cpp.pipeline import ElasticPipeline, ElasticPlan, EpochShares
from helpers import idx, pipeline_configuration
from helpers.counts import at_least
from helpers.image_transformer import vision_transformer

CLASSES = 10


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configuration", type=pathlib.Path, nargs="?", help="a YAML file")
    parser.add_argument("--data", type=pathlib.Path, default=idx.DEFAULT_DATA,
                        help="folder with the four IDX files, plain or .gz")
    parser.add_argument("--images", type=at_least(1), help="of the training images, for short runs")
    parser.add_argument("--test-images", type=at_least(1), default=2000)
    parser.add_argument("--backend", choices=("bluefog", "gloo"), default="bluefog")
    return parser.parse_args()


def accuracy(pipe, images, labels, rows):
    """The share of right answers of all pipelines, each on rows of its own."""
    right = torch.zeros(2, dtype=torch.float64)
    own = list(range(pipe.replica, len(images) // rows, pipe.replicas))
    for batch in own[:len(images) // rows // pipe.replicas]:
        part = slice(batch * rows, (batch + 1) * rows)
        outputs = pipe.evaluate(images[part], rows)
        if outputs is not None:
            right += torch.tensor([float((outputs.argmax(1) == labels[part]).sum()), rows])
    dist.all_reduce(right)
    return float(right[0] / right[1])


def train_epoch(pipe, optimizer, shares, images, labels):
    """The mean loss of the last stages' rows."""
    total = torch.zeros(2, dtype=torch.float64)
    while shares.left:
        all_rows, own = shares.next(pipe.replicas, pipe.replica)
        loss = pipe.step(optimizer, images[own], labels[own], len(own), all_rows)
        if loss is not None:
            total += torch.tensor([loss * len(own), len(own)])
    dist.all_reduce(total)
    return float(total[0] / total[1])


def main():
    arguments = parse_arguments()
    chosen = (pipeline_configuration.read(arguments.configuration) if arguments.configuration
              else pipeline_configuration.Configuration())
    torch.set_num_threads(1)
    dist.init_process_group(arguments.backend)
    train, test = idx.load_parts(arguments.data)
    images, labels = (part[:arguments.images] for part in train)
    test = [part[:arguments.test_images] for part in test]
    torch.manual_seed(chosen.seed)
    model = vision_transformer(1, images.shape[-1], CLASSES, patch=chosen.patch,
                               width=chosen.width, heads=chosen.heads, layers=chosen.layers)
    stages = chosen.stages or dist.get_world_size()
    pipe = ElasticPipeline(model, functional.cross_entropy, stages=stages,
                           schedule=chosen.schedule, micro_batches=chosen.micro_batches or None)
    optimizer = torch.optim.AdamW(model.parameters(), chosen.lr)
    plan = ElasticPlan(pipe.costs, stages, alpha=chosen.alpha, embedding_layers=1, head_layers=1,
                       freezes=chosen.freeze, shrinks=chosen.shrink)
    shares = EpochShares(len(images), chosen.batch_size, seed=chosen.seed)
    for epoch in range(1, chosen.epochs + 1):
        shares.begin_epoch(epoch)
        model.train()
        begin = time.perf_counter()
        loss = train_epoch(pipe, optimizer, shares, images, labels)
        seconds = time.perf_counter() - begin
        model.eval()
        right = accuracy(pipe, *test, min(100, len(test[0]) // pipe.replicas))
        if dist.get_rank() == 0:
            print(f"Epoch {epoch}: {pipe.replicas} x {pipe.stages} stages, {pipe.frozen} of "
                  f"{len(model)} layers frozen, {len(images) / seconds:.1f} images/s, loss "
                  f"{loss:.4f}, test accuracy {100 * right:.2f} %", flush=True)
        if epoch < chosen.epochs:
            norms = pipe.gradient_norms() if chosen.by_gradients else ()
            pipe.rearrange(*plan.advance(norms), optimizer)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
