"""Charts of operations: who takes how long at each size, and time and bandwidth by the number of
processes."""

import re

from bfbench.records import LIMITS, count_text, kind
from bfbench.reports import charts
from bfbench.reports.charts import Bar
from bfbench.reports.units import device_text, round_time_text, size_text, time_text

# Endings of an operation's name that tell how it was run, not what it does.
HOW = re.compile(r", (threads bound|shared buffers|transport \w+|xhc|C library|own.*)$"
                 r"| by bcube| of the backend's memory")
# A copy of fewer bytes is over before a message has left.
LEAST_BYTES_OF_RATIOS = 1 << 16
# Own operations, by their first words, in the order in which they are shown.
OWN_ORDER = ("neighbor_allreduce (exponential)", "allreduce", "neighbor_allreduce (one-peer)",
             "neighbor_allreduce (ring)", "hierarchical", "win_")


def what_of(record):
    """The operation: what it does, whichever way it was run."""
    name = record["op"]
    while HOW.search(name):
        name = HOW.sub("", name)
    return name


def line_of(record):
    """A key of operations that one line stands for, as fast as the fastest: the same one of this
    project, of a peer all of one kind."""
    if record["peer"] in LIMITS:
        return (record["peer"],)
    return (record["peer"], what_of(record) if record["peer"] == "bluefog_cpp" else kind(record))


def order_of(record):
    """Limits and peers come before own operations that have no room left."""
    if record["peer"] != "bluefog_cpp":
        return 0
    return 1 + next((place for place, begin in enumerate(OWN_ORDER)
                     if record["op"].startswith(begin)), len(OWN_ORDER))


def fastest_of_each(records):
    """Of each line the fastest of the records of one place; those that matter most come first."""
    found = {}
    for record in records:
        line = line_of(record)
        if line not in found or record["median_us"] < found[line]["median_us"]:
            found[line] = record
    return sorted(found.values(), key=order_of)


def name_of(record):
    peer = "" if record["peer"] in LIMITS else f"{record['peer']}: "
    return f"{peer}{record['op']}{device_text(record)}"


def bar_of(record):
    text = [time_text(record["median_us"]).replace("us", "µs")]
    if record["bytes"] >= 1 << 20:
        text.append(f"{2 * record['algbw_gbps']:.3g} GB/s")
    is_long = record["bytes"] >= LEAST_BYTES_OF_RATIOS
    if is_long and record.get("limit_ratio") and record["peer"] not in LIMITS:
        text.append(f"{record['limit_ratio']:.2f} × {'link' if record['hosts'] > 1 else 'memcpy'}")
    starts = record.get("starts_us", [record["median_us"]])
    return Bar(name_of(record), record["median_us"], ", ".join(text),
               charts.colour_of(record["peer"]), min(starts), max(starts))


def chart_of_times(records, title):
    """Sorted bars for each size, of one number of ranks."""
    by_size = {}
    for record in sorted(records, key=lambda r: r["bytes"]):
        by_size.setdefault(record["bytes"], []).append(record)
    panels = []
    for bytes_, group in by_size.items():
        fastest = fastest_of_each(group)
        shown = fastest[:charts.MOST_BARS]
        rest = f" ({len(shown)} of {len(fastest)}; all are in the table)"
        panels.append((size_text(bytes_) + (rest if len(fastest) > len(shown) else ""),
                       [bar_of(record) for record in shown]))
    return charts.panels_of_bars(
        f"{title}: median time of a call, all ranks", panels,
        "time; GB/s: 2 · size / time; line: least and most of the starts",
        is_less_better=True, tick_text=round_time_text)


def lines_of(records, chosen=None):
    """Records of each line by rising size, of the fastest at each size or of those that are chosen.
    The fastest record stands for a line at each size."""
    lines = {}
    for bytes_ in sorted({record["bytes"] for record in records}):
        fastest = fastest_of_each(r for r in records if r["bytes"] == bytes_)
        shown = (fastest[:charts.MOST_BARS] if chosen is None
                 else [record for record in fastest if line_of(record) in chosen])
        for record in shown:
            lines.setdefault(line_of(record), []).append(record)
    return lines


def name_of_line(line):
    peer, *rest = line
    return peer if not rest else f"{peer}: {rest[0]}"


def chart_by_processes(records, title, value_of, label):
    """A panel for each number of ranks, and a line for each backend and operation."""
    numbers = sorted({record["ranks"] for record in records})
    figure, all_axes = charts.subplots(1, len(numbers), figsize=(4 * len(numbers) + 2.5, 5),
                                       sharey=True, squeeze=False)
    styles = styles_of(lines_of(records))
    ends = {}  # of each line in the last panel that has it
    for axes, ranks in zip(all_axes.flat, numbers):
        axes.set(xscale="log", yscale="log", xlabel="size",
                 title="1 process" if ranks == 1 else f"{ranks} processes")
        of_panel = [record for record in records if record["ranks"] == ranks]
        for line, found in lines_of(of_panel, styles).items():
            values = [value_of(record) for record in found]
            axes.plot([record["bytes"] for record in found], values, linestyle=styles[line],
                      marker="o", markersize=4, color=charts.colour_of(line[0]), linewidth=1.8)
            ends[line] = (values[-1], name_of_line(line), charts.colour_of(line[0]),
                          styles[line])
        sizes = sorted({record["bytes"] for record in records})
        axes.set_xticks(sizes, map(size_text, sizes), rotation=30)
        axes.minorticks_off()
        axes.grid(True, which="major", alpha=0.3)
    all_axes[0, 0].set_ylabel(label)
    charts.name_lines(all_axes[0, -1], list(ends.values()))
    figure.suptitle(title, fontsize=11)
    return figure


def styles_of(lines):
    """Lines of one colour differ in how they are drawn."""
    by_colour, found = {}, {}
    for line in lines:
        same = by_colour.setdefault(charts.colour_of(line[0]), [])
        found[line] = charts.STYLES[len(same) % len(charts.STYLES)]
        same.append(line)
    return found


def by_dtype_and_language(records):
    """(text for titles, ending for names of files, records) of those that share a chart."""
    found = {}
    for record in records:
        found.setdefault((record["dtype"], record["language"]), []).append(record)
    several = len({dtype for dtype, _ in found}) > 1
    limits = [record for record in records if record["peer"] in LIMITS]
    for (dtype, language), group in found.items():
        if not any(record["peer"] in LIMITS for record in group):  # a limit has no language
            group = group + [record for record in limits if record["dtype"] == dtype]
        ending = (f"_{dtype}" if several else "") + ("_python" if language == "Python" else "")
        yield f"{dtype}, from {language}", ending, group


def charts_of(records):
    """(name, figure) of every chart that the records give."""
    for text, ending, group in by_dtype_and_language(records):
        numbers = sorted({record["ranks"] for record in group})
        for ranks in numbers:
            yield f"time_{ranks}_ranks{ending}", chart_of_times(
                [r for r in group if r["ranks"] == ranks], f"{count_text(ranks, 'rank')}, {text}")
        if len(numbers) > 1 and len({record["bytes"] for record in group}) > 1:
            yield f"time_by_processes{ending}", chart_by_processes(
                group, f"{text}: time of a call", lambda r: r["median_us"] * 1e-3, "time in ms")
            yield f"bandwidth_by_processes{ending}", chart_by_processes(
                group, f"{text}: effective bandwidth", lambda r: 2 * r["algbw_gbps"],
                "2 · size / time in GB/s")
