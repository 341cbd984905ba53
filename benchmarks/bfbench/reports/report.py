"""Tables, charts and a report of one file."""

import base64

import jinja2
from rich import box
from rich.table import Table

from bfbench.records import LEAST_LINK_BYTES, count_text, diverged_text, place_of
from bfbench.reports import charts, operation_charts
from bfbench.reports.units import device_text, size_text, time_text


def columns_of(records):
    """Computing beside the link counts: on one host whoever waits looks all the time."""
    own = ("× memcpy",) if are_of_one_host(records) else ("CPU s/GiB", "× link")
    return ("peer", "op", "median", "p95", "alg. GB/s", "bus GB/s", "eff. GB/s", *own,
            "peer ÷ own", "gloo ÷ own")


def are_of_one_host(records):
    return all(record["hosts"] == 1 for record in records)


def groups(records):
    """Records that are compared with one another, in their order."""
    by_group = {}
    for record in records:
        by_group.setdefault(place_of(record), []).append(record)
    return by_group.values()


def ratio_text(record, name, form=".1f"):
    return "" if record.get(name) is None else format(record[name], form)


def cpu_text(record):
    """Core seconds for a GiB, of buffers that are large enough for it to mean something."""
    if record["bytes"] < LEAST_LINK_BYTES or "cpu_us" not in record:
        return ""
    return f"{record['cpu_us'] * 1e-6 * (1 << 30) / record['bytes']:.2f}"


def row(record, is_one_host):
    return (record["peer"], record["op"], time_text(record["median_us"]),
            time_text(record["p95_us"]), f"{record['algbw_gbps']:.2f}",
            f"{record['busbw_gbps']:.2f}", f"{2 * record['algbw_gbps']:.2f}",
            *(() if is_one_host else (cpu_text(record),)),
            ratio_text(record, "limit_ratio", ".2f"), ratio_text(record, "peer_ratio"),
            ratio_text(record, "gloo_ratio"))


