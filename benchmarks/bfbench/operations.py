"""bfbench ops: operations of this project, of gloo and of Open MPI beside a concurrent memcpy, or,
between hosts, beside what their links carry; from C++ and from Python, each for itself."""

from typing import NamedTuple

import torch
import torch.distributed as dist
from rich.console import Console
from rich.progress import Progress

from bfbench import hosts, open_mpi, output
from bfbench.jobs import Jobs
from bfbench.launch import Launcher, LaunchFailed
from bfbench.options import (
    add_output,
    add_rank_list,
    choice_list,
    rate_mbit,
    seconds,
    whole,
    whole_list,
)
from bfbench.records import (
    LEAST_LINK_BYTES,
    add_peer_ratios,
    count_text,
    merge_not_run,
    merge_starts,
    with_link_as_limit,
    with_one_memcpy,
)
from bfbench.reports import report
from bfbench.versions import versions

PRESETS = {
    "default": {"ranks": [2], "sizes": [4, 1 << 16, 1 << 20, 1 << 24, 100 << 20]},
    "quick": {"ranks": [2], "sizes": [4, 1 << 20]},
    "grid": {"ranks": [2, 4, 6], "sizes": [10**6, 10**7, 10**8, 10**9]},
}
MANY_RANKS = [8, 16]
BACKEND_PRESET = {"ranks": [2, 4], "sizes": [4, 4096, 1 << 16, 1 << 20, 1 << 24]}
DTYPES = ("float16", "bfloat16", "float32", "float64")
TRANSPORTS = ("auto", "mpi", "tcp")
# More than any machine's memory; small enough that products with ranks and elements fit 64 bits.
MOST_BYTES = 1 << 50
NO_MPI_HERE = ("between hosts of several ranks Open MPI 5's own calls were seen not to come back; "
               "--with mpi measures them")


class Side(NamedTuple):
    """The measurements of one job."""
    who: str
    measured_by: str
    """The launcher's function."""
    left_out: tuple = ()
    """Peers whose records another side has."""
    transport: str = ""
    """BLUEFOG_TRANSPORT of the ranks; empty: the environment's."""
    way: open_mpi.Way | None = None
    """The settings of Open MPI."""


def add_arguments(parser):
    parser.add_argument("--preset", choices=PRESETS, default="default",
                        help="ranks and sizes, where they are not given")
    add_rank_list(parser, None)
    parser.add_argument("--many", action="store_true",
                        help=f"{' and '.join(map(str, MANY_RANKS))} ranks too")
    parser.add_argument("--hosts", type=whole_list(2, 16), metavar="N,…",
                        help="network namespaces of this machine (root), in place of --ranks")
    parser.add_argument("--local-ranks", type=whole(1, 16), metavar="N",
                        help="ranks of each of those hosts; default: 1")
    parser.add_argument("--rate", type=rate_mbit, metavar="MBIT",
                        help="what each of them can send, in Mbit/s; default: 1000")
    parser.add_argument("--sizes", type=whole_list(1, MOST_BYTES), metavar="BYTES,…",
                        help="bytes per rank")
    parser.add_argument("--dtype", type=choice_list(DTYPES), default=["float32"], metavar="NAME,…",
                        help=f"out of {', '.join(DTYPES)}")
    parser.add_argument("--transports", type=choice_list(TRANSPORTS), default=[], metavar="NAME,…",
                        help="of this project's operations, one after the other: auto (shared "
                        "memory inside a host), mpi, tcp; default: what BLUEFOG_TRANSPORT and "
                        "BLUEFOG_NETWORK say")
    parser.add_argument("--seconds", type=seconds, default=2.0,
                        help="time per size and start, about")
    parser.add_argument("--without", choices=("gloo", "mpi", "nccl"), action="append", default=[],
                        help="a peer to leave out")
    parser.add_argument("--with", choices=("mpi",), action="append", default=[], dest="with_peers",
                        help="a peer that is left out by default: mpi between hosts of several "
                             "ranks")
    parser.add_argument("--backend", action="store_true",
                        help="torch.distributed's calls over the backend bluefog and over gloo, in "
                        "turns in the same processes, and nothing else")
    add_output(parser)


