"""bfbench scale: training on hosts with limited links (network namespaces), beside torch DDP."""

import json
import pathlib
import tempfile
from typing import NamedTuple

from bfbench import hosts, output, scale_model
from bfbench.algorithms import algorithm_list
from bfbench.contestants import with_all_buckets
from bfbench.jobs import Jobs
from bfbench.launch import LONGEST_JOB_SEC, Launcher
from bfbench.options import (
    add_ddp_buckets,
    add_output,
    choice_list,
    rate_or_auto,
    share,
    whole,
    whole_list,
)
from bfbench.records import SCALE_FIGURES, SCALE_KEY, merge_train_starts
from bfbench.reports import scale_report
from bfbench.train import MODELS
from bfbench.versions import versions

ALGORITHMS = ("ddp", "gradient_allreduce", "atc", "atc_in_backward", "awc", "hierarchical")
GRAPHS = ("one_peer", "exponential")
COMPUTE = ("sleep", "real")
FIRST_RATE_MBIT = 200
FLAT_HERE = ("one rank per host: hierarchical is the exponential graph there; --local-ranks 2 has "
             "several")


def add_arguments(parser):
    parser.add_argument("--hosts", type=whole_list(2, 16), default=[2, 4, 8], metavar="N,…")
    parser.add_argument("--local-ranks", type=whole(1, 16), default=1, metavar="N",
                        help="ranks of each host")
    parser.add_argument("--rate", type=rate_or_auto, default="auto", metavar="auto|MBIT",
                        help="what a host can send; auto: such that DDP, with the buckets that it "
                        "is fastest with, has --share of its speed without communication at "
                        "--rate-hosts")
    parser.add_argument("--share", type=share, default=0.66)
    parser.add_argument("--rate-hosts", type=whole(2, 16), metavar="N",
                        help="default: 4 if that is among the hosts, else the middle one")
    parser.add_argument("--compute", type=choice_list(COMPUTE), default=["sleep"], metavar="KIND,…",
                        help="sleep: sleeps the time that one rank alone was measured to compute, "
                        "so that ranks of one machine do not compete for cores; real: computes")
    parser.add_argument("--model", choices=MODELS, default="vit")
    parser.add_argument("--algorithms", type=algorithm_list(ALGORITHMS, has_others=False),
                        default=list(ALGORITHMS),
                        metavar="NAME,…", help=f"out of {', '.join(ALGORITHMS)}; training without "
                        "communication is always measured, in a plain loop of torch's and with "
                        "this project's optimizer around torch's")
    parser.add_argument("--graphs", type=choice_list(GRAPHS), default=list(GRAPHS),
                        metavar="NAME,…",
                        help=f"of atc, atc_in_backward and awc, out of {', '.join(GRAPHS)}")
    parser.add_argument("--threads", type=whole(), default=1, metavar="N",
                        help="of a rank, for the model")
    parser.add_argument("--batch-size", type=whole(), default=32, metavar="N", help="of a rank")
    parser.add_argument("--image-size", type=whole(8), default=32, metavar="PIXELS")
    parser.add_argument("--classes", type=whole(2), default=10, metavar="N")
    parser.add_argument("--rounds", type=whole(), default=3, metavar="N",
                        help="turns of each algorithm in a start")
    parser.add_argument("--steps", type=whole(), default=4, metavar="N", help="steps of a turn")
    parser.add_argument("--bucket-mb", type=whole(), default=25, metavar="MIB",
                        help="size of this project's buckets, at most 4 where they leave in the "
                        "backward pass")
    add_ddp_buckets(parser)
    add_output(parser)


class Measured(NamedTuple):
    starts: list
    """Records of each start of a job."""
    networks: list
    rates: dict
    """Rates by kind of compute: what the search found, or the given rate."""
    profile: dict


