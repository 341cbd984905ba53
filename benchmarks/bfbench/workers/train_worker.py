"""One rank of bfbench train: one way to train a model, which takes turns with those of other jobs.

In a turn it makes a few steps on random images; the time of a step is that of the slowest rank.
Prints a JSON object when it is ready, one for each turn, and its figures in the end.
"""

import argparse
import json
import os
import resource
import sys
import time
import traceback

import torch
import torch.distributed as dist

import bluefog_cpp.torch as bf
from bfbench.algorithms import row_named
from bfbench.contestants import backend_of, is_ddp, is_peer, peer_of
from bfbench.training import (
    DDP_FLAGS,
    MOMENTUM,
    make_optimizer,
    quantiles_of,
    with_ddp,
)
from bfbench.workers.rounds import join_gloo
from bfbench.workers.train_models import make_model
from bluefog_cpp import topology_util

WARM_UP_STEPS = 3
NEIGHBORS = bf.CommunicationType.neighbor_allreduce
MACHINES = bf.CommunicationType.hierarchical_neighbor_allreduce


def with_flags_of_ddp(model, optimizer, args):
    return with_ddp(model, args.algorithm, not args.no_gradient_as_bucket_view,
                    args.broadcast_buffers, static_graph=args.static_graph,
                    find_unused_parameters=args.find_unused_parameters), optimizer


class StepsInBackward:
    """Decent-DP makes its steps in hooks of the backward pass."""

    def __init__(self, wrapped):
        self.wrapped = wrapped

    def zero_grad(self):
        pass

    def step(self):
        pass

    def finish(self):
        for work in self.wrapped._comm_ops:  # it has no call of its own for this
            if work is not None:
                work.wait()


def with_decent_dp(model, _, args):
    from decent_dp.ddp import DecentralizedDataParallel  # a peer that need not be installed
    is_power = bf.size() & (bf.size() - 1) == 0
    wrapped = DecentralizedDataParallel(
        model, lambda named: make_optimizer([parameter for _, parameter in named]),
        topology="one-peer-exp" if is_power else "complete", bucket_size_in_mb=args.bucket_mb,
        _local_world_size=bf.local_size())
    return wrapped, StepsInBackward(wrapped)


def decentralized(make, kind):
    return lambda model, optimizer, _: (model, make(optimizer, model, kind))


CONTESTANTS = {
    "none": lambda model, optimizer, _: (model, optimizer),
    "none_wrapped": decentralized(bf.DistributedAdaptThenCombineOptimizer,
                                  bf.CommunicationType.empty),
    "ddp": with_flags_of_ddp,
    "ddp_bluefog": with_flags_of_ddp,
    "decent_dp": with_decent_dp,
    "gradient_allreduce": lambda model, optimizer, _: (
        model, bf.DistributedGradientAllreduceOptimizer(optimizer, model)),
    "atc": decentralized(bf.DistributedAdaptThenCombineOptimizer, NEIGHBORS),
    "awc": decentralized(bf.DistributedAdaptWithCombineOptimizer, NEIGHBORS),
    "hierarchical": decentralized(bf.DistributedAdaptThenCombineOptimizer, MACHINES),
}


def make_contestant(name, model, args):
    """(model, optimizer) of a contestant above or of a registered algorithm."""
    if is_ddp(name):
        name = "ddp"
    has_momentum = name not in CONTESTANTS and row_named(name).reads("momentum")
    optimizer = make_optimizer(model.parameters(), momentum=0.0 if has_momentum else MOMENTUM)
    if name in CONTESTANTS:
        return CONTESTANTS[name](model, optimizer, args)
    return model, bf.DecentralizedOptimizer(optimizer, model, name,
                                            momentum=MOMENTUM if has_momentum else 0.0)


def why_not(name):
    """Why a contestant cannot run on these ranks; empty if it can."""
    if name == "decent_dp" and bf.size() < 2:
        return "needs at least 2 ranks"
    if name == "hierarchical" and bf.machine_size() < 2:
        return (
            "one machine; BLUEFOG_NODES_PER_MACHINE=2 makes several of one host's ranks, if they "
            "are at least 4")
    return ""