def make_table(title, columns, rows):
    """The first two columns are words, the others figures."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index < 2 else "right", no_wrap=True)
    for cells in rows:
        table.add_row(*cells)
    return table


def ranks_text(record):
    several = f" on {record['hosts']} hosts" if record["hosts"] > 1 else ""
    return f"{count_text(record['ranks'], 'rank')}{several}"


def title_of(record):
    return (f"{ranks_text(record)}, {size_text(record['bytes'])} of {record['dtype']}"
            f"{device_text(record)}, from {record['language']}")


def titled_rows(records):
    is_one_host = are_of_one_host(records)
    return [(title_of(group[0]), [row(r, is_one_host) for r in group])
            for group in groups(records)]


def tables(records):
    for title, rows in titled_rows(records):
        yield make_table(title, columns_of(records), rows)


PAGE = jinja2.Template("""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{{ title }}</title><style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 70em; padding: 0 1em }
table { border-collapse: collapse; margin-bottom: 2em }
th, td { padding: .2em .7em; text-align: right }
th:nth-child(-n+2), td:nth-child(-n+2) { text-align: left }
tr:nth-child(even) { background: #f3f3f3 }
img { max-width: 100% } caption { text-align: left; font-weight: bold }
</style></head><body><h1>{{ title }}</h1>
<pre>{% for name, value in versions.items() %}{{ name }}: {{ value }}
{% endfor %}</pre>
{% for image in images %}<img alt="" src="data:image/png;base64,{{ image }}">{% endfor %}
{% for caption, rows in tables %}<table><caption>{{ caption }}</caption><tr>
{% for column in columns %}<th>{{ column }}</th>{% endfor %}</tr>
{% for row in rows %}<tr>{% for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>
{% endfor %}</table>
{% endfor %}{% for item in not_run %}<p>Not run: {{
  [item.peer, item.op, item.algorithm, item.topology] | select | join(" ")
}}{% if item.ranks %} at {{ count_text(item.ranks, "rank") }}{% endif %}: {{ item.not_run }}</p>
{% endfor %}</body></html>
""", autoescape=True)


def write_files(folder, title, versions, not_run, named_charts, rows_by_title, columns):
    """PNG files of the charts and report.html, which needs no other file."""
    folder.mkdir(parents=True, exist_ok=True)
    images = []
    for name, figure in named_charts:
        png = charts.as_png(figure)
        (folder / f"{name}.png").write_bytes(png)
        images.append(base64.b64encode(png).decode())
    (folder / "report.html").write_text(
        PAGE.render(title=title, versions=versions, not_run=not_run, images=images,
                    tables=rows_by_title, columns=columns, count_text=count_text), encoding="utf-8")


def write_operations(folder, versions, records, not_run):
    write_files(folder, "Operations", versions, not_run, operation_charts.charts_of(records),
                titled_rows(records),
                columns_of(records))


NORM_COLUMNS = ("batch × channels", "who", "median", "p95", "× local", "peak KiB",
                "of torch's time",
                "of torch's memory")


def norm_rows(records, ranks):
    return [(r["op"].removeprefix("batch norm "), r["peer"], time_text(r["median_us"]),
             time_text(r["p95_us"]), f"{r['limit_ratio']:.2f}", f"{r['peak_bytes'] / 1024:.0f}",
             f"{r['share_of_peer_time']:.2f}", f"{r['share_of_peer_memory']:.2f}")
            for r in records if r["ranks"] == ranks]


def norm_titled_rows(records):
    return [(f"{count_text(ranks, 'rank')}, forward and backward of float32",
             norm_rows(records, ranks))
            for ranks in sorted({record["ranks"] for record in records})]


def norm_tables(records):
    for title, rows in norm_titled_rows(records):
        yield make_table(title, NORM_COLUMNS, rows)


def chart_of_norms(records, ranks):
    """Lines, for the shapes have an order."""
    lines = {}
    for record in (r for r in records if r["ranks"] == ranks):
        lines.setdefault(record["peer"], []).append((record["op"].removeprefix("batch norm "),
                                                     record["median_us"]))
    figure, axes = charts.subplots(figsize=(10, 5))
    axes.set(yscale="log")
    for peer, points in lines.items():
        axes.plot(*zip(*points), marker="o", color=charts.colour_of(peer))
    charts.name_lines(axes, [(points[-1][1], peer, charts.colour_of(peer), "-")
                             for peer, points in lines.items()])
    axes.set(xlabel="batch × channels", ylabel="time in µs",
             title=f"{count_text(ranks, 'rank')}: batch normalisation, forward and backward")
    axes.tick_params(axis="x", rotation=30)
    axes.grid(True, axis="y", alpha=0.3)
    return figure


def write_norms(folder, versions, records, not_run):
    write_files(folder, "Batch normalisation", versions, not_run,
                [(f"batch_norm_{ranks}_ranks", chart_of_norms(records, ranks))
                 for ranks in sorted({record["ranks"] for record in records})],
                norm_titled_rows(records), NORM_COLUMNS)


CONVERGE_COLUMNS = ("algorithm", "topology", "accuracy", "±", "worst rank", "mean model",
                    "consensus distance", "±")


def converge_groups(records):
    by_group = {}
    for record in records:
        shards = "IID" if record["shards"] == "iid" else f"Dirichlet({record['shards']})"
        title = (f"{record['data']}, {count_text(record['ranks'], 'rank')}, {shards} shards, "
                 f"{record['steps']} steps of {record['batch_size']}, "
                 f"{count_text(len(record['seeds']), 'seed')}")
        by_group.setdefault(title, []).append(record)
    return by_group


def deviation_text(value, form):
    return "one seed" if value is None else format(value, form)


def converge_row(record):
    if record["accuracy"] is None:
        return (record["algorithm"], record["topology"],
                diverged_text(record["accuracy_by_seed"]), *[""] * 5)
    return (record["algorithm"], record["topology"], f"{record['accuracy']:.4f}",
            deviation_text(record["accuracy_deviation"], ".4f"), f"{record['worst_accuracy']:.4f}",
            f"{record['mean_model_accuracy']:.4f}", f"{record['consensus_distance']:.3g}",
            deviation_text(record["consensus_distance_deviation"], ".2g"))


def converge_titled_rows(records):
    return [(title, [converge_row(record) for record in group])
            for title, group in converge_groups(records).items()]


def converge_tables(records):
    for title, rows in converge_titled_rows(records):
        yield make_table(title, CONVERGE_COLUMNS, rows)


def accuracy_bar(record):
    colour = charts.colour_of(record["peer"])
    if record["accuracy"] is None:
        return charts.Bar(record["algorithm"], 0.0, diverged_text(record["accuracy_by_seed"]),
                          colour)
    around = record["accuracy_deviation"] or 0
    return charts.Bar(record["algorithm"], record["accuracy"], f"{record['accuracy']:.3f}", colour,
                      record["accuracy"] - around, record["accuracy"] + around)


def chart_of_accuracy(title, group):
    """A panel for each graph, and one for what takes none."""
    by_topology = {}
    for record in group:
        by_topology.setdefault(record["topology"], []).append(record)
    return charts.panels_of_bars(title, [
        (topology, [accuracy_bar(record) for record in records])
        for topology, records in by_topology.items()],
        "test accuracy, mean of the ranks' models; line: deviation of the seeds")


def write_converge(folder, versions, records, not_run):
    write_files(folder, "Accuracy after a fixed budget", versions, not_run,
                [(f"accuracy_{index}", chart_of_accuracy(title, group))
                 for index, (title, group) in enumerate(converge_groups(records).items())],
                converge_titled_rows(records), CONVERGE_COLUMNS)