class Measurement:
    """Jobs on hosts, one after the other."""

    def __init__(self, args, folder, tell):
        self.args, self.folder, self.tell = args, folder, tell
        self.profile_file = folder / "profile.json"
        self.longest_sec = args.job_timeout or LONGEST_JOB_SEC * args.rounds

    def profile(self):
        self.tell("one rank alone, whose compute is timed")
        found, = Launcher(self.args.build, self.longest_sec).worker(
            "scale_profile", 1,
            *self.words_of("model", "threads", "batch_size", "image_size", "classes"))
        self.profile_file.write_text(json.dumps(found))
        return found

    def words_of(self, *names):
        return [word for name in names
                for word in (f"--{name.replace('_', '-')}", getattr(self.args, name))]

    def job(self, host_count, compute, mbit, algorithms, *options):
        launcher = hosts.HostLauncher(self.args.build, host_count, self.args.local_ranks, mbit,
                                      self.longest_sec)
        words = self.words_of("model", "threads", "batch_size", "image_size", "classes", "rounds",
                              "steps", "bucket_mb")
        if compute == "sleep":
            words += ["--profile", self.profile_file]
        return launcher.worker(
            "scale_worker", host_count * self.args.local_ranks, "--algorithms",
            ",".join(algorithms), "--graphs", ",".join(self.args.graphs), "--rate", mbit, *words,
            *options)

    def rate(self, compute):
        """Mbit/s, and how it was found."""
        if self.args.rate != "auto":
            return {"rate_mbit": self.args.rate}
        count = rate_hosts(self.args)
        self.tell(f"rate of links at which DDP has {self.args.share:.0%} at {count} hosts, "
                  f"compute: {compute}")
        found, = self.job(count, compute, FIRST_RATE_MBIT,
                          with_all_buckets(["ddp"], self.args.ddp_buckets), "--search-share",
                          self.args.share, "--rounds", 1)
        return found


def rate_hosts(args):
    if args.rate_hosts:
        return args.rate_hosts
    return 4 if 4 in args.hosts else sorted(args.hosts)[len(args.hosts) // 2]


def algorithms_of(args):
    """The ways of training that are measured, of DDP one for each size of its buckets."""
    return with_all_buckets([name for name in args.algorithms
                             if name != "hierarchical" or args.local_ranks > 1], args.ddp_buckets)


def measure(args, folder, jobs):
    found = Measured([], [], {}, {})
    total = len(args.compute) * (1 + args.starts * len(args.hosts))
    with jobs.progress(total) as (tell, advance):
        measurement = Measurement(args, folder, tell)
        found.profile.update(measurement.profile())
        for compute in args.compute:
            rate = jobs.make({"op": f"search for a rate, compute: {compute}"}, measurement.rate,
                                 compute)
            advance()
            if not rate:
                continue
            found.rates[compute] = rate
            mbit = rate["rate_mbit"]
            for _ in range(args.starts):
                for count in args.hosts:
                    measurement.tell(f"{count} hosts at {mbit:.0f} Mbit/s, compute: {compute}")
                    said = jobs.make(
                        {"op": f"{count} hosts, compute: {compute}",
                         "algorithm": ",".join(algorithms_of(args))},
                        measurement.job, count, compute, mbit, algorithms_of(args))
                    found.starts.append([record for record in said if "algorithm" in record])
                    found.networks.extend({**record, "compute": compute} for record in said
                                          if "alpha_us" in record)
                    advance()
    return found


def simulated(args, found, measured):
    """The model's records; measured records are told how far it lies from them."""
    simulate = scale_model.bftopo_at(args.build)
    made = []
    for compute in args.compute:
        records = [r for r in measured if r["emulated"] == (compute == "sleep")]
        networks = [n for n in found.networks if n["compute"] == compute]
        if not records or not networks:
            continue  # no job of this kind ended well
        costs = scale_model.costs_of(records, networks, found.profile, args.bucket_mb << 20)
        made += scale_model.simulated_records(records, costs, simulate)
    return made


def run(args):
    launcher = Launcher(args.build)
    launcher.require(scale_model.bftopo_of(args.build))
    about = versions(launcher, args)
    not_run = [{"algorithm": name, "not_run": FLAT_HERE} for name in args.algorithms
               if name == "hierarchical" and name not in algorithms_of(args)]
    if not algorithms_of(args):
        output.show(args, about, [], not_run, [], scale_report.write)
        return 1  # none of what was asked for
    reason = hosts.why_none()
    if reason:
        output.show(args, about, [], [{"algorithm": name, "not_run": reason}
                                      for name in args.algorithms], [], scale_report.write)
        return None
    jobs = Jobs()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(args, pathlib.Path(folder), jobs)
    about |= {"links": scale_report.links_text(found.rates)}
    if found.networks:
        about["network"] = scale_report.network_text(found.networks)
    records = merge_train_starts(found.starts, SCALE_KEY, SCALE_FIGURES)
    records += jobs.make({"op": "the model"}, simulated, args, found, records)
    output.show(args, about, scale_report.tables(records), jobs.not_run() + not_run, records,
                scale_report.write)
    return jobs.code
