"""Tables and charts of training (bfbench train and ddp)."""

from matplotlib import pyplot

from bfbench.records import count_text
from bfbench.report import make_table, ratio_text, write_files

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


def bars(axes, group, figure, label):
    """One for each algorithm, with the least and the most of the starts."""
    values = [record[figure] for record in group]
    starts = [record[f"starts_{figure}"] for record in group]
    axes.bar([record["algorithm"] for record in group], values, capsize=4, yerr=[
        [value - min(found) for value, found in zip(values, starts)],
        [max(found) - value for value, found in zip(values, starts)]])
    axes.set(ylabel=label)
    axes.grid(True, axis="y", alpha=0.3)


def title_of_chart(title, group):
    starts = max(len(record["starts_img_per_sec"]) for record in group)
    return f"{title}; medians, least and most of {count_text(starts, 'start')}"


def chart_of_training(title, group):
    figure, axes = pyplot.subplots(figsize=(9, 5), layout="constrained")
    bars(axes, group, "img_per_sec", "img/sec, all ranks")
    axes.set(title=title_of_chart(title, group))
    return figure


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


def chart_of_ddp(title, group):
    figure, all_axes = pyplot.subplots(2, 2, figsize=(9, 8), layout="constrained")
    for axes, (name, label) in zip(all_axes.flat, (
            ("img_per_sec", "img/sec, all ranks"), ("peak_mib", "peak memory of a rank in MiB"),
            ("loss", "loss of the last epoch"), ("accuracy", "test accuracy"))):
        bars(axes, group, name, label)
    grown = [record["grown_mib"] for record in group]
    all_axes[0, 1].bar([record["algorithm"] for record in group], grown, width=0.4,
                       color="tab:orange",
                       label="in training")
    all_axes[0, 1].legend(loc="center")
    figure.suptitle(title_of_chart(title, group))
    return figure


def write_ddp(folder, versions, records, not_run):
    by_group = train_groups(records)
    write_files(folder, "Data-parallel training", versions, not_run,
                [(f"ddp_{index}", chart_of_ddp(title, group))
                 for index, (title, group) in enumerate(by_group.items())],
                [(title, [ddp_row(record) for record in group])
                 for title, group in by_group.items()], DDP_COLUMNS)
