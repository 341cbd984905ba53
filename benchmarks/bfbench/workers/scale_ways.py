"""The ways of training that bfbench scale compares, on one rank."""

import contextlib
import json
import pathlib

import torch

import bluefog_cpp.torch as bf
from bfbench.contestants import DDP_ALONE, PLAIN, WRAPPED, is_ddp
from bfbench.training import make_optimizer, with_ddp
from bfbench.workers.sleeping_model import SleepingModel
from bfbench.workers.train_models import make_model
from bluefog_cpp import topology_util

GRAPHS = {"one_peer": "one-peer-exponential", "exponential": "exponential"}
# Averages with neighbours: a name of an algorithm, and further options.
AVERAGES: dict[str, tuple[str, dict]] = {
    "atc": ("atc", {}), "atc_in_backward": ("atc", {"step_in_backward": True}),
    "awc": ("awc", {})}
ALL_RANKS = "all ranks"


def baseline_of(algorithm):
    """The training without communication that its speed is a share of: DDP's own, or the plain
    loop."""
    return DDP_ALONE if is_ddp(algorithm) or algorithm == DDP_ALONE else PLAIN


def ways_of(algorithms, graphs):
    """(algorithm, graph) of each, those that others are shares of first; training without
    communication is always among them: the model takes compute from it."""
    found = {(baseline_of(algorithm), ""): None for algorithm in algorithms}
    found.update({(PLAIN, ""): None, (WRAPPED, ""): None})
    for algorithm in algorithms:
        if algorithm in AVERAGES:
            found.update({(algorithm, graph): None for graph in graphs})
        else:
            found[algorithm, "machines" if algorithm == "hierarchical" else ALL_RANKS] = None
    return list(found)


def wrap(algorithm, graph, model):
    """(model, optimizer) as the algorithm has them."""
    optimizer = make_optimizer(model.parameters())
    if algorithm == PLAIN:
        return model, optimizer
    if is_ddp(algorithm) or algorithm == DDP_ALONE:
        return with_ddp(model, algorithm), optimizer
    if algorithm == "gradient_allreduce":
        return model, bf.DistributedGradientAllreduceOptimizer(optimizer, model)
    if algorithm == "hierarchical":
        bf.set_machine_topology(topology_util.ExponentialGraph(bf.machine_size()))
        return model, bf.DistributedAdaptThenCombineOptimizer(
            optimizer, model, bf.CommunicationType.hierarchical_neighbor_allreduce)
    if algorithm == WRAPPED:
        return model, bf.DecentralizedOptimizer(optimizer, model, "none")
    name, options = AVERAGES[algorithm]
    return model, bf.DecentralizedOptimizer(optimizer, model, name, schedule=GRAPHS[graph],
                                            **options)


class Way:
    """A model and an optimizer that step."""

    def __init__(self, algorithm, graph, args):
        torch.manual_seed(0)
        model = make_model(args.model, args.image_size, args.classes)
        self.parameters = sum(p.numel() for p in model.parameters())
        self.bytes = sum(p.nbytes for p in model.parameters())
        self.is_slept = args.profile is not None
        if self.is_slept:
            model = SleepingModel(model, json.loads(pathlib.Path(args.profile).read_text()))
        self.algorithm, self.graph = algorithm, graph
        self.model, self.optimizer = wrap(algorithm, graph, model)
        self.images = torch.randn(args.batch_size, 3, args.image_size, args.image_size)
        self.labels = torch.randint(args.classes, (args.batch_size,))

    def step(self):
        self.optimizer.zero_grad()
        with self.model.no_sync() if self.algorithm == DDP_ALONE else contextlib.nullcontext():
            self.loss().backward()
        self.optimizer.step()

    def loss(self):
        result = self.model(self.images)
        return result if self.is_slept else torch.nn.functional.cross_entropy(result, self.labels)

    def finish(self):
        """Ends what is in flight."""
        getattr(self.optimizer, "finish", lambda: None)()
