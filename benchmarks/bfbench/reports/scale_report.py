"""Tables and charts of training on hosts: measured points, and the model past them."""

from bfbench.contestants import WITHOUT_COMMUNICATION, fastest_ddp, is_ddp
from bfbench.records import count_text
from bfbench.reports import charts
from bfbench.reports.report import make_table, write_files

COLUMNS = ("peer", "algorithm", "graph", "hosts", "ranks", "img/sec", "efficiency", "step p50 ms",
           "p95 ms", "communication's CPU ms", "compute ÷ CPU", "model says")
MODEL_MAY_MISS = 0.15
SHOWN_SIMULATED = (64, 1024)  # numbers of ranks that have a row


def links_text(rates):
    """Of what was found by kind of compute."""
    return "; ".join(
        f"{compute}: {found['rate_mbit']:.1f} Mbit/s" + (
            f", at which DDP has {found['share_of_ddp_alone']:.1%} at {found['hosts']} hosts, "
            f"fastest there as {found['fastest_ddp']} "
            "(tried " +
            ", ".join(f"{rate:.0f}: {share:.1%}" for rate, share in found["probes"]) + ")"
            if "probes" in found else ", given") for compute, found in rates.items())


def network_text(networks):
    return "; ".join(f"{n['compute']}, {n['hosts']} hosts: α {n['alpha_us']:.0f} µs, β "
                     f"{n['beta_ns_per_byte']:.2f} ns/byte" for n in networks)


def kind_text(record):
    compute = "emulated compute (slept)" if record["emulated"] else "real compute"
    return (f"{record['model']}, batch {record['batch_size']}, "
            f"{record['image_size']}×{record['image_size']}, {compute}, links of "
            f"{record['rate_mbit']:.0f} Mbit/s, "
            f"{count_text(record['ranks'] // record['hosts'], 'rank')} per host")


def groups(records):
    by_kind = {}
    for record in records:
        by_kind.setdefault(kind_text(record), []).append(record)
    return by_kind


def doubts(group):
    """The ways whose measured points the model misses by too much, each with its worst; empty if
    there are none."""
    worst = {}
    for record in group:
        missed = record.get("simulated_difference", 0.0)
        if abs(missed) > abs(worst.get(name_of(record), (MODEL_MAY_MISS,))[0]):
            worst[name_of(record)] = (missed, record["ranks"])
    return ", ".join(f"{name} ({missed:+.0%} at {count_text(ranks, 'rank')})"
                     for name, (missed, ranks) in worst.items())


def title_of(title, group):
    found = doubts(group)
    return title if not found else (
        f"{title}\nwarning: the model lies more than {MODEL_MAY_MISS:.0%} from what was measured "
        f"of {found}: do not rely on what it says of more ranks")


def compute_sec(group):
    """Of a step without communication."""
    alone = [r for r in group if r["algorithm"] == "none"]
    return alone[0]["sec_per_iter"]["p50"] if alone else None


def cpu_cells(record, compute):
    seconds = record.get("communication_cpu_sec", 0.0)
    if seconds <= 0 or compute is None:
        return "", ""
    return f"{seconds * 1e3:.1f}", f"{compute / seconds:.0f}"


def row(record, compute):
    quantiles = record["sec_per_iter"]
    model = ("simulated" if record["simulated"] else
             f"{record['simulated_difference']:+.1%}" if "simulated_difference" in record else "")
    return (record["peer"], record["algorithm"], record["graph"], str(record["hosts"]),
            str(record["ranks"]), f"{record['img_per_sec']:.1f}", f"{record['efficiency']:.1%}",
            *(f"{quantiles[name] * 1e3:.1f}" if name in quantiles else ""
              for name in ("p50", "p95")),
            *cpu_cells(record, compute), model)


def titled_rows(records):
    found = []
    for title, group in groups(records).items():
        shown = [r for r in group if not r["simulated"] or r["ranks"] in SHOWN_SIMULATED]
        shown.sort(key=lambda r: (r["ranks"], r["simulated"]))
        found.append((title_of(title, group),
                      [row(record, compute_sec(group)) for record in shown]))
    return found


