"""bfbench train: images per second of training a model, by algorithm, beside torch DDP and
Decent-DP."""

import contextlib
import functools
import importlib.util
import os
import sys

from bfbench import output
from bfbench.algorithms import algorithm_list
from bfbench.contestants import is_peer, with_all_buckets
from bfbench.jobs import Jobs
from bfbench.launch import LONGEST_JOB_SEC, Launcher, LaunchFailed, output_of
from bfbench.options import add_ddp_buckets, add_output, add_rank_list, choice_list, whole
from bfbench.records import add_shares, count_text, merge_not_run, merge_train_starts
from bfbench.reports import training_report
from bfbench.training import DDP_FLAGS
from bfbench.turns import Side
from bfbench.versions import versions

MODELS = ("cnn", "vit", "resnet18", "resnet50", "resnet101", "resnext50_32x4d", "resnext101_32x8d")
ALGORITHMS = ("none", "none_wrapped", "ddp", "ddp_bluefog", "decent_dp", "gradient_allreduce",
              "atc", "awc", "hierarchical")
# Variables that bfrun sets for ranks and torchrun does not.
MALLOC_VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_")


def add_arguments(parser):
    parser.add_argument("--models", type=choice_list(MODELS), default=["resnet18"],
                        metavar="NAME,…",
                        help=f"out of {', '.join(MODELS)}")
    parser.add_argument("--algorithms", type=algorithm_list(ALGORITHMS), default=list(ALGORITHMS),
                        metavar="NAME,…", help=f"out of {', '.join(ALGORITHMS)} (the default), and "
                        "what python -m bluefog_cpp.algorithms lists; none trains each rank for "
                        "itself in a plain loop of torch's, none_wrapped with this project's "
                        "optimizer around torch's")
    add_rank_list(parser, [2])
    parser.add_argument("--threads", type=whole(), default=1, metavar="N",
                        help="of a rank, for the model")
    parser.add_argument("--batch-size", type=whole(), default=32, metavar="N", help="of a rank")
    parser.add_argument("--image-size", type=whole(8), default=32, metavar="PIXELS")
    parser.add_argument("--classes", type=whole(2), default=10, metavar="N")
    parser.add_argument("--rounds", type=whole(), default=7, metavar="N",
                        help="turns of each algorithm in a start")
    parser.add_argument("--steps", type=whole(), default=5, metavar="N", help="steps of a turn")
    parser.add_argument("--bucket-mb", type=whole(), default=25, metavar="MIB",
                        help="size of buckets, this project's and Decent-DP's; this project's "
                        "have at most 4 where they leave in the backward pass")
    add_ddp_buckets(parser)
    for flag, text in DDP_FLAGS.items():
        parser.add_argument(flag, action="store_true", help=text)
    parser.add_argument("--peers-as-torchrun", action="store_true",
                        help="DDP and Decent-DP run without the settings of malloc that bfrun "
                        "gives its ranks; default: all sides have the same environment")
    add_output(parser)


def options_of_worker(args, model, algorithm):
    words = ["--model", model, "--algorithm", algorithm]
    for name in ("threads", "batch_size", "image_size", "classes", "steps", "bucket_mb"):
        words += [f"--{name.replace('_', '-')}", getattr(args, name)]
    return words + [flag for flag in DDP_FLAGS if getattr(args, flag[2:].replace("-", "_"))]


@functools.cache
def refused(algorithm):
    """Why an algorithm cannot run here at all; empty if it can."""
    if algorithm == "decent_dp" and importlib.util.find_spec("decent_dp") is None:
        return "decent-dp is not installed: pip install decent-dp"
    if algorithm == "decent_dp":  # one that cannot be imported would end the others' ranks too
        try:
            output_of([sys.executable, "-c", "import decent_dp"], None)
        except LaunchFailed as error:
            return f"decent-dp cannot be imported: {error.last_words}"
    return ""


def start_side(args, launcher, ranks, model, algorithm):
    """A job that trains, in bfrun's environment."""
    unset = [word for name in MALLOC_VARIABLES if name not in os.environ for word in ("-u", name)]
    prefix = ["env", *unset] if args.peers_as_torchrun and is_peer(algorithm) else []
    return Side(launcher, ranks, "train_worker", *options_of_worker(args, model, algorithm),
                prefix=prefix)


def one_start(args, launcher, jobs, ranks, model, algorithms):
    """The records of jobs that live at the same time and take turns."""
    records, sides = [], {}

    def make(name, job, *words):
        return jobs.make({"op": model, "algorithm": name, "ranks": ranks}, job, *words)

    with contextlib.ExitStack() as stack:
        for name in algorithms:
            side = make(name, start_side, args, launcher, ranks, model, name)
            if side:
                stack.enter_context(side)
                if "not_run" in side.first:
                    records.append(side.first)
                else:
                    sides[name] = side
        for number in range(args.rounds):
            names = list(sides)
            for name in names[number % len(names):] + names[:number % len(names)] if names else []:
                if not make(name, sides[name].tell, "turn"):
                    del sides[name]
        return records + [record for name, side in sides.items()
                          if (record := make(name, side.tell, "end"))]


def measure(args, launcher, jobs):
    starts = []
    runnable = with_all_buckets([name for name in args.algorithms if not refused(name)],
                                args.ddp_buckets)
    if not runnable:
        raise LaunchFailed(f"none of {', '.join(args.algorithms)} can run: "
                           f"{refused(args.algorithms[0])}", "nothing can run")
    total = args.starts * len(args.models) * len(args.ranks)
    with jobs.progress(total) as (tell, advance):
        for _ in range(args.starts):
            for model in args.models:
                for ranks in args.ranks:
                    tell(f"{model}, {count_text(ranks, 'rank')}")
                    starts.append(one_start(args, launcher, jobs, ranks, model, runnable))
                    advance()
    return starts


def run(args):
    launcher = Launcher(args.build, args.job_timeout or LONGEST_JOB_SEC)
    about = versions(launcher, args)
    jobs = Jobs()
    starts = measure(args, launcher, jobs)
    not_run = jobs.not_run() + merge_not_run(starts) + [
        {"algorithm": name, "not_run": refused(name)} for name in args.algorithms if refused(name)]
    records = add_shares(merge_train_starts(starts))
    output.show(args, about, training_report.train_tables(records), not_run, records,
                training_report.write_training)
    return jobs.code
