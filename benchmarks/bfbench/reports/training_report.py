"""Tables and charts of training (bfbench train and ddp)."""

from bfbench.contestants import PLAIN, WRAPPED, bucket_mib_of, fastest_ddp, is_ddp
from bfbench.records import count_text
from bfbench.reports import charts
from bfbench.reports.charts import Bar
from bfbench.reports.report import make_table, ratio_text, write_files

TRAIN_COLUMNS = ("peer", "algorithm", "img/sec", "of none", "of DDP", "p50 ms", "p75 ms", "p90 ms",
                 "p95 ms", "page faults")


def train_groups(records):
    by_group = {}
    for record in records:
        key = (record["model"], record["ranks"], record["batch_size"], record["image_size"])
        by_group.setdefault(key, []).append(record)
    return {f"{model}, {count_text(ranks, 'rank')}, batch {batch}, {side}×{side}": group
            for (model, ranks, batch, side), group in by_group.items()}


def train_row(record):
    def share(name):
        return f"{record[name]:.3f}" if name in record else ""
    return (record["peer"], record["algorithm"], f"{record['img_per_sec']:.1f}",
            share("share_of_none"), share("share_of_ddp"),
            *(f"{seconds * 1e3:.1f}" for seconds in record["sec_per_iter"].values()),
            f"{record['page_faults_per_step']:.0f}")


def train_tables(records):
    for title, group in train_groups(records).items():
        yield make_table(title, TRAIN_COLUMNS, [train_row(record) for record in group])


def name_of(record):
    """In charts."""
    if record["algorithm"] == PLAIN:
        return "no communication (plain torch)"
    if record["algorithm"] == WRAPPED:
        return "no communication (bluefog_cpp around torch)"
    if record["peer"] == "bluefog_cpp":
        return record["algorithm"]
    mib = bucket_mib_of(record["algorithm"])
    return record["peer"] + (f", buckets of {mib} MiB" if mib else "")


def bar_of(record, figure, form):
    starts = record[f"starts_{figure}"]
    colour = charts.colour_of(charts.NO_COMMUNICATION if record["algorithm"] == PLAIN
                              else record["peer"])
    return Bar(name_of(record), record[figure], form(record), colour, min(starts), max(starts))


def rate_text(record):
    shares = [f", {record[name]:.2f} × {of}" for name, of in (
        ("share_of_none", "none"), ("share_of_ddp", "DDP")) if name in record]
    return f"{record['img_per_sec']:.1f}" + "".join(shares)


def title_of_chart(title, group):
    starts = max(len(record["starts_img_per_sec"]) for record in group)
    return f"{title}; medians, least and most of {count_text(starts, 'start')}"


def with_fastest_ddp_alone(group):
    fastest = fastest_ddp(group)
    return [record for record in group if not is_ddp(record["algorithm"]) or record is fastest]


def chart_of_training(title, group):
    return charts.panels_of_bars(title_of_chart(title, group), [
        ("img/sec", [bar_of(record, "img_per_sec", rate_text)
                     for record in with_fastest_ddp_alone(group)])],
        "img/sec, all ranks; none: no communication (plain torch); of DDP (gloo) the buckets that "
        "it is fastest with")


def write_training(folder, versions, records, not_run):
    by_group = train_groups(records)
    write_files(folder, "Training", versions, not_run,
                [(f"training_{index}", chart_of_training(title, group))
                 for index, (title, group) in enumerate(by_group.items())],
                [(title, [train_row(record) for record in group])
                 for title, group in by_group.items()], TRAIN_COLUMNS)


DDP_COLUMNS = ("peer", "algorithm", "epoch s", "img/sec", "of DDP", "step p50 ms", "p95 ms",
               "peak MiB", "in training", "loss", "accuracy")


def ddp_row(record):
    return (record["peer"], record["algorithm"], f"{record['epoch_sec']:.2f}",
            f"{record['img_per_sec']:.1f}", ratio_text(record, "share_of_ddp", ".3f"),
            f"{record['sec_per_iter']['p50'] * 1e3:.1f}",
            f"{record['sec_per_iter']['p95'] * 1e3:.1f}", f"{record['peak_mib']:.0f}",
            f"{record['grown_mib']:.0f}",
            f"{record['loss']:.4f}", f"{record['accuracy']:.4f}")


def ddp_tables(records):
    for title, group in train_groups(records).items():
        yield make_table(title, DDP_COLUMNS, [ddp_row(record) for record in group])


DDP_FIGURES = (("img_per_sec", "img/sec, all ranks", rate_text, False),
               ("peak_mib", "peak memory of a rank in MiB",
                lambda r: f"{r['peak_mib']:.0f}, of which training {r['grown_mib']:.0f}", True),
               ("loss", "loss of the last epoch", lambda r: f"{r['loss']:.4f}", True),
               ("accuracy", "test accuracy", lambda r: f"{r['accuracy']:.4f}", False))


def charts_of_ddp(title, group):
    """(figure's name, chart) of each: every one is sorted by its own figure."""
    for name, label, form, is_less_better in DDP_FIGURES:
        yield name, charts.panels_of_bars(title_of_chart(title, group), [
            (label, [bar_of(record, name, form) for record in group])], label, is_less_better)


def write_ddp(folder, versions, records, not_run):
    by_group = train_groups(records)
    write_files(folder, "Data-parallel training", versions, not_run,
                [(f"ddp_{index}_{name}", chart)
                 for index, (title, group) in enumerate(by_group.items())
                 for name, chart in charts_of_ddp(title, group)],
                [(title, [ddp_row(record) for record in group])
                 for title, group in by_group.items()], DDP_COLUMNS)