def tables(records):
    for title, rows in titled_rows(records):
        yield make_table(title, COLUMNS, rows)


def name_of(record):
    """The name of a way."""
    graph = record["graph"]
    return record["algorithm"] + (f", {graph}" if graph in ("one_peer", "exponential") else "")


def shown_ways(group):
    """Names of the ways that charts have room for, as they were on most ranks: of DDP the fastest,
    of the others the most efficient; none of those that communicate nothing."""
    measured = [r for r in group if not r["simulated"]
                and r["algorithm"] not in WITHOUT_COMMUNICATION]
    most = [r for r in measured if r["ranks"] == max(r["ranks"] for r in measured)]
    fastest = fastest_ddp(most)
    rest = sorted((r for r in most if not is_ddp(r["algorithm"])), key=lambda r: -r["efficiency"])
    return [name_of(r) for r in ([fastest] if fastest else []) + rest][:charts.MOST_BARS]


def label_of(record):
    """The name of a way in charts, which have one of DDP alone."""
    return record["peer"] if is_ddp(record["algorithm"]) else name_of(record)


def bar_of(record):
    starts = record.get("starts_efficiency", [record["efficiency"]])
    return charts.Bar(label_of(record), record["efficiency"],
                      f"{record['efficiency']:.1%}, {record['img_per_sec']:.1f} img/sec",
                      charts.colour_of(record["peer"]), min(starts), max(starts))


def chart_of_measured(title, group):
    """Efficiency by number of hosts."""
    ways = shown_ways(group)
    by_hosts = {}
    for record in sorted(group, key=lambda r: r["hosts"]):
        if not record["simulated"] and name_of(record) in ways:
            by_hosts.setdefault(record["hosts"], []).append(record)
    return charts.panels_of_bars(title, [
        (f"{hosts} hosts", [bar_of(record) for record in records])
        for hosts, records in by_hosts.items()],
        "share of the speed without communication; line: least and most of the starts")


def chart_of_model(title, group):
    """Efficiency on to more ranks than were measured: circles are measured, lines simulated."""
    figure, axes = charts.subplots(figsize=(10, 6))
    axes.set_xscale("log", base=2)
    axes.set(ylim=(0, 1.05), ylabel="share of the speed without communication",
             xlabel="ranks; circles: measured, lines: simulated")
    ends, drawn = [], {}
    for name in shown_ways(group):
        records = sorted((r for r in group if name_of(r) == name), key=lambda r: r["ranks"])
        measured = [r for r in records if not r["simulated"]]
        simulated = [r for r in records if r["simulated"]]
        colour = charts.colour_of(records[0]["peer"])
        style = charts.STYLES[drawn.setdefault(colour, 0) % len(charts.STYLES)]
        drawn[colour] += 1
        axes.plot([r["ranks"] for r in measured], [r["efficiency"] for r in measured], "o",
                  color=colour)
        axes.plot([r["ranks"] for r in simulated], [r["efficiency"] for r in simulated],
                  linestyle=style, color=colour)
        last = (simulated or measured)[-1]["efficiency"]
        ends.append((last, f"{label_of(records[0])} {last:.0%}", colour, style))
    charts.name_lines(axes, ends)
    ranks = sorted({record["ranks"] for record in group})
    axes.set_xticks(ranks, map(str, ranks))
    axes.minorticks_off()
    axes.grid(True, alpha=0.3)
    figure.suptitle(charts.wrapped(title), fontsize=10)
    return figure


def write(folder, versions, records, not_run):
    write_files(folder, "Training on several hosts", versions, not_run,
                [(f"scale_{index}_{name}", chart(title_of(title, group), group))
                 for index, (title, group) in enumerate(groups(records).items())
                 for name, chart in (("measured", chart_of_measured), ("model", chart_of_model))],
                titled_rows(records), COLUMNS)