class Contestant:
    def __init__(self, name, args):
        torch.manual_seed(0)
        model = make_model(args.model, args.image_size, args.classes)
        self.parameters = sum(p.numel() for p in model.parameters())
        self.model, self.optimizer = make_contestant(name, model, args)
        self.images = torch.randn(args.batch_size, 3, args.image_size, args.image_size)
        self.labels = torch.randint(args.classes, (args.batch_size,))
        self.seconds = []
        self.page_faults = 0

    def step(self):
        self.optimizer.zero_grad()
        torch.nn.functional.cross_entropy(self.model(self.images), self.labels).backward()
        self.optimizer.step()


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", required=True, help="file where ranks of gloo meet")
    parser.add_argument("--model", required=True)
    parser.add_argument("--words", required=True, help="folder where words come")
    parser.add_argument("--algorithm", required=True)
    for name in ("threads", "batch-size", "image-size", "classes", "steps", "bucket-mb"):
        parser.add_argument(f"--{name}", type=int, required=True)
    for flag in DDP_FLAGS:
        parser.add_argument(flag, action="store_true")
    return parser.parse_args()


def time_steps(contestant, count):
    """Seconds of each of `count` steps of this rank; the last one ends what is in flight."""
    seconds = []
    finish = getattr(contestant.optimizer, "finish", lambda: None)
    bf.barrier()
    for step in range(count):
        start = time.perf_counter()
        contestant.step()
        if step + 1 == count:
            finish()
        seconds.append(time.perf_counter() - start)
    return seconds


def record_of(name, contestant, args):
    """The figures of a contestant; collective."""
    seconds = bf.allgather(torch.tensor([contestant.seconds], dtype=torch.float64))
    faults = bf.allgather(torch.tensor([contestant.page_faults]))
    slowest = seconds.max(dim=0).values
    # A rank that was slow in one step may be the one that others wait for in a later one: the
    # images of a turn over its time, from the barrier that begins it to the end of the slowest
    # rank.
    turns = seconds.view(bf.size(), -1, args.steps).sum(dim=2).max(dim=0).values
    rates = args.batch_size * args.steps * bf.size() / turns
    return {"peer": peer_of(name), "algorithm": name, "model": args.model, "ranks": bf.size(),
            "batch_size": args.batch_size, "image_size": args.image_size,
            "parameters": contestant.parameters, "img_per_sec": rates.median().item(),
            "sec_per_iter": quantiles_of(slowest),
            "page_faults_per_step": faults.max().item() / len(contestant.seconds),
            "rounds_img_per_sec": rates.tolist()}


def say(record):
    if bf.rank() == 0:
        print(json.dumps(record), flush=True)


def take_turns(contestant, args):
    """Makes `--steps` steps at each word of the launching process; returns at its last one."""
    with open(f"{args.words}/words.{bf.rank()}") as words:
        for word in words:
            if word.strip() == "end":
                return
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            contestant.seconds += time_steps(contestant, args.steps)
            contestant.page_faults += resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
            say({"turn": len(contestant.seconds)})
    raise EOFError("the process that told this one its turns has gone")


def main():
    args = parse_arguments()
    torch.set_num_threads(args.threads)
    os.environ["BLUEFOG_FUSION_THRESHOLD"] = str(args.bucket_mb << 20)
    bf.init()
    if bf.machine_size() > 1:
        bf.set_machine_topology(topology_util.ExponentialGraph(bf.machine_size()))
    if why_not(args.algorithm):
        say({"peer": peer_of(args.algorithm), "algorithm": args.algorithm, "ranks": bf.size(),
             "not_run": why_not(args.algorithm)})
        return
    if is_peer(args.algorithm):
        join_gloo(args.store, bf.rank(), bf.size(), backend=backend_of(args.algorithm))
    contestant = Contestant(args.algorithm, args)
    time_steps(contestant, WARM_UP_STEPS)
    say({"ready": True})
    take_turns(contestant, args)
    say(record_of(args.algorithm, contestant, args))
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    try:
        main()
    except Exception:  # of a peer's library: any
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)  # what the library still does must not hold up the end of the job
