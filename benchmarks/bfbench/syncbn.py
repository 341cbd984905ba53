"""bfbench syncbn: batch normalisation over all ranks, beside torch's formulas over gloo."""

from bfbench import output
from bfbench.jobs import Jobs
from bfbench.launch import LONGEST_JOB_SEC, Launcher
from bfbench.options import add_output, add_rank_list, seconds, whole_list
from bfbench.records import count_text, merge_starts
from bfbench.reports import report
from bfbench.versions import versions

PEER = "torch's formulas (gloo)"


def add_arguments(parser):
    add_rank_list(parser, [2])
    parser.add_argument("--batches", type=whole_list(2), default=[32, 64], metavar="ROWS,…",
                        help="rows of a rank's batch")
    parser.add_argument("--hidden", type=whole_list(), default=[128, 256, 512, 1024], metavar="N,…",
                        help="channels")
    parser.add_argument("--seconds", type=seconds, default=1.0,
                        help="time per shape and start, about")
    add_output(parser)


def measure(args, launcher, jobs):
    starts = []
    with jobs.progress(args.starts * len(args.ranks)) as (tell, advance):
        for _ in range(args.starts):
            for ranks in args.ranks:
                tell(count_text(ranks, "rank"))
                starts.append(jobs.gather(
                    {"op": "batch norm", "ranks": ranks}, launcher.worker, "syncbn_worker", ranks,
                    "--batches", ",".join(map(str, args.batches)),
                    "--hidden", ",".join(map(str, args.hidden)), "--seconds", args.seconds))
                advance()
    return starts


def add_shares(records):
    """Time and memory as shares of the peer's with the same shape."""
    by_shape = {(record["ranks"], record["op"]): record
                for record in records if record["peer"] == PEER}
    # A job that failed may have printed a part of a shape's.
    records = [record for record in records if (record["ranks"], record["op"]) in by_shape]
    for record in records:
        peer = by_shape[record["ranks"], record["op"]]
        record["share_of_peer_time"] = record["median_us"] / peer["median_us"]
        record["share_of_peer_memory"] = record["peak_bytes"] / peer["peak_bytes"]
    return records


def run(args):
    launcher = Launcher(args.build, args.job_timeout or LONGEST_JOB_SEC)
    about = versions(launcher, args)
    jobs = Jobs()
    records = add_shares(merge_starts(measure(args, launcher, jobs)))
    not_run = [*jobs.not_run(), {
        "peer": "torch.nn.SyncBatchNorm",
        "not_run": "torch has it for GPUs only; its formulas are measured over gloo, with torch's "
                   "operators of the CPU"}]
    output.show(args, about, report.norm_tables(records), not_run, records, report.write_norms)
    return jobs.code
