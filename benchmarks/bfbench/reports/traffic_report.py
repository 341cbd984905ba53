"""Tables and charts of bfbench traffic."""

import math

from bfbench.records import DIVERGED, count_text, diverged_text
from bfbench.reports import charts
from bfbench.reports.report import deviation_text, make_table, write_files
from bfbench.traffic.ways import Way

COLUMNS = ("way", "of", "steps", "loss", "±", "accuracy", "distance", "s", "MB", "kB/step/rank",
           "steps to", "s to", "MB to", "time", "bytes")
AXES = (("step", "steps", 1.0), ("seconds", "seconds of training", 1.0),
        ("bytes", "MB sent by all ranks", 1e-6))


def groups(records):
    """Records that are compared with one another, by title."""
    found: dict[str, list] = {}
    for record in records:
        found.setdefault(title_of(record), []).append(record)
    return found


def title_of(record):
    shards = "IID" if record["shards"] == "iid" else f"Dirichlet({record['shards']})"
    link = (f" on {record['hosts']} hosts at {record['rate_mbit']:g} Mbit/s"
            if record["hosts"] > 1 else " over loopback")
    return (f"{record['data']}, {count_text(record['ranks'], 'rank')}{link}, {shards} shards, "
            f"{record['parameters']} parameters, batches of {record['batch_size']}, "
            f"{count_text(len(record['seeds']), 'seed')}")


def way_text(record):
    """Files of earlier versions know of no options."""
    return Way(*(record.get(name, "") for name in Way._fields)).name()


def has_diverged(record):
    """Whether a seed's run has."""
    return record["loss"] is None


def at_loss(record, name, form):
    found = record.get("at_loss", {}).get(name)
    return "" if found is None else form(found)


def row(record):
    spent = [at_loss(record, name, form) for name, form in (
        ("step", "{:.0f}".format), ("seconds", "{:.2f}".format),
        ("bytes", lambda value: f"{value / 1e6:.3f}"), ("seconds_share", "{:.2f} x".format),
        ("bytes_share", lambda value: f"1/{1 / value:.1f}" if value else ""))]
    if not any(spent):
        spent[0] = "not reached"
    ends = ((diverged_text(record["loss_by_seed"]), "", "", "") if has_diverged(record) else
            (f"{record['loss']:.4f}", deviation_text(record["loss_deviation"], ".4f"),
             f"{record['accuracy']:.4f}", f"{record['consensus_distance']:.3g}"))
    return (way_text(record), record["peer"].split()[0], str(record["steps"]), *ends,
            f"{record['seconds']:.2f}",
            f"{record['bytes'] / 1e6:.3f}", f"{record['bytes_per_step_and_rank'] / 1e3:.2f}",
            *spent)


def titled_rows(records, baseline):
    return [(f"{title}; to: the loss that {baseline} ends with", [row(r) for r in group])
            for title, group in groups(records).items()]


def tables(records, baseline):
    for title, rows in titled_rows(records, baseline):
        yield make_table(title, COLUMNS, rows)


def markdown(records, baseline):
    """The tables as text for pages."""
    lines = []
    for title, rows in titled_rows(records, baseline):
        lines += [title, "", f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|",
                  *(f"| {' | '.join(cells)} |" for cells in rows), ""]
    return "\n".join(lines)


def chosen_of(group):
    """At most eight: the peers, and of ours those with the least loss."""
    ordered = sorted(group, key=lambda record: (
        record["peer"] == "bluefog_cpp", math.inf if has_diverged(record) else record["loss"]))
    return ordered[:charts.MOST_BARS]


def shown_losses(records):
    """The lowest and the highest loss of a chart in which a way diverges and others do not: those
    of the others. None: whatever there is."""
    calm = [point["loss"] for record in records if not has_diverged(record)
            for point in record["curve"]]
    return (min(calm), max(calm)) if calm and any(map(has_diverged, records)) else None


def end_of(record, shown, colour, style):
    """The height of the last point that is shown, and what stands beside it."""
    name = way_text(record) + (f" ({DIVERGED})" if has_diverged(record) else "")
    last = record["curve"][-1]["loss"] if record["curve"] else math.inf
    if shown is not None:
        last = min(max(last, shown[0]), shown[1])
    return (last if math.isfinite(last) else 0.0), name, colour, style


def chart_of(title, group):
    """The loss against steps, time and bytes; bands: the seeds' deviation."""
    figure, all_axes = charts.subplots(len(AXES), 1, figsize=(10, 13))
    styles: dict[str, int] = {}
    lines = []
    shown = shown_losses(chosen_of(group))
    for record in chosen_of(group):
        colour = charts.colour_of(record["peer"])
        place = styles[colour] = styles.get(colour, -1) + 1
        lines.append((record, colour, charts.STYLES[place % len(charts.STYLES)]))
    for axes, (name, label, unit) in zip(all_axes, AXES):
        for record, colour, style in lines:
            draw_curve(axes, record, name, unit, colour, style)
        first_bytes = [record["curve"][0]["bytes"] for record, *_ in lines if record["curve"]]
        if name == "bytes" and first_bytes and all(first_bytes):
            axes.set_xscale("log")
        if shown is not None:
            margin = 0.05 * (shown[1] - shown[0]) or 1.0
            axes.set_ylim(shown[0] - margin, shown[1] + margin)
        axes.set(xlabel=label, ylabel="test loss, mean of the ranks' models")
        axes.grid(True, alpha=0.3)
        charts.name_lines(axes, [end_of(record, shown, colour, style)
                                 for record, colour, style in lines])
    figure.suptitle(charts.wrapped(title), fontsize=11)
    return figure


def draw_curve(axes, record, name, unit, colour, style):
    places = [point[name] * unit for point in record["curve"]]
    losses = [point["loss"] for point in record["curve"]]
    around = [point["loss_deviation"] or 0.0 for point in record["curve"]]
    axes.plot(places, losses, color=colour, linestyle=style, linewidth=1.6)
    axes.fill_between(places, [loss - width for loss, width in zip(losses, around)],
                      [loss + width for loss, width in zip(losses, around)], color=colour,
                      alpha=0.12, linewidth=0)


def writer(baseline):
    """Writes charts, report.html, and tables.md beside it."""
    def write(folder, versions, records, not_run):
        write_files(folder, "Traffic of training", versions, not_run,
                    [(f"traffic_{index}", chart_of(title, group))
                     for index, (title, group) in enumerate(groups(records).items())],
                    titled_rows(records, baseline), COLUMNS)
        (folder / "tables.md").write_text(markdown(records, baseline), encoding="utf-8")
    return write
