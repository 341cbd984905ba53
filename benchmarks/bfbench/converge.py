"""bfbench converge: accuracy and consensus after a fixed budget, by algorithm, graph and shards."""

import argparse
import json
import math

from bfbench import images, output
from bfbench.algorithms import (
    SCHEDULES,
    TOPOLOGIES,
    algorithm_list,
    own_schedules,
    registered,
    row_named,
    takes_graphs,
    why_not,
)
from bfbench.jobs import Jobs
from bfbench.launch import LONGEST_JOB_SEC, Launcher
from bfbench.options import (
    add_output_files,
    add_rank_list,
    choice_list,
    positive,
    whole,
    whole_list,
)
from bfbench.records import count_text, merge_not_run, over_seeds
from bfbench.reports import report
from bfbench.shards import IID
from bfbench.versions import versions

KEY = ("algorithm", "topology", "shards", "ranks", "steps", "batch_size", "data")
FIGURES = ("accuracy", "worst_accuracy", "mean_model_accuracy", "consensus_distance")


def shards_list(text):
    for word in text.split(","):
        try:
            is_right = word == IID or positive(word)
        except argparse.ArgumentTypeError:
            is_right = False
        if not is_right:
            raise argparse.ArgumentTypeError(
                f"expected {IID} or the α of a Dirichlet draw, a number "
                f"above 0, by commas; found '{word}'")
    return list(dict.fromkeys(text.split(",")))


def topology_list(text):
    return choice_list((*TOPOLOGIES, *SCHEDULES, *own_schedules()))(text)


DEFAULTS: dict = {"topologies": list(TOPOLOGIES), "shards": [IID, "0.1"], "seeds": [1, 2, 3],
                  "ranks": [8], "steps": 400}
PRESETS: dict[str, dict] = {
    "default": {},
    # Tables of the field, scaled to a small network, few images and few processors.
    "exponential-graphs": {
        "about": "static and one-peer exponential graphs, as arXiv 2110.13363 has them for "
                 "ResNet-50 on ImageNet; scaled",
        "algorithms": ["adapt_then_combine", "dmsgd", "gradient_allreduce"], "ranks": [4],
        "topologies": ["exponential", "one_peer"], "shards": [IID]},
    "base-graph": {
        "about": "base graphs and one-peer exponential ones at 25 ranks with Dirichlet(0.1) "
                 "shards, as arXiv 2305.11420 has them for CIFAR-10; scaled",
        "algorithms": ["adapt_then_combine", "gradient_allreduce"], "ranks": [25],
        "topologies": ["base", "one_peer", "ring"], "shards": ["0.1"], "steps": 300},
    "gossip-pga": {
        "about": "gossip with an average over all ranks now and then, as arXiv 2105.09080 has it "
                 "for ResNet-50 on ImageNet; scaled",
        "algorithms": ["gradient_allreduce", "adapt_then_combine", "gossip_pga", "local_sgd"],
        "topologies": ["ring", "one_peer"], "shards": ["0.1"]},
}


def fill(args):
    """Gives the options that were left out what the preset has."""
    for name, value in {**DEFAULTS, "algorithms": None, **PRESETS[args.preset]}.items():
        if getattr(args, name, None) is None and name != "about":
            setattr(args, name, value)


