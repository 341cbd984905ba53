"""bfbench traffic: loss against steps, time and bytes sent, beside torch DDP and its hooks."""

import json

from bfbench import hosts, images, output
from bfbench.converge import shards_list
from bfbench.jobs import Jobs
from bfbench.launch import LONGEST_JOB_SEC, Launcher, LaunchFailed
from bfbench.options import (
    MOST_RANKS,
    add_output_files,
    choice_list,
    positive,
    rate_mbit,
    whole,
    whole_list,
)
from bfbench.records import merge_not_run
from bfbench.reports import traffic_report
from bfbench.traffic import texts
from bfbench.traffic.curves import merged
from bfbench.traffic.presets import DEFAULTS, OF_TASK, PRESETS, fill
from bfbench.traffic.ways import (
    DEFAULT_CODE,
    FORM,
    OWN_GRAPH,
    PEERS,
    code_list,
    graph_names,
    peer_of,
    registered_name,
    way_list,
    ways_of,
    why_unmeasured,
)
from bfbench.versions import versions

WORDS_OF_WORKER = ("task", "data", "lr", "hosts", "warmup_steps", "report_every", "batch_size",
                   "length", "width", "layers", "heads")


def graph_list(text):
    return choice_list(graph_names())(text)


def add_arguments(parser):
    parser.add_argument("--preset", choices=PRESETS, default="default",
                        help="where options are not given: slow-link, a language model of 8 ranks "
                        "over links of 100 Mbit/s, with few contestants; outer-steps, DiLoCo, "
                        "NoLoCo and accelerated gossip at H 30")
    parser.add_argument("--task", choices=OF_TASK, help=f"default: {DEFAULTS['task']}, a small "
                        "transformer on the bytes of a text; images: a small network")
    parser.add_argument("--algorithms", type=way_list, metavar=f"{FORM},…",
                        help="registered ones, and out of " + ", ".join(PEERS) + "; with a code, a "
                        "graph, H, of which a step communicates, and options of its row, as in "
                        "gossip_diloco+int4@ring/30~outer_momentum=0.5; default: "
                        + DEFAULTS["algorithms"])
    parser.add_argument("--load", action="append", default=[], metavar="FILE",
                        help="registers algorithms and schedules of a file of Python or a shared "
                        "object; may be repeated")
    parser.add_argument("--compressions", type=code_list, metavar="CODE,…",
                        help="of algorithms that take one and name none; "
                        f"{DEFAULT_CODE}: as they have it by themselves")
    parser.add_argument("--topologies", type=graph_list, metavar="NAME,…",
                        help="of algorithms that take one and name none; default: one_peer; "
                        f"{OWN_GRAPH}: as they have it by themselves")
    parser.add_argument("--local-steps", type=whole(), metavar="H", help="of outer steps, local "
                        f"SGD and post-local SGD that name none; default: {DEFAULTS['local_steps']}"
                        )
    parser.add_argument("--shards", type=shards_list, metavar="HOW,…", help="iid, or α: each "
                        "class, or file of the text, is dealt to the ranks by Dirichlet(α)")
    parser.add_argument("--seeds", type=whole_list(0), metavar="N,…",
                        help="of shards, first models and batches; default: 1,2,3")
    parser.add_argument("--baseline", type=registered_name, default="ddp", metavar="NAME",
                        help="whose last loss the others are timed to; default: ddp")
    parser.add_argument("--more", type=positive, metavar="FACTOR", help="the others make so many "
                        "times the baseline's steps, with a rate that falls accordingly")
    add_places(parser)
    add_training(parser)
    add_output_files(parser)


def add_places(parser):
    parser.add_argument("--ranks", type=whole(1, MOST_RANKS), metavar="N",
                        help=f"default: {DEFAULTS['ranks']}")
    parser.add_argument("--hosts", type=whole(1, 16), metavar="N", help="network namespaces of "
                        "this machine (root), between which bytes are counted; they divide the "
                        "ranks. 1, the default: ranks share no memory, and all that they send "
                        "through a loopback interface counts (root: of their own)")
    parser.add_argument("--rate", type=rate_mbit, metavar="MBIT",
                        help="what each of several hosts can send, in Mbit/s; default: 1000")


