"""Words of tables."""

from bfbench.reports import report, training_report, units
from records_of import operation, training


def test_one_rank_is_no_ranks():
    assert report.ranks_text(operation(ranks=1)) == "1 rank"
    assert report.ranks_text(operation(ranks=4, hosts=2)) == "4 ranks on 2 hosts"
    assert list(training_report.train_groups([training(ranks=1)])) == [
        "cnn, 1 rank, batch 8, 32×32"]


def test_sizes_are_round_in_either_way():
    assert [units.size_text(size) for size in (4, 4100, 65536, 100 << 20, 10**6, 44_700_000, 10**9)
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


def test_tables_are_of_one_language_each():
    titles = [title for title, _ in report.titled_rows(
        [operation(), operation("gloo"), operation(language="Python"),
         operation("gloo", language="Python")])]
    assert titles == [f"2 ranks, 1 KiB of float32, from {word}" for word in ("C++", "Python")]