def check(args):
    """Refuses options that others make meaningless, and fills in those of hosts."""
    for name in ("--local-ranks", "--rate"):
        if not args.hosts and getattr(args, name[2:].replace("-", "_")) is not None:
            raise LaunchFailed(f"expected --hosts beside {name}, which is of hosts; found none",
                               f"{name} without --hosts")
    for first, second, both in (("--ranks", "--hosts", args.ranks and args.hosts),
                                ("--many", "--hosts", args.many and args.hosts),
                                ("--with mpi", "--without mpi",
                                 "mpi" in args.with_peers and "mpi" in args.without)):
        if both:
            raise LaunchFailed(f"expected {first} or {second}, found both", f"{first} and {second}")
    args.local_ranks = args.local_ranks or 1
    args.rate = args.rate or 1000.0


def preset_of(args):
    return BACKEND_PRESET if args.backend and args.preset == "default" else PRESETS[args.preset]


def places_of(args, preset):
    """(launcher, number of ranks) of each job."""
    if args.hosts:
        found: list = [(hosts.HostLauncher(args.build, count, args.local_ranks, args.rate),
                        count * args.local_ranks) for count in args.hosts]
    else:
        found = [(Launcher(args.build), ranks) for ranks in numbers_of_ranks(args, preset)]
    for launcher, ranks in found:
        launcher.longest_sec = args.job_timeout or generous_sec(args, launcher, ranks)
        if why_no_mpi(args):
            launcher.operations_words += ("--without-mpi", why_no_mpi(args))
        if "gloo" in args.without:
            launcher.operations_words += ("--without-gloo", "left out by --without gloo")
    return found


def numbers_of_ranks(args, preset):
    return list(dict.fromkeys((args.ranks or preset["ranks"]) + (MANY_RANKS if args.many else [])))


def generous_sec(args, launcher, ranks):
    """Several times what a job takes that goes on at all."""
    # Each operation is called 11 times at least, except on buffers larger than memory.
    calls, most_bytes = 150, 1 << 34
    bytes_per_sec = 1e9 if launcher.hosts == 1 else launcher.mbit * 1e6 / 8
    return 600 + sum(10 * args.seconds + calls * ranks * min(size, most_bytes) / bytes_per_sec
                     for size in args.sizes or preset_of(args)["sizes"])


def why_no_mpi(args):
    """Why Open MPI's own calls are left out; empty if they are not."""
    if "mpi" in args.without:
        return "left out by --without mpi"
    return NO_MPI_HERE if args.local_ranks > 1 and "mpi" not in args.with_peers else ""