def add_training(parser):
    parser.add_argument("--data", metavar="PATH", help="a text, or a folder of texts; of --task "
                        f"images as of bfbench ddp, or '{images.SYNTHETIC}'")
    parser.add_argument("--steps", type=whole(), metavar="N", help="of the baseline, and its rank; "
                        f"default: {DEFAULTS['steps']}")
    parser.add_argument("--warmup-steps", type=whole(), metavar="N", help="in which the rate "
                        "rises; PowerSGD and post-local SGD begin after them")
    parser.add_argument("--report-every", type=whole(), metavar="STEPS",
                        help="between two points of a curve")
    parser.add_argument("--lr", type=positive, help="the highest; it falls by a cosine to a tenth")
    parser.add_argument("--batch-size", type=whole(), metavar="N", help="of a rank")
    for name, about in (("length", "bytes of a window"), ("width", "of the transformer"),
                        ("layers", "of the transformer"), ("heads", "they divide the width")):
        parser.add_argument(f"--{name}", type=whole(), metavar="N", help=about)


def check(args):
    """Raises LaunchFailed for options that do not go together."""
    for name, is_wrong, expected in (
            ("hosts", args.ranks % args.hosts, f"a divisor of the {args.ranks} ranks"),
            ("rate", args.rate and args.hosts == 1, "--hosts of at least 2, whose links it limits"),
            ("heads", args.width % args.heads, f"a divisor of the width, {args.width}"),
            ("length", args.length >= texts.PIECE_BYTES, f"less than {texts.PIECE_BYTES}")):
        if is_wrong:
            text = f"--{name}: expected {expected}, found {getattr(args, name)}"
            raise LaunchFailed(text, text)
    (texts if args.task == "language" else images).load(args.data)


def check_baseline(baseline, ways):
    """Raises LaunchFailed unless there is one way that all are compared with."""
    found = [way.name() for way in ways if way.algorithm == baseline]
    if len(found) != 1:
        text = (f"--baseline: expected one of --algorithms, with one graph and code, found "
                f"{baseline}, which {', '.join(found) or 'none'} is")
        raise LaunchFailed(text, text)


def launcher_of(args):
    longest_sec = args.job_timeout or LONGEST_JOB_SEC * max(1, args.steps / 200) * args.more
    if args.hosts == 1:
        return hosts.LoopbackLauncher(args.build, longest_sec)
    return hosts.HostLauncher(args.build, args.hosts, args.ranks // args.hosts, args.rate,
                              longest_sec)


def steps_of(way, args):
    return args.steps if way.algorithm == args.baseline else round(args.steps * args.more)


def measure(args, ways, jobs):
    """A launch makes all runs of a seed and of shards."""
    launcher, runs = launcher_of(args), []
    words = [word for name in WORDS_OF_WORKER
             for word in (f"--{name.replace('_', '-')}", getattr(args, name))]
    for file in args.load:
        words += ["--load", file]
    with jobs.progress(len(args.seeds) * len(args.shards)) as (tell, advance):
        for shards in args.shards:
            for seed in args.seeds:
                tell(f"{args.ranks} ranks, shards {shards}, seed {seed}")
                wanted = [(way, shards, seed, steps_of(way, args)) for way in ways]
                runs += jobs.gather({"op": f"shards {shards}, seed {seed}", "ranks": args.ranks},
                                    launcher.worker, "traffic_worker", args.ranks, "--runs",
                                    json.dumps(wanted), *words)
                advance()
    return [{**run, "rate_mbit": args.rate} for run in runs]


def not_run_of(runs):
    """Ways that could not run, each with its reason once."""
    return merge_not_run([[{"peer": run["peer"], "algorithm": run["algorithm"],
                            "topology": run["graph"], "not_run": run["not_run"]}
                           for run in runs if "not_run" in run]])


def run(args):
    fill(args)
    check(args)
    if isinstance(args.algorithms, str):
        args.algorithms = way_list(args.algorithms)
    found = ways_of(args.algorithms, args.compressions, args.topologies, args.local_steps)
    about = versions(Launcher(args.build), args)
    not_run = [{"peer": peer_of(way), "algorithm": way.algorithm, "not_run": why_unmeasured(way)}
               for way in found if why_unmeasured(way)]
    ways = [way for way in found if not why_unmeasured(way)]
    reason = hosts.why_none() if args.hosts > 1 else ""
    if reason or not ways:
        not_run += [{"peer": peer_of(way), "algorithm": way.algorithm, "not_run": reason}
                    for way in ways]
        output.show(args, about, [], not_run, [], traffic_report.writer(args.baseline))
        return 1  # none of what was asked for
    check_baseline(args.baseline, ways)
    jobs = Jobs()
    runs = measure(args, ways, jobs)
    records = merged(runs, args.baseline)
    output.show(args, about, traffic_report.tables(records, args.baseline),
                jobs.not_run() + not_run_of(runs) + not_run, records,
                traffic_report.writer(args.baseline))
    return jobs.code
