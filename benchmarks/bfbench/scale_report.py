"""Tables and charts of training on hosts: measured points, and the model past them."""

import textwrap

from matplotlib import pyplot

from bfbench.records import count_text
from bfbench.report import add_legend, colours_of, make_table, write_files

COLUMNS = ("peer", "algorithm", "graph", "hosts", "ranks", "img/sec", "efficiency", "step p50 ms",
           "p95 ms", "communication's CPU ms", "compute ÷ CPU", "model says")
MODEL_MAY_MISS = 0.15
SHOWN_SIMULATED = (64, 1024)  # numbers of ranks that have a row


def links_text(rates):
    """Of what was found by kind of compute."""
    return "; ".join(
        f"{compute}: {found['rate_mbit']:.1f} Mbit/s" + (
            f", at which DDP has {found['share_of_ddp_alone']:.1%} at {found['hosts']} hosts "
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
    """The name of a way, in charts."""
    graph = record["graph"]
    return record["algorithm"] + (f", {graph}" if graph in ("one_peer", "exponential") else "")


def lines_of(group):
    """Measured and simulated records of each way, each by rising number of ranks."""
    lines = {}
    for record in sorted(group, key=lambda r: r["ranks"]):
        if record["algorithm"] in ("none", "ddp_alone"):
            continue
        lines.setdefault(name_of(record), ([], []))[record["simulated"]].append(record)
    return lines


def draw(axes, group, figure):
    lines = lines_of(group)
    for colour, (name, (measured, simulated)) in zip(colours_of(len(lines)), lines.items()):
        axes.plot([r["ranks"] for r in measured], [r[figure] for r in measured], "o-", color=colour,
                  label=name)
        axes.plot([r["ranks"] for r in simulated], [r[figure] for r in simulated], "--",
                  color=colour, linewidth=1)


def chart(title, group):
    """img/sec beside the ideal, and efficiency."""
    figure, (speed, efficiency) = pyplot.subplots(1, 2, figsize=(14, 5.5),
                                                  layout="constrained")
    draw(speed, group, "img_per_sec")
    draw(efficiency, group, "efficiency")
    ranks = sorted({record["ranks"] for record in group})
    alone = [r["img_per_sec"] / r["ranks"] for r in group if r["algorithm"] == "none"]
    if alone:
        speed.plot(ranks, [n * alone[0] for n in ranks], "k:", label="ideal")
    for axes in (speed, efficiency):
        axes.set_xscale("log", base=2)
        axes.set(xlabel="ranks; dashed: simulated")
        axes.grid(True, alpha=0.3)
    speed.set(yscale="log", ylabel="img/sec, all ranks")
    efficiency.set(ylim=(0, 1.1), ylabel="share of the speed without communication")
    add_legend(figure, handles=speed.get_legend_handles_labels()[0])
    figure.suptitle("\n".join(textwrap.fill(line, 140)
                              for line in title_of(title, group).splitlines()),
                    fontsize=10)
    return figure


def write(folder, versions, records, not_run):
    write_files(folder, "Training on several hosts", versions, not_run,
                [(f"scale_{index}", chart(title, group))
                 for index, (title, group) in enumerate(groups(records).items())],
                titled_rows(records), COLUMNS)
