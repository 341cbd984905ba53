"""One rank of bfbench converge: training runs one after the other, each from the same start.

Prints one JSON object per run on rank 0.
"""

import argparse
import itertools
import json
from collections.abc import Callable
from typing import Any

import torch

import bluefog_cpp
import bluefog_cpp.torch as bf
from bfbench import images
from bfbench.algorithms import load_files, row_named
from bfbench.shards import rank_shares
from bfbench.training import MOMENTUM, make_optimizer
from bluefog_cpp import topology_util

WRAPPERS: dict[str, Callable[..., Any]] = {
    "gradient_allreduce": bf.DistributedGradientAllreduceOptimizer,
    "adapt_then_combine": bf.DistributedAdaptThenCombineOptimizer,
    "adapt_with_combine": bf.DistributedAdaptWithCombineOptimizer,
    "push_sum": bf.DistributedPushSumOptimizer,
}
TOPOLOGIES = {
    "ring": topology_util.RingGraph,
    "exponential": topology_util.ExponentialGraph,
    "one_peer": topology_util.ExponentialGraph,
    "full": topology_util.FullyConnectedGraph,
}
HIDDEN = 64


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", help="not used: nothing here is of gloo")
    parser.add_argument("--runs", type=json.loads, required=True,
                        help="lists of algorithm, topology or null, shards, seed")
    parser.add_argument("--data", required=True)
    parser.add_argument("--lr", type=float, required=True)
    parser.add_argument("--load", action="append", default=[])
    for name in ("steps", "batch-size", "train-images", "test-images"):
        parser.add_argument(f"--{name}", type=int, required=True)
    return parser.parse_args()


def plain_optimizer(row, model, lr):
    """SGD with momentum, which is the algorithm's part where it has one of its own."""
    return make_optimizer(model.parameters(), lr, 0.0 if row.reads("momentum") else MOMENTUM)


def wrap(row, topology, model, lr):
    """The optimizer, and what sets whom its next step hears."""
    algorithm, optimizer = row.name, plain_optimizer(row, model, lr)
    if algorithm not in WRAPPERS or is_own(topology):
        schedule = "one-peer-exponential" if topology == "one_peer" else topology
        own = MOMENTUM if row.reads("momentum") else 0.0
        return (bf.DecentralizedOptimizer(optimizer, model, algorithm, schedule=schedule,
                                          momentum=own), itertools.repeat(None))
    wrapped = WRAPPERS[algorithm](optimizer, model)
    return wrapped, (one_peer_of_each_step(wrapped, algorithm) if topology == "one_peer"
                     else itertools.repeat(None))


def is_own(topology):
    """Whether it is a schedule of --load."""
    return topology is not None and topology not in TOPOLOGIES


def one_peer_of_each_step(optimizer, algorithm):
    """Sets whom the next step hears: half of oneself, half of another one, in turns. With push-sum
    the sender halves, else the receiver."""
    for send, receive in topology_util.GetDynamicOnePeerSendRecvRanks(bf.load_topology(),
                                                                      bf.rank()):
        is_pushed = algorithm == "push_sum"
        optimizer.self_weight = 1 / (len(send if is_pushed else receive) + 1)
        optimizer.dst_weights = dict.fromkeys(send, optimizer.self_weight if is_pushed else 1.0)
        if not is_pushed:
            optimizer.src_weights = dict.fromkeys(receive, optimizer.self_weight)
        yield


def train(model, optimizer, data, graphs, seed, args):
    mine = torch.Generator().manual_seed(1000 * seed + bf.rank())
    for _ in range(args.steps):
        chosen = torch.randint(len(data.labels), (args.batch_size,), generator=mine)
        pixels, labels = data.batch(chosen)
        next(graphs)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(pixels), labels).backward()
        optimizer.step()
    optimizer.finish()


def flat(model):
    return torch.nn.utils.parameters_to_vector(model.parameters()).detach().double()


@torch.no_grad()
def accuracy(model, data):
    pixels, labels = data.batch(slice(None))
    return (model(pixels).argmax(1) == labels).double().mean()


def figures_of(model, test):
    """Accuracies of the ranks' models and of the mean model; collective."""
    mine = flat(model)
    mean = bf.allreduce(mine)
    distance = bf.allreduce((mine - mean).square().sum()).sqrt()
    own = bf.allgather(accuracy(model, test).view(1))
    torch.nn.utils.vector_to_parameters(mean.float(), model.parameters())
    return {"accuracy": own.mean().item(), "worst_accuracy": own.min().item(),
            "mean_model_accuracy": accuracy(model, test).item(),
            "consensus_distance": distance.item()}


def run_once(algorithm, topology, shards, seed, dataset, args):
    row = row_named(algorithm)
    graph = TOPOLOGIES["full" if is_own(topology) else topology or "full"](bf.size())
    bf.set_topology(graph)
    share = torch.from_numpy(rank_shares(dataset.train.labels, bf.size(), shards, seed)[bf.rank()])
    data = images.Images(dataset.train.pixels[share], dataset.train.labels[share])
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Flatten(),
                                torch.nn.Linear(3 * images.SIDE ** 2, HIDDEN), torch.nn.ReLU(),
                                torch.nn.Linear(HIDDEN, dataset.classes))
    record = {"peer": "bluefog_cpp", "algorithm": algorithm,
              "topology": topology or ("its own" if row.brings_schedule else "all ranks"),
              "shards": shards, "seed": seed, "ranks": bf.size(), "steps": args.steps,
              "batch_size": args.batch_size, "data": dataset.name}
    try:
        optimizer, graphs = wrap(row, topology, model, args.lr)
    except bluefog_cpp.InvalidArgument as error:  # the same on all ranks
        return {**record, "not_run": str(error)}
    train(model, optimizer, data, graphs, seed, args)
    return {**record, **figures_of(model, dataset.test)}


def main():
    args = parse_arguments()
    load_files(args.load)
    torch.set_num_threads(1)
    bf.init()
    dataset = images.load(args.data)
    dataset = dataset._replace(train=dataset.train.part(0, args.train_images),
                               test=dataset.test.part(0, args.test_images))
    for algorithm, topology, shards, seed in args.runs:
        record = run_once(algorithm, topology, shards, seed, dataset, args)
        if bf.rank() == 0:
            print(json.dumps(record), flush=True)
    bf.shutdown()


if __name__ == "__main__":
    main()
