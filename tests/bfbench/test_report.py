"""Words and colours of tables and charts."""

import pytest
from matplotlib import pyplot

from bfbench import report, training_report
from bfbench.records import merge_train_starts
from records_of import operation, training


def test_one_rank_is_no_ranks():
    assert report.ranks_text(operation(ranks=1)) == "1 rank"
    assert report.ranks_text(operation(ranks=4, hosts=2)) == "4 ranks on 2 hosts"
    assert list(training_report.train_groups([training(ranks=1)])) == [
        "cnn, 1 rank, batch 8, 32×32"]


@pytest.mark.parametrize("count", (1, 10, 11, 20, 21, 40))
def test_each_bar_and_each_line_has_its_own_colour(count):
    records = [operation(op=f"op {index}", bytes=bytes_) for index in range(count)
               for bytes_ in (4, 8)]
    bars, lines = report.chart_of_bars(records, 4), report.chart_by_size(records, 2)
    try:
        assert len({patch.get_facecolor() for patch in bars.axes[0].patches}) == count
        assert len({tuple(line.get_color()) for line in lines.axes[0].lines}) == count
    finally:
        pyplot.close(bars)
        pyplot.close(lines)


def test_sizes_are_round_in_either_way():
    assert [report.size_text(size) for size in (4, 4100, 65536, 100 << 20, 10**6, 44_700_000, 10**9)
            ] == ["4 B", "4100 B", "64 KiB", "100 MiB", "1 MB", "44.7 MB", "1 GB"]


def test_computing_beside_the_link_counts_between_hosts():
    link = {"hosts": 2, "bytes": 1 << 20, "cpu_us": 500.0}
    columns = report.columns_of([operation(**link)])
    ((_, (cells,)),) = report.titled_rows([operation(**link)])
    assert len(cells) == len(columns)
    assert cells[columns.index("CPU s/GiB")] == "0.51"
    ((_, (cells,)),) = report.titled_rows([operation(**{**link, "bytes": 4})])
    assert cells[columns.index("CPU s/GiB")] == ""  # of bytes that no link is busy with
    assert "CPU s/GiB" not in report.columns_of([operation()])


def test_bars_name_size_and_dtype_and_show_what_is_small():
    chart = report.chart_of_bars([operation(op=f"op {rate}", bytes=10**9, algbw_gbps=rate)
                                  for rate in (0.01, 10.0)], 10**9)
    axes, = chart.axes
    pyplot.close(chart)
    assert axes.get_yscale() == "log" and axes.get_title() == "1 GB of float32: effective bandwidth"
    assert [patch.get_height() for patch in axes.patches] == [0.02, 20.0]


def test_charts_of_training_have_all_figures_and_the_range_of_the_starts():
    def one(rate):
        return training(rate=rate, peak_mib=9.0, grown_mib=3.0, loss=0.5, accuracy=0.75)
    merged = merge_train_starts([[one(rate)] for rate in (80.0, 100.0, 110.0)])
    for draw, panels in ((training_report.chart_of_training, 1), (training_report.chart_of_ddp, 4)):
        chart = draw("cnn", merged)
        pyplot.close(chart)
        assert len(chart.axes) == panels
        (error,) = chart.axes[0].containers[0].lines[2]
        assert error.get_segments()[0][:, 1].tolist() == [80.0, 110.0]
        assert "3 starts" in chart.get_suptitle() + chart.axes[0].get_title()
