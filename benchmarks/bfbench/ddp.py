"""bfbench ddp: our gradient all-reduce as a DDP beside torch's, in time, memory and accuracy."""

from bfbench import images, output
from bfbench.contestants import with_all_buckets
from bfbench.jobs import Jobs
from bfbench.launch import LONGEST_JOB_SEC, Launcher, NoData
from bfbench.options import add_ddp_buckets, add_output, add_rank_list, positive, whole
from bfbench.records import add_shares, count_text, merge_train_starts
from bfbench.reports import training_report
from bfbench.train import MODELS
from bfbench.versions import versions


def add_arguments(parser):
    parser.add_argument("--model", choices=MODELS, default="cnn")
    add_rank_list(parser, [2])
    parser.add_argument("--data", default=images.FASHION, metavar="FOLDER",
                        help="with the files of MNIST, Fashion-MNIST, CIFAR-10 or CIFAR-100; or "
                        f"'{images.SYNTHETIC}': 100 classes")
    parser.add_argument("--accumulation", type=whole(), default=4, metavar="N",
                        help="backward passes of a step")
    parser.add_argument("--batch-size", type=whole(2), default=32, metavar="N",
                        help="images of a rank in a backward pass")
    add_ddp_buckets(parser)
    parser.add_argument("--epochs", type=whole(), default=1, metavar="N")
    parser.add_argument("--lr", type=positive, default=0.02)
    parser.add_argument("--train-images", type=whole(), default=10_000, metavar="N",
                        help="of all ranks, in an epoch")
    parser.add_argument("--test-images", type=whole(), default=2_000, metavar="N")
    add_output(parser)


def check(args):
    """Refuses what would otherwise end ranks after they have started."""
    found = len(images.load(args.data).train.labels)
    wanted = min(args.train_images, found)
    per_step = args.batch_size * args.accumulation * max(args.ranks)
    if wanted < per_step:
        raise NoData(
            f"expected images for at least one step, {per_step} = {args.batch_size} "
            f"× {args.accumulation} × {count_text(max(args.ranks), 'rank')}, found {wanted}")


def measure(args, launcher, jobs):
    starts, ways = [], with_all_buckets(("ddp", "gradient_allreduce"), args.ddp_buckets)
    with jobs.progress(args.starts * len(args.ranks) * len(ways)) as (tell, advance):
        for _ in range(args.starts):
            for ranks in args.ranks:
                start = []
                starts.append(start)
                for way in ways:
                    tell(f"{way}, {count_text(ranks, 'rank')}")
                    start += jobs.gather({"algorithm": way, "ranks": ranks}, launcher.worker,
                                             "ddp_worker", ranks, "--algorithm", way,
                                             *options_of_worker(args))
                    advance()
    return starts


def options_of_worker(args):
    names = ("model", "data", "accumulation", "batch_size", "epochs", "lr",
             "train_images", "test_images")
    return [word for name in names
            for word in (f"--{name.replace('_', '-')}", getattr(args, name))]


def run(args):
    launcher = Launcher(args.build, args.job_timeout or LONGEST_JOB_SEC * args.epochs)
    check(args)
    about = versions(launcher, args)
    jobs = Jobs()
    records = add_shares(merge_train_starts(measure(args, launcher, jobs)))
    output.show(args, about, training_report.ddp_tables(records), jobs.not_run(), records,
                training_report.write_ddp)
    return jobs.code
