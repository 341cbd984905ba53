"""bfbench uneven: neighbour averages of ranks that compute for uneven times, by messages and in
place."""

import statistics

from bfbench import output
from bfbench.jobs import Jobs
from bfbench.launch import LONGEST_JOB_SEC, Launcher
from bfbench.options import add_output, add_rank_list, positive, whole
from bfbench.records import count_text
from bfbench.reports import charts, report
from bfbench.reports.units import size_text
from bfbench.versions import versions

GRAPHS = ("one-peer-exponential", "ring", "exponential")
# (spread of the logarithm of the times, how many times as long rank 0 takes)
CASES = ((0.0, 1.0), (0.1, 1.0), (0.3, 1.0), (0.6, 1.0), (0.1, 2.0))
KEY = ("ranks", "bytes", "graph", "spread", "slow", "way")
COLUMNS = ("graph", "way", "spread", "slow rank", "ms an iteration", "of messages", "by start")


def add_arguments(parser):
    add_rank_list(parser, [4, 8])
    parser.add_argument("--bytes", type=whole(4), default=16 << 20, metavar="BYTES",
                        help="bytes per rank")
    parser.add_argument("--compute-ms", type=positive, default=50.0, metavar="MS",
                        help="mean time that a rank sleeps in place of computing")
    parser.add_argument("--iterations", type=whole(), default=40, metavar="N",
                        help="of each block, of which each way has five")
    add_output(parser, starts=3)


def measure(args, launcher, jobs):
    records = []
    with jobs.progress(args.starts * len(args.ranks) * len(GRAPHS) * len(CASES)) as (tell, advance):
        for _ in range(args.starts):
            for ranks in args.ranks:
                for graph in GRAPHS:
                    for spread, slow in CASES:
                        tell(f"{count_text(ranks, 'rank')}, {graph}")
                        records += jobs.gather(
                            {"op": f"uneven ranks, {graph}", "ranks": ranks}, launcher.run, ranks,
                            launcher.program("uneven_benchmark"), "--json", "--graph", graph,
                            "--bytes", args.bytes // 4 * 4, "--compute-ms", args.compute_ms,
                            "--iterations", args.iterations, "--spread", spread, "--slow", slow)
                        advance()
    return records


def merge(records):
    """One record for each way: medians over the starts, and the shares of each."""
    by_key = {}
    for record in records:
        by_key.setdefault(tuple(record[name] for name in KEY), []).append(record)
    return [{**dict(zip(KEY, key)), "compute_ms": found[0]["compute_ms"],
             "iteration_ms": statistics.median(r["iteration_ms"] for r in found),
             "share_of_messages": statistics.median(r["share_of_messages"] for r in found),
             "starts_share": [r["share_of_messages"] for r in found]}
            for key, found in by_key.items()]


def case_of_ranks(record):
    return (f"{count_text(record['ranks'], 'rank')}, {size_text(record['bytes'])}, compute "
            f"{record['compute_ms']:g} ms")


def titled_rows(records):
    for ranks, size in sorted({(record["ranks"], record["bytes"]) for record in records}):
        of_both = [r for r in records if (r["ranks"], r["bytes"]) == (ranks, size)]
        yield (case_of_ranks(of_both[0]),
               [(r["graph"], r["way"], f"{r['spread']:.1f}", f"{r['slow']:.0f}",
                 f"{r['iteration_ms']:.1f}", f"{r['share_of_messages']:.3f}",
                 " ".join(f"{share:.3f}" for share in r["starts_share"]))
                for r in of_both])


def case_text(record):
    slow = f", one rank {record['slow']:g} times" if record["slow"] != 1 else ""
    return f"spread {record['spread']:g}{slow}"


def charts_of(records):
    """(name, figure): how long the ways take, of messages, a panel for each number of ranks and way
    that is not by messages."""
    for ranks in sorted({record["ranks"] for record in records}):
        of_ranks = [record for record in records if record["ranks"] == ranks]
        ways = [way for way in dict.fromkeys(r["way"] for r in of_ranks) if way != "messages"]
        yield f"uneven_{ranks}_ranks", charts.panels_of_bars(
            f"{case_of_ranks(of_ranks[0])}: an iteration's time, of that by messages", [
                (f"{graph}, {way}",
                 [charts.Bar(case_text(r), r["share_of_messages"],
                             f"{r['share_of_messages']:.2f}", charts.OWN,
                             min(r["starts_share"]), max(r["starts_share"]))
                  for r in of_ranks if (r["way"], r["graph"]) == (way, graph)])
                for graph in dict.fromkeys(r["graph"] for r in of_ranks) for way in ways],
            "of messages; line: least and most of the starts", best_first=False)


def write_report(folder, about, records, not_run):
    report.write_files(folder, "Uneven ranks", about, not_run, charts_of(records),
                       list(titled_rows(records)), COLUMNS)


def run(args):
    launcher = Launcher(args.build, args.job_timeout or LONGEST_JOB_SEC)
    launcher.require(launcher.program("uneven_benchmark"))
    about = versions(launcher, args)
    jobs = Jobs()
    records = merge(measure(args, launcher, jobs))
    tables = (report.make_table(title, COLUMNS, rows) for title, rows in titled_rows(records))
    output.show(args, about, tables, jobs.not_run(), records, write_report)
    return jobs.code
