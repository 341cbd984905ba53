"""Bars and lines of charts, as they would be read."""

import pytest
from matplotlib import pyplot

from bfbench.contestants import peer_of
from bfbench.records import merge_train_starts
from bfbench.reports import charts, operation_charts, report, scale_report, training_report
from bfbench.reports.charts import Bar
from records_of import on_hosts, operation, training


@pytest.fixture(autouse=True)
def close_figures():
    yield
    pyplot.close("all")


def bars_of(axes):
    """(name, figure, colour) from the top down."""
    assert axes.yaxis_inverted()
    names = [label.get_text() for label in axes.get_yticklabels()]
    texts = [text.get_text() for text in axes.texts]
    colours = [charts.matplotlib.colors.to_hex(bar.get_facecolor()) for bar in axes.patches]
    assert len(names) == len(texts) == len(colours)
    return list(zip(names, texts, colours))


def names_beside(axes):
    return [text.get_text() for text in axes.texts]


def test_bars_are_sorted_and_have_their_names_and_figures_on_them():
    bars = [Bar("slow", 3.0, "3 ms", "#111111"), Bar("fast", 1.0, "1 ms", charts.OWN),
            Bar("middle", 2.0, "2 ms", "#333333", 1.5, 2.5)]
    axes, = charts.panels_of_bars("times", [("1 MiB", bars)], "ms", is_less_better=True).axes
    assert bars_of(axes) == [("fast", "1 ms", charts.OWN), ("middle", "2 ms", "#333333"),
                             ("slow", "3 ms", "#111111")]
    (line,) = axes.lines  # how far the starts lie apart
    assert list(line.get_xdata()) == [1.5, 2.5] and list(line.get_ydata()) == [1, 1]
    axes, = charts.panels_of_bars("rates", [("1 MiB", bars)], "img/sec").axes
    assert [name for name, *_ in bars_of(axes)] == ["slow", "middle", "fast"]
    axes, = charts.panels_of_bars("cases", [("ring", bars)], "ms", best_first=False).axes
    assert [name for name, *_ in bars_of(axes)] == ["slow", "fast", "middle"]


def test_of_more_than_eight_the_peers_and_the_best_of_ours_are_shown():
    bars = [Bar(f"own {n}", float(n), str(n), charts.OWN) for n in range(10)] + [
        Bar("peer", 0.5, "0.5", charts.OTHER)]
    axes, = charts.panels_of_bars("rates", [("1 MiB", bars)], "img/sec").axes
    assert [name for name, *_ in bars_of(axes)] == [
        *(f"own {n}" for n in range(9, 2, -1)), "peer"]
    assert axes.get_title(loc="left") == "1 MiB (8 of 11, of ours the best; all are in the table)"


def test_names_of_lines_that_end_together_lie_apart():
    _, axes = charts.subplots()
    axes.set_ylim(0, 1)
    charts.name_lines(axes, [(0.99, "b", "#111111", "-"), (0.985, "a", charts.OWN, "--"),
                             (0.2, "c", "#111111", "-")])
    places = {text.get_text(): text.xy[1] for text in axes.texts}
    assert places["b"] - places["a"] == pytest.approx(charts.LEAST_GAP)
    assert max(places.values()) <= 1 and axes.get_ylim() == (0, 1)
    assert [line.get_linestyle() for line in axes.lines] == ["-", "--", "-"]


def of_two_ranks(bytes_=1 << 20, ranks=2, **others):
    """As a run of `bfbench ops` finds, and one too many."""
    ops = [("bluefog_cpp", f"neighbor_allreduce ({graph})", 10.0 + place)
           for place, graph in enumerate(("exponential", "one-peer", "ring"))]
    ops += [("bluefog_cpp", "allreduce", 20.0), ("bluefog_cpp", "allreduce, shared buffers", 8.0),
            ("bluefog_cpp", "win_put", 5.0), ("Open MPI", "MPI_Allreduce", 30.0),
            ("Open MPI", "MPI_Allreduce, xhc", 25.0),
            ("Open MPI", "send/receive and average (exponential)", 50.0),
            ("Open MPI", "MPI_Neighbor_alltoallv and average (exponential)", 45.0),
            ("gloo", "allreduce", 300.0), ("gloo", "allreduce by bcube, threads bound", 200.0),
            ("gloo", "send/receive and average (exponential)", 250.0),
            ("memcpy", "memcpy, C library", 7.0), ("memcpy", "memcpy, own", 6.0)]
    return [operation(peer, op, median, bytes=bytes_, ranks=ranks, **others)
            for peer, op, median in ops]


def test_the_fastest_way_of_each_operation_stands_for_it():
    axes, = operation_charts.chart_of_times(of_two_ranks(), "2 ranks").axes
    found = bars_of(axes)
    assert axes.get_title(loc="left") == "1 MiB (8 of 10; all are in the table)"
    assert [name for name, *_ in found] == [
        "memcpy, own", "bluefog_cpp: allreduce, shared buffers",
        "bluefog_cpp: neighbor_allreduce (exponential)",
        "bluefog_cpp: neighbor_allreduce (one-peer)", "Open MPI: MPI_Allreduce, xhc",
        "Open MPI: MPI_Neighbor_alltoallv and average (exponential)",
        "gloo: allreduce by bcube, threads bound", "gloo: send/receive and average (exponential)"]
    assert [colour for _, _, colour in found[1:4]] == 3 * [charts.OWN]
    assert charts.OWN not in [colour for _, _, colour in found[:1] + found[4:]]
    assert found[1][1] == "8.00 µs, 2 GB/s, 4.00 × memcpy" and found[0][1] == "6.00 µs, 2 GB/s"