def add_arguments(parser):
    parser.add_argument("--preset", choices=PRESETS, default="default",
                        help="where options are not given: tables of the field, scaled")
    parser.add_argument("--algorithms", type=algorithm_list(), metavar="NAME,…",
                        help="registered ones (python -m bluefog_cpp.algorithms lists them), by "
                        "name or alias; default: all")
    parser.add_argument("--load", action="append", default=[], metavar="FILE",
                        help="registers algorithms and schedules of a file of Python or a shared "
                        "object; may be repeated")
    parser.add_argument("--topologies", type=topology_list, metavar="NAME,…",
                        help=f"out of {', '.join((*TOPOLOGIES, *SCHEDULES))}, and schedules of "
                        f"--load; default: {','.join(TOPOLOGIES)}")
    parser.add_argument("--shards", type=shards_list, metavar="HOW,…",
                        help=f"{IID}, or α: each class is dealt to the ranks by Dirichlet(α); "
                        f"default: {','.join(DEFAULTS['shards'])}")
    parser.add_argument("--seeds", type=whole_list(0), metavar="N,…",
                        help="of shards, first models and batches; default: 1,2,3")
    add_rank_list(parser, None)
    parser.add_argument("--data", default=images.FASHION, metavar="FOLDER",
                        help=f"as of bfbench ddp, or '{images.SYNTHETIC}'")
    parser.add_argument("--steps", type=whole(), metavar="N",
                        help=f"the budget of a rank; default: {DEFAULTS['steps']}")
    parser.add_argument("--batch-size", type=whole(), default=32, metavar="N", help="of a rank")
    parser.add_argument("--lr", type=positive, default=0.02)
    parser.add_argument("--train-images", type=whole(), default=20_000, metavar="N")
    parser.add_argument("--test-images", type=whole(), default=2_000, metavar="N")
    add_output_files(parser)


def runs_of(args, seed):
    """Algorithm, topology, shards, seed; those that take no graph run once for all of them."""
    rows = [row for row in map(row_named, args.algorithms) if not why_not(row)]
    return [(row.name, topology, shards, seed)
            for shards in args.shards for row in rows
            for topology in (args.topologies if takes_graphs(row) else [None])]


def measure(args, launcher, jobs):
    """A launch makes all runs of a seed: ranks take longer to start than many a run."""
    records = []
    with jobs.progress(len(args.seeds) * len(args.ranks)) as (tell, advance):
        for ranks in args.ranks:
            for seed in args.seeds:
                tell(f"{count_text(ranks, 'rank')}, seed {seed}")
                words = ["--runs", json.dumps(runs_of(args, seed)), "--data", args.data, "--lr",
                         args.lr]
                for name in ("steps", "batch_size", "train_images", "test_images"):
                    words += [f"--{name.replace('_', '-')}", getattr(args, name)]
                for file in args.load:
                    words += ["--load", file]
                records += jobs.gather({"op": f"seed {seed}", "ranks": ranks}, launcher.worker,
                                           "converge_worker", ranks, *words)
                advance()
    return records


def refused_of(records):
    """Algorithms on graphs that they do not converge on, each once."""
    return merge_not_run(
        [[{name: record[name] for name in ("algorithm", "topology", "ranks", "not_run")}
          for record in records if "not_run" in record]])


def merge_seeds(records):
    """One record for each line: means over the seeds, their deviation, and each seed's."""
    by_key = {}
    for record in records:
        if "not_run" in record:
            continue
        by_key.setdefault(tuple(record[name] for name in KEY), []).append(record)
    merged = []
    for key, found in by_key.items():
        entry = {"peer": "bluefog_cpp", **dict(zip(KEY, key))}
        entry["seeds"] = [record["seed"] for record in found]
        for name in FIGURES:
            # A model of no numbers has an accuracy all the same, which says nothing.
            entry |= over_seeds(name, [
                record[name] if math.isfinite(record["consensus_distance"]) else math.nan
                for record in found])
        merged.append(entry)
    return merged


def run(args):
    fill(args)
    launcher = Launcher(args.build, args.job_timeout or LONGEST_JOB_SEC * max(1, args.steps / 400))
    images.load(args.data)
    args.algorithms = args.algorithms or [row.name for row in registered()]
    about = versions(launcher, args)
    if "about" in PRESETS[args.preset]:
        about["preset"] = PRESETS[args.preset]["about"]
    not_run = [{"algorithm": row.name, "not_run": why_not(row)}
               for row in map(row_named, args.algorithms) if why_not(row)]
    if len(not_run) == len(args.algorithms):
        output.show(args, about, [], not_run, [], report.write_converge)
        return 1  # none of what was asked for
    jobs = Jobs()
    found = measure(args, launcher, jobs)
    records = merge_seeds(found)
    output.show(args, about, report.converge_tables(records),
                jobs.not_run() + refused_of(found) + not_run, records,
                report.write_converge)
    return jobs.code
