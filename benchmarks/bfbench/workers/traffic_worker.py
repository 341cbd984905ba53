"""One rank of bfbench traffic: training runs one after the other, each from the same start and on
the same batches.

Prints one JSON object per run on rank 0.
"""

import argparse
import json
import math
import time

import torch
import torch.distributed as dist

import bluefog_cpp
import bluefog_cpp.torch as bf
from bfbench.algorithms import load_files
from bfbench.traffic.ways import PEERS, Way, peer_of
from bfbench.workers.rounds import join_gloo
from bfbench.workers.sent_bytes import SentBytes, stand_apart
from bfbench.workers.traffic_tasks import TASKS, judge, share_of
from bfbench.workers.traffic_ways import make_stepper, why_no_peer

LEAST_RATE = 0.1
"""The rate at the end, as a share of the highest."""


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", required=True, help="file where ranks of gloo meet")
    parser.add_argument("--runs", type=json.loads, required=True,
                        help="lists of a way's parts, shards, seed and number of steps")
    parser.add_argument("--task", choices=TASKS, required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--lr", type=float, required=True)
    parser.add_argument("--load", action="append", default=[])
    for name in ("hosts", "warmup-steps", "report-every", "batch-size", "length", "width", "layers",
                 "heads"):
        parser.add_argument(f"--{name}", type=int, required=True)
    return parser.parse_args()


def rate_at(step, steps, warmup_steps):
    """As a share of the highest: it rises, and falls by a cosine."""
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    part = (step - warmup_steps) / max(1, steps - warmup_steps)
    return LEAST_RATE + (1 - LEAST_RATE) * (1 + math.cos(math.pi * part)) / 2


class Meter:
    """Time and bytes of training alone, and what the model has come to; collective."""

    def __init__(self, model, task, hosts):
        self._model, self._task, self._sent = model, task, SentBytes(hosts)
        self._seconds, self._begun, self.points = 0.0, 0.0, []

    def start(self):
        bf.barrier()
        self._sent.start()
        self._begun = time.perf_counter()

    def note(self, step):
        """A point of the curves."""
        bf.barrier()  # the slowest rank counts
        self._seconds += time.perf_counter() - self._begun
        self._sent.stop()
        own = judge(self._model, self._task)
        loss, accuracy = bf.allreduce(torch.tensor(own, dtype=torch.float64)).tolist()
        self.points.append({"step": step, "seconds": self._seconds, "bytes": self._sent.total,
                            "loss": loss, "accuracy": accuracy,
                            "consensus_distance": distance_of(self._model)})


@torch.no_grad()
def distance_of(model):
    """Collective: sqrt of the mean over ranks of |x_i - mean x|^2."""
    own = torch.nn.utils.parameters_to_vector(model.parameters()).double()
    return bf.allreduce((own - bf.allreduce(own)).square().sum()).sqrt().item()


def train(stepper, model, task, own, seed, steps, args):
    """The points of a run."""
    generator = torch.Generator().manual_seed(1000 * seed + bf.rank())
    meter = Meter(model, task, args.hosts)
    meter.start()
    for step in range(steps):
        stepper.set_rate(args.lr * rate_at(step, steps, args.warmup_steps))
        stepper.step(task.loss, *task.batch(own, generator))
        if (step + 1) % args.report_every == 0 or step + 1 == steps:
            stepper.finish()
            meter.note(step + 1)
            meter.start()
    return meter.points


def run_once(way, shards, seed, steps, task, args):
    record = {"peer": peer_of(way), **way._asdict(), "shards": shards, "seed": seed,
              "ranks": bf.size(), "hosts": args.hosts, "batch_size": args.batch_size,
              "task": args.task, "data": task.name, "steps": steps}
    missing = why_no_peer(way.algorithm)
    if missing:
        return {**record, "not_run": missing}
    torch.manual_seed(seed)
    model = task.model()
    record["parameters"] = sum(each.numel() for each in model.parameters())
    own = share_of(task, bf.size(), bf.rank(), shards, seed)
    try:
        stepper = make_stepper(way, model, task, args)
        return {**record, "points": train(stepper, model, task, own, seed, steps, args)}
    except (bluefog_cpp.InvalidArgument, bluefog_cpp.UnsupportedError) as error:
        return {**record, "not_run": str(error)}  # the same on all ranks
    except Exception as error:  # of a peer's library: any
        if way.algorithm not in PEERS:
            raise
        return {**record, "not_run": f"{type(error).__name__}: {error}".splitlines()[0]}


def main():
    args = parse_arguments()
    load_files(args.load)
    torch.set_num_threads(1)
    if args.hosts == 1:
        stand_apart()
    bf.init()
    join_gloo(args.store, bf.rank(), bf.size())
    task = TASKS[args.task](args)
    for way, shards, seed, steps in args.runs:
        record = run_once(Way(*way), shards, seed, steps, task, args)
        if bf.rank() == 0:
            print(json.dumps(record), flush=True)
    dist.destroy_process_group()
    bf.shutdown()


if __name__ == "__main__":
    main()
