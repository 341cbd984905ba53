"""Trains a transformer on images or text in an elastic pipeline: layers freeze as they converge, the
rest is packed into fewer stages, and ranks that become free are further pipelines.

    bfrun -np 4 python examples/pytorch_pipeline.py examples/pipeline_configurations/all.yaml

Any launcher of torch.distributed will do. --backend gloo runs it without this library's transports,
--ddp trains the whole model on each rank, by torch's DistributedDataParallel.
"""

import argparse
import math
import pathlib
import sys
import time

import torch
import torch.distributed as dist
from torch.nn import functional

import bluefog_cpp.torch  # noqa: F401  registers the backend
from bluefog_cpp.pipeline import (
    CacheOptions,
    ElasticPipeline,
    ElasticPlan,
    EpochShares,
    choose_micro_batches,
)
from helpers import (
    byte_encoder,
    cifar,
    idx,
    model_file,
    pipeline_configuration,
    pipeline_report,
    text,
)
from helpers.counts import at_least
from helpers.image_transformer import vision_transformer
from helpers.whole_model import WholeModel

TEST_ROWS = 100  # of a batch


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configuration", type=pathlib.Path, nargs="?", help="a YAML file")
    parser.add_argument("--data", type=pathlib.Path,
                        help="of the model vit: folder with the four IDX files, plain or .gz, or the "
                        "binary files of CIFAR-10 or CIFAR-100; of bert: a file or folder of text. "
                        "Default: what Debian has")
    parser.add_argument("--skip", type=at_least(0), default=0,
                        help="leave out so many of the training samples, the first")
    parser.add_argument("--images", type=at_least(1),
                        help="so many of the training samples, for short runs")
    parser.add_argument("--test-images", type=at_least(1), default=2000)
    parser.add_argument("--backend", choices=("bluefog", "gloo"), default="bluefog")
    parser.add_argument("--ddp", action="store_true", help="no pipeline: the yardstick")
    parser.add_argument("--metrics", type=pathlib.Path,
                        help="file for metrics, one JSON object a line")
    parser.add_argument("--start", type=pathlib.Path,
                        help="a model to go on from, which --save of a run of the same sizes has "
                        "written")
    parser.add_argument("--save", type=pathlib.Path, help="file for the model, at the end")
    return parser.parse_args()


def load_images(folder):
    """Images and labels to train and to test with, and the number of classes. CIFAR's files may lie
    in the folder that its archives have."""
    for inner in (folder, folder / "cifar-10-batches-bin", folder / "cifar-100-binary"):
        if any((inner / name).exists() for name in ("data_batch_1.bin", "train.bin")):
            train, test, classes = cifar.load(inner)
            return train.tensors, test.tensors, classes
    return (*idx.load_parts(folder), idx.CLASSES)


def load(chosen, folder):
    """The task of the configuration's model: (inputs, targets) to train and to test with, the
    model, and the loss."""
    sizes = {"width": chosen.width, "heads": chosen.heads, "layers": chosen.layers,
             "pause_us": chosen.pause_us}
    if chosen.width % chosen.heads:
        sys.exit(f"expected heads that divide the width, found {chosen.heads} and {chosen.width}")
    if chosen.model == "bert":
        train, test = byte_encoder.load(folder or text.USUAL, chosen.tokens, chosen.seed)
        return (train, test, lambda: byte_encoder.byte_encoder(chosen.tokens, **sizes),
                byte_encoder.loss)
    train, test, classes = load_images(folder or idx.DEFAULT_DATA)
    channels, side = train[0].shape[1], train[0].shape[-1]
    if side % chosen.patch:
        sys.exit(f"expected patches that divide the images' side, found {chosen.patch} and {side}")
    return (train, test,
            lambda: vision_transformer(channels, side, classes, patch=chosen.patch, **sizes),
            functional.cross_entropy)


def save(pipe, model, optimizer, path):
    """The whole model, which every rank has with one stage."""
    if pipe.stages > 1:
        pipe.rearrange(1, pipe.frozen, optimizer)
    model_file.save(model, path)


def measured_costs(model, inputs):
    """Seconds of each layer's passes over the inputs, the least of some, as rank 0 has measured."""
    found = []
    for _ in range(5 if dist.get_rank() == 0 else 0):  # the others leave it the cores
        values, seconds = inputs, []
        for layer in model:
            begin = time.perf_counter()
            outputs = layer(values)
            outputs.sum().backward()
            seconds.append(time.perf_counter() - begin)
            values = outputs.detach().requires_grad_()
        found.append(seconds)
    model.zero_grad()
    costs = (torch.tensor(found, dtype=torch.float64).amin(0) if found
             else torch.zeros(len(model), dtype=torch.float64))
    dist.broadcast(costs, 0)
    return costs.tolist()


def make_pipeline(chosen, model, loss, stages, counted, inputs):
    samples = len(inputs)
    costs = measured_costs(model, inputs[:8]) if chosen.costs == "time" else None
    cache = CacheOptions(samples, chosen.cache_memory_mib << 20, chosen.cache_disk_mib << 20,
                         chosen.cache_folder) if chosen.cache else None
    return ElasticPipeline(model, loss, stages=stages, schedule=chosen.schedule, cache=cache,
                           micro_batches=chosen.micro_batches or None, costs=costs, **counted)