def whole_elements(sizes, dtype):
    """Sizes as they are measured: of whole elements, each once."""
    width = getattr(torch, dtype).itemsize
    return list(dict.fromkeys(-(-size // width) * width for size in sizes))


def sides_of(args):
    if args.backend:
        yield Side("torch.distributed's backends", "backends")
        return
    yield Side("bluefog_cpp, Open MPI and gloo from C++", "own_and_mpi",
               transport=args.transports[0] if args.transports else "")
    for transport in args.transports[1:]:
        yield Side(f"bluefog_cpp over {transport}", "own_and_mpi", ("Open MPI", "gloo", "memcpy"),
                   transport)
    if "mpi" not in args.without and not args.hosts:
        for way in open_mpi.ways():
            yield Side(f"Open MPI with {way.name}", "mpi_alone", ("memcpy",), way=way)
    # Streams between hosts are those beside gloo as its users run it.
    if "gloo" not in args.without:
        yield Side("bluefog_cpp and gloo from Python", "gloo")
        yield Side("gloo bound from Python", "gloo_bound", ("link",))
    if "nccl" not in args.without:
        yield Side("NCCL", "gpus")


def measure(args, places, jobs):
    """All starts; the sides take turns, so that a machine whose speed wanders treats them alike."""
    starts = []
    sides = list(sides_of(args))
    with jobs.until_interrupted(), Progress(console=Console(stderr=True),
                                                transient=True) as progress:
        task = progress.add_task("measuring", total=args.starts * len(places) * len(args.dtype) *
                                 len(sides))
        for _ in range(args.starts):
            for launcher, ranks in places:
                for dtype in args.dtype:
                    start = []
                    starts.append(start)
                    for side in sides:
                        progress.update(task,
                                        description=f"{count_text(ranks, 'rank')}, {side.who}")
                        start += measure_side(args, launcher, side, ranks, dtype, jobs)
                        progress.advance(task)
    return starts


def measure_side(args, launcher, side, ranks, dtype, jobs):
    """The side's records. A peer that fails does not end the others' measurements: it is listed
    with its reason."""
    what = {"peer": side.who, "ranks": ranks, "dtype": dtype}
    reason = why_not_here(launcher, side, ranks)
    if reason:
        return [{**what, "not_run": reason}]
    if side.way:
        launcher = launcher.with_environment(**side.way.environment)
    if side.transport:
        # tcp: TCP wherever "mpi" has MPI.
        network = "tcp" if side.transport == "tcp" else "auto"
        everywhere = "auto" if side.transport == "auto" else "mpi"
        launcher = launcher.with_environment(BLUEFOG_TRANSPORT=everywhere, BLUEFOG_NETWORK=network)
    sizes = whole_elements(args.sizes or preset_of(args)["sizes"], dtype)
    records = jobs.gather(what, getattr(launcher, side.measured_by), ranks, sizes, dtype,
                              args.seconds)
    for record in records:
        if record["peer"] == "bluefog_cpp" and side.transport:
            record["op"] += f", transport {side.transport}"
        if record["peer"] == "Open MPI" and side.way and "op" in record:
            record["op"] += f", {side.way.name}"
            record["settings"] = side.way.environment
    return [record for record in records if record["peer"] not in side.left_out]


def why_not_here(launcher, side, ranks):
    """Why a side cannot run on this machine; empty if it can."""
    if side.way:
        return side.way.why_not
    if side.measured_by == "gpus":
        return why_no_gpus(launcher, ranks)
    if side.measured_by == "own_and_mpi" or (dist.is_available() and dist.is_gloo_available()):
        return ""
    return "this torch is built without gloo"


def why_no_gpus(launcher, ranks):
    """Why NCCL cannot run; empty if it can. torch's refuses several ranks on one GPU."""
    found = torch.cuda.device_count()
    if launcher.hosts > 1:
        return "hosts in network namespaces have no GPUs of their own"
    return "" if found >= ranks else f"expected a GPU for each of {ranks} ranks, found {found}"


def never_run(args, records):
    """Contestants that these options or this machine leave out."""
    if args.backend:
        return
    if "gloo" in args.without:  # calls from C++ say it themselves
        yield {"peer": "bluefog_cpp and gloo from Python", "not_run": "left out by --without gloo"}
    if "nccl" in args.without:
        yield {"peer": "NCCL", "not_run": "left out by --without nccl"}
    reason = why_no_link(args)
    if reason and not any(record["peer"] == "link" for record in records):
        yield {"peer": "link between hosts", "not_run": reason}
    if not args.hosts and not any(record["op"].startswith("hierarchical") for record in records):
        yield {"peer": "bluefog_cpp", "op": "hierarchical_neighbor_allreduce", "not_run":
               "one machine; --hosts makes several, and BLUEFOG_NODES_PER_MACHINE=2 several of one "
               "host's ranks"}


def why_no_link(args):
    """Why these options measure no stream between hosts; empty if they do."""
    if not args.hosts:
        return "all ranks were on one host; --hosts makes several"
    if "gloo" in args.without:
        return "measured beside gloo, which was left out"
    sizes = args.sizes or preset_of(args)["sizes"]
    if max(sizes) >= LEAST_LINK_BYTES:
        return ""
    return f"measured at sizes of {LEAST_LINK_BYTES} bytes and more"


def run(args):
    check(args)
    places = places_of(args, preset_of(args))
    for launcher, _ in places:
        launcher.require(launcher.bfrun if args.backend else launcher.operations)
    about = versions(places[0][0], args)
    reason = hosts.why_none() if args.hosts else ""
    if reason:
        output.show(args, about, [], [{"op": "all", "not_run": reason}], [],
                    report.write_operations)
        return None
    jobs = Jobs(args.starts)
    starts = measure(args, places, jobs)
    records = with_one_memcpy(add_peer_ratios(merge_starts(starts)))
    if args.hosts:
        about["links"] = f"{args.rate:g} Mbit/s from each host"
        records = with_link_as_limit(records)
    not_run = jobs.not_run() + merge_not_run(starts) + list(never_run(args, records))
    output.show(args, about, report.tables(records), not_run, records, report.write_operations)
    return jobs.code
