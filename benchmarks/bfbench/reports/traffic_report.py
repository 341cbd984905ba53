"""Tables and charts of bfbench traffic."""

from bfbench.records import count_text
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
    return Way(*(record[name] for name in Way._fields)).name()


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
    return (way_text(record), record["peer"].split()[0], str(record["steps"]),
            f"{record['loss']:.4f}",
            deviation_text(record["loss_deviation"], ".4f"), f"{record['accuracy']:.4f}",
            f"{record['consensus_distance']:.3g}", f"{record['seconds']:.2f}",
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
    ordered = sorted(group, key=lambda record: (record["peer"] == "bluefog_cpp", record["loss"]))
    return ordered[:charts.MOST_BARS]


def chart_of(title, group):
    """The loss against steps, time and bytes; bands: the seeds' deviation."""
    figure, all_axes = charts.subplots(len(AXES), 1, figsize=(10, 13))
    styles: dict[str, int] = {}
    lines = []
    for record in chosen_of(group):
        colour = charts.colour_of(record["peer"])
        place = styles[colour] = styles.get(colour, -1) + 1
        lines.append((record, colour, charts.STYLES[place % len(charts.STYLES)]))
    for axes, (name, label, unit) in zip(all_axes, AXES):
        for record, colour, style in lines:
            draw_curve(axes, record, name, unit, colour, style)
        if name == "bytes" and all(record["curve"][0]["bytes"] for record, *_ in lines):
            axes.set_xscale("log")
        axes.set(xlabel=label, ylabel="test loss, mean of the ranks' models")
        axes.grid(True, alpha=0.3)
        charts.name_lines(axes, [(record["curve"][-1]["loss"], way_text(record), colour, style)
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