def accuracy(pipe, images, labels):
    """The share of right answers of all pipelines, each on rows of its own."""
    right = torch.zeros(2, dtype=torch.float64)
    rows = max(min(TEST_ROWS, len(images) // pipe.replicas), 1)
    for begin in range(rows * pipe.replica, len(images), rows * pipe.replicas):
        part = slice(begin, begin + rows)
        outputs = pipe.evaluate(images[part], len(images[part]))
        if outputs is not None:
            wanted = labels[part]
            found = outputs.argmax(-1)[wanted >= 0]  # masked bytes, or all labels
            right += torch.tensor([float((found == wanted[wanted >= 0]).sum()), len(found)])
    dist.all_reduce(right)
    return float(right[0] / right[1])


def try_micro_batches(pipe, inputs, targets, all_rows, report):
    """The fastest number for such a batch."""
    count = choose_micro_batches(pipe, inputs, targets, len(inputs), all_rows)
    report.tell(f"{pipe.replicas} x {pipe.stages} stages: {count} micro-batches a step, the fastest "
                "in a trial")


def train_epoch(pipe, optimizer, shares, images, labels, report, tries):
    """The mean loss of the last stages' rows. tries: whether micro-batches are tried first."""
    total = torch.zeros(2, dtype=torch.float64)
    while shares.left:
        begin = time.perf_counter()
        all_rows, own = shares.next(pipe.replicas, pipe.replica)
        inputs, targets = images[own], labels[own]
        loading = time.perf_counter() - begin
        if tries:
            try_micro_batches(pipe, inputs, targets, all_rows, report)
            tries = False
        loss = pipe.step(optimizer, inputs, targets, len(own), all_rows, own)
        report.add(all_rows, pipeline_report.record_of(pipe, loading))
        if loss is not None:
            total += torch.tensor([loss * len(own), len(own)])
    dist.all_reduce(total)
    return float(total[0] / total[1])


def train(pipe, plan, chosen, model, optimizer, data, report):
    """All epochs; seconds of training, and the last accuracy."""
    (images, labels), test = data
    shares = EpochShares(len(images), chosen.batch_size, seed=chosen.seed)
    training, right, tried = 0.0, 0.0, 1  # one stage has nothing to try
    for epoch in range(1, chosen.epochs + 1):
        shares.begin_epoch(epoch)
        model.train()
        begin = time.perf_counter()
        tries = chosen.try_micro_batches and pipe.stages not in (1, tried)
        loss = train_epoch(pipe, optimizer, shares, images, labels, report, tries)
        tried = pipe.stages
        seconds = time.perf_counter() - begin
        if not math.isfinite(loss):
            sys.exit(f"epoch {epoch}: expected a loss that is a number, found {loss}: the lr "
                     f"{chosen.lr} may be too large")
        model.eval()
        right = accuracy(pipe, *test)
        rate = len(images) / seconds
        report.end_epoch(
            f"Epoch {epoch}: {pipe.replicas} x {pipe.stages} stages, {pipe.frozen} of "
            f"{len(model)} layers frozen, {rate:.1f} images/s, loss {loss:.4f}, test accuracy "
            f"{100 * right:.2f} %",
            epoch=epoch, pipelines=pipe.replicas, stages=pipe.stages, frozen=pipe.frozen,
            rows=len(images), seconds=seconds, img_per_sec=rate, train_loss=loss,
            test_accuracy=right)
        begin = time.perf_counter()
        if plan is not None and epoch < chosen.epochs:
            norms = pipe.gradient_norms() if chosen.by_gradients else ()
            pipe.rearrange(*plan.advance(norms), optimizer)
        training += seconds + time.perf_counter() - begin
    return training, right


def run(arguments):
    """Trains in the default process group."""
    chosen = (pipeline_configuration.read(arguments.configuration) if arguments.configuration
              else pipeline_configuration.Configuration())
    if chosen.replicas != "gradients":
        sys.exit("replicas: expected gradients, which is what pipelines of Python sum, found "
                 f"{chosen.replicas}; train_pipeline has the other")
    model_file.check(arguments.save)
    train_part, test_part, make_model, loss = load(chosen, arguments.data)
    if arguments.skip >= len(train_part[0]):
        sys.exit(f"--skip: expected less than the {len(train_part[0])} training samples, found "
                 f"{arguments.skip}")
    data = ([part[arguments.skip:][:arguments.images] for part in train_part],
            [part[:arguments.test_images] for part in test_part])
    memory = pipeline_report.Growth()
    torch.manual_seed(chosen.seed)
    model = make_model()
    model_file.begin_with(model, arguments.start)
    stages = chosen.stages or dist.get_world_size()
    counted = {} if chosen.repartition else {"frozen_share": 1.0}  # stages stay as they are
    parameters = sum(p.numel() for p in model.parameters())
    pipe = (WholeModel(model, loss) if arguments.ddp
            else make_pipeline(chosen, model, loss, stages, counted, data[0][0]))
    optimizer = torch.optim.AdamW(model.parameters(), chosen.lr)
    plan = None if arguments.ddp or not chosen.freeze else ElasticPlan(
        pipe.costs, stages, alpha=chosen.alpha, embedding_layers=1, head_layers=1,
        shrinks=chosen.shrink, **counted)
    report = pipeline_report.Report(arguments.metrics, chosen, parameters)
    report.end(*train(pipe, plan, chosen, model, optimizer, data, report), memory.mib())
    if arguments.save is not None:
        save(pipe, model, optimizer, arguments.save)


def main():
    arguments = parse_arguments()
    torch.set_num_threads(1)
    dist.init_process_group(arguments.backend)
    run(arguments)  # whose end lets go of DDP, before the group that it holds
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