def test_several_sizes_and_processes_have_two_charts_of_lines():
    records = [record for ranks in (2, 4) for bytes_ in (10**6, 10**7)
               for record in of_two_ranks(bytes_, ranks)]
    found = dict(operation_charts.charts_of(records))
    assert list(found) == ["time_2_ranks", "time_4_ranks", "time_by_processes",
                           "bandwidth_by_processes"]
    for name, label in (("time_by_processes", "time in ms"),
                        ("bandwidth_by_processes", "2 · size / time in GB/s")):
        two, four = found[name].axes
        assert (two.get_title(), four.get_title()) == ("2 processes", "4 processes")
        assert two.get_ylabel() == label and two.get_xscale() == two.get_yscale() == "log"
        assert [tick.get_text() for tick in four.get_xticklabels()] == ["1 MB", "10 MB"]
        assert len(two.lines) == charts.MOST_BARS == len(names_beside(four))
        assert "bluefog_cpp: allreduce" in names_beside(four) and "memcpy" in names_beside(four)
        own = [line for line in two.lines if line.get_color() == charts.OWN]
        assert len({str(line.get_linestyle()) for line in own}) == len(own) == 3
    # The fastest stands for a line: of shared buffers here.
    (line,) = [line for line in found["time_by_processes"].axes[0].lines
               if list(line.get_ydata()) == [0.008, 0.008]]
    assert list(line.get_xdata()) == [10**6, 10**7]


def test_lines_that_some_numbers_of_ranks_lack():
    records = [operation(op=f"op {k}", ranks=ranks, bytes=bytes_, median=float(k + 1))
               for ranks in (2, 4) for bytes_ in (10**6, 10**7)
               for k in range(charts.MOST_BARS + 1) if (ranks, k) != (4, 0)]
    two, four = dict(operation_charts.charts_of(records))["time_by_processes"].axes
    names = names_beside(four)
    assert len(two.lines) == len(names) == charts.MOST_BARS
    assert "bluefog_cpp: op 0" in names


def test_each_language_has_its_charts_beside_the_same_memcpy():
    records = [*of_two_ranks(), operation(language="Python", bytes=1 << 20, median=40.0)]
    found = dict(operation_charts.charts_of(records))
    assert list(found) == ["time_2_ranks", "time_2_ranks_python"]
    assert [name for name, *_ in bars_of(found["time_2_ranks_python"].axes[0])] == [
        "memcpy, own", "bluefog_cpp: allreduce"]


def trained(name, rates, **others):
    return [training(name, rate, peer=peer_of(name), page_faults_per_step=0.0, peak_mib=9.0,
                     grown_mib=3.0, loss=0.5, accuracy=0.75, **others) for rate in rates]


def test_training_has_ddp_once_and_the_range_of_the_starts():
    jobs = [trained("none", (100.0, 110.0, 120.0)), trained("ddp", (60.0, 60.0, 60.0)),
            trained("ddp_4_mib", (70.0, 80.0, 90.0)), trained("atc", (99.0, 100.0, 101.0))]
    merged = merge_train_starts(list(zip(*jobs)))
    chart = training_report.chart_of_training("cnn", merged)
    axes, = chart.axes
    assert [(name, colour) for name, _, colour in bars_of(axes)] == [
        ("no communication (plain torch)", charts.LIMIT), ("atc", charts.OWN),
        ("torch DDP (gloo), buckets of 4 MiB", charts.PEERS["gloo"])]
    assert list(axes.lines[2].get_xdata()) == [70.0, 90.0] and "3 starts" in chart.get_suptitle()
    names = [name for name, _ in training_report.charts_of_ddp("cnn", merged)]
    assert names == ["img_per_sec", "peak_mib", "loss", "accuracy"]


def test_training_on_hosts_has_bars_of_what_was_measured_and_lines_of_the_model():
    measured = [on_hosts(name, graph, ranks=ranks, rate=ranks * rate, peer=peer_of(name),
                         efficiency=rate / 10)
                for ranks in (2, 4) for name, graph, rate in (
                    ("none", "", 10.0), ("none_wrapped", "", 10.0), ("ddp_alone", "", 10.0),
                    ("ddp", "all ranks", 6.0), ("ddp_1_mib", "all ranks", 7.0),
                    ("awc", "one_peer", 9.0))]
    modelled = [{**record, "simulated": True, "ranks": ranks, "hosts": ranks}
                for record in measured[3:6] for ranks in (2, 4, 1024)]
    first, second = scale_report.chart_of_measured("t", measured + modelled).axes
    for axes, hosts in ((first, 2), (second, 4)):
        assert axes.get_title(loc="left") == f"{hosts} hosts"
        assert [name for name, *_ in bars_of(axes)] == ["awc, one_peer", "torch DDP (gloo)"]
        assert bars_of(axes)[1][1] == f"70.0%, {7 * hosts:.1f} img/sec"
    axes, = scale_report.chart_of_model("t", measured + modelled).axes
    assert names_beside(axes) == ["torch DDP (gloo) 70%", "awc, one_peer 90%"]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["2", "4", "1024"]


def test_accuracies_have_a_panel_for_each_graph():
    group = [{"peer": "bluefog_cpp", "algorithm": name, "topology": graph, "accuracy": value,
              "accuracy_deviation": None}
             for graph in ("ring", "full") for name, value in (("atc", 0.5), ("awc", 0.75))]
    ring, full = report.chart_of_accuracy("t", group).axes
    assert ring.get_title(loc="left") == "ring" and full.get_title(loc="left") == "full"
    assert [(name, text) for name, text, _ in bars_of(full)] == [("awc", "0.750"), ("atc", "0.500")]
