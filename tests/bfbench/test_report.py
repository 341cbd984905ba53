"""Words and colours of tables and charts."""

import pytest
from matplotlib import pyplot

from bfbench import report
from records_of import operation, training


def test_one_rank_is_no_ranks():
    assert report.ranks_text(operation(ranks=1)) == "1 rank"
    assert report.ranks_text(operation(ranks=4, hosts=2)) == "4 ranks on 2 hosts"
    assert list(report.train_groups([training(ranks=1)])) == ["cnn, 1 rank, batch 8, 32×32"]


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
