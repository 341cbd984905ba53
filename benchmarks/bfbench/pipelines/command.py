"""The command: options, runs, tables."""

import pathlib
import sys
import tempfile

from bfbench import output
from bfbench.jobs import Jobs
from bfbench.launch import LONGEST_JOB_SEC, Launcher
from bfbench.options import (
    add_output,
    add_rank_list,
    choice_list,
    positive,
    share,
    whole,
    whole_list,
)
from bfbench.pipelines.beforehand import Beforehand, run_program
from bfbench.pipelines.records import largest_that_fit, merge, record_of
from bfbench.pipelines.ways import WAYS, command_of, configuration_of
from bfbench.records import count_text
from bfbench.reports import report
from bfbench.versions import versions

COMPUTE = ("sleep", "real")
COLUMNS = ("algorithm", "language", "chunks", "batch", "MiB/rank", "img/s", "time s", "accuracy",
           "× pipe", "× torch's", "forward", "backward", "bubble", "all-reduce", "stages")


def add_arguments(parser):
    parser.add_argument("--ways", type=choice_list(WAYS), default=list(WAYS), metavar="NAME,…",
                        help=f"out of {', '.join(WAYS)}")
    add_rank_list(parser, [4])
    parser.add_argument("--chunks", type=whole_list(), default=[8], metavar="N,…",
                        help="micro-batches of a step, of ways that have some")
    parser.add_argument("--batches", type=whole_list(), default=[128], metavar="ROWS,…",
                        help="rows of a step, of all pipelines together")
    parser.add_argument("--compute", type=choice_list(COMPUTE), default=["sleep"],
                        metavar="KIND,…",
                        help="sleep: each half layer of the encoder, whose own compute is real and "
                        "small, sleeps the time that one of --slept-width was measured to take on "
                        "one rank alone, so that ranks of one machine do not compete for cores; "
                        "real: computes")
    parser.add_argument("--slept-width", type=whole(4), default=256, metavar="N",
                        help="of the encoder whose passes are slept")
    parser.add_argument("--pause-us", type=whole(0), metavar="US",
                        help="in place of what is measured: slept a row and half layer, twice that "
                        "in a backward pass")
    parser.add_argument("--epochs", type=whole(), default=10, metavar="N")
    parser.add_argument("--images", type=whole(), default=1024, metavar="N", help="of an epoch")
    parser.add_argument("--pretrain", type=whole(0), default=0, metavar="EPOCHS",
                        help="of training beforehand, on other images: each run goes on from that "
                        "model, as fine-tuning does")
    parser.add_argument("--pretrain-images", type=whole(), default=20_000, metavar="N")
    parser.add_argument("--test-images", type=whole(), default=1000, metavar="N")
    parser.add_argument("--data", type=pathlib.Path, metavar="FOLDER",
                        help="of images, as examples/train_pipeline takes; default: Fashion-MNIST")
    parser.add_argument("--layers", type=whole(), default=8, metavar="N", help="of the encoder")
    parser.add_argument("--width", type=whole(4), default=32, metavar="N")
    parser.add_argument("--patch", type=whole(), default=7, metavar="PIXELS")
    parser.add_argument("--alpha", type=share, default=1 / 3, metavar="SHARE",
                        help="of the layers that are not frozen, which freezes after an epoch")
    parser.add_argument("--device-mib", type=positive, metavar="MIB",
                        help="memory of a device: which batches would fit into it")
    add_output(parser, starts=3)


def run_one(args, launcher, beforehand, way, ranks, batch, chunks, compute):
    """The record of a run."""
    pause_us = beforehand.pause_us(compute)
    configuration = configuration_of(
        way, epochs=args.epochs, batch_size=batch, micro_batches=chunks, layers=args.layers,
        width=args.width, patch=args.patch, alpha=args.alpha, by_gradients=False,
        pause_us=pause_us, costs="time" if pause_us else "parameters")
    events = run_program(args, launcher, way, ranks, configuration, "--images", args.images,
                         "--test-images", args.test_images, *beforehand.start_words(way))
    own = WAYS[way]
    return [record_of(events, way=way, label=own.label, language=own.language, ranks=ranks,
                      batch_size=batch, chunks=chunks if own.has_chunks else 0,
                      emulated=compute == "sleep", pause_us=pause_us,
                      pretrained_epochs=args.pretrain)]


def runs_of(args):
    """(way, ranks, batch, chunks, compute) of all runs of a start; DDP has no chunks."""
    return [(way, ranks, batch, chunks, compute) for compute in args.compute for ranks in args.ranks
            for batch in args.batches for chunks in args.chunks for way in args.ways
            if WAYS[way].has_chunks or chunks == args.chunks[0]]


def measure(args, launcher, jobs):
    records = []
    runs = runs_of(args)
    with tempfile.TemporaryDirectory() as folder, \
            jobs.progress(args.starts * len(runs)) as (tell, advance):
        beforehand = Beforehand(args, launcher, pathlib.Path(folder))
        for _ in range(args.starts):
            for way, ranks, batch, chunks, compute in runs:
                tell(f"{way}, {count_text(ranks, 'rank')}, batch {batch}, {chunks} chunks, "
                     f"compute: {compute}")
                records += jobs.gather(
                    {"op": f"{way}, batch {batch}, {chunks} chunks, compute: {compute}",
                     "ranks": ranks},
                    run_one, args, launcher, beforehand, way, ranks, batch, chunks, compute)
                advance()
    return records


def row(record):
    shares = record["shares"]
    stages = record["stages"]
    return (record["label"], record["language"], str(record["chunks"] or "-"),
            str(record["batch_size"]), f"{record['memory_mib']:.0f}",
            f"{record['img_per_sec']:.1f}", f"{record['seconds']:.1f}",
            f"{100 * record['accuracy']:.1f} %", report.ratio_text(record, "of_pipe", ".2f"),
            report.ratio_text(record, "of_torch_pipe", ".2f"),
            *(f"{100 * shares[name]:.0f} %" for name in ("forward", "backward", "bubble",
                                                         "allreduce_exposed")),
            f"{stages[0]} → {stages[-1]}" if stages[0] != stages[-1] else str(stages[0]))


def titled_rows(records, device_mib=None):
    for ranks, is_emulated in sorted({(record["ranks"], record["emulated"]) for record in records}):
        own = [record for record in records
               if (record["ranks"], record["emulated"]) == (ranks, is_emulated)]
        emulated = (f", compute slept: {own[0]['pause_us']} µs a row and half layer"
                    if is_emulated else "")
        yield f"{count_text(ranks, 'rank')}{emulated}", [row(record) for record in own]
        if device_mib is not None:
            fits = f": the largest batches that fit into {device_mib:g} MiB"
            yield (f"{count_text(ranks, 'rank')}{emulated}{fits}",
                   [row(record) for record in largest_that_fit(own, device_mib)])


def run(args):
    launcher = Launcher(args.build, args.job_timeout or LONGEST_JOB_SEC)
    about = versions(launcher, args)
    for way in args.ways:
        command_of(way, args.build, sys.executable)
    jobs = Jobs(args.starts)
    records = merge(measure(args, launcher, jobs))
    rows = list(titled_rows(records, args.device_mib))

    def write(folder, heads, _, not_run):
        report.write_files(folder, "Elastic pipelines", heads, not_run, [], rows, COLUMNS)

    output.show(args, about, (report.make_table(title, COLUMNS, own) for title, own in rows),
                jobs.not_run(), records, write)
    return jobs.code
