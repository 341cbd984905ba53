"""Two runs, percentile by percentile."""

import json

import pytest

from bfbench import diff
from bfbench.__main__ import main
from bfbench.records import merge_starts, merge_train_starts
from records_of import operation, training


def by_key(records):
    return {diff.key_of(record): record for record in records}


def test_noise_is_half_of_the_range_of_the_starts():
    assert diff.noise([9.0, 10.0, 12.0]) == pytest.approx(0.15)
    assert diff.noise([9.0]) is None


def test_percentiles_of_operations():
    old = merge_starts([[operation(median=m)] for m in (8000.0, 9000.0, 8000.0)])
    new = merge_starts([[operation(median=m)] for m in (32000.0, 16000.0, 16000.0)])
    found = list(diff.compare(by_key(old), by_key(new)))
    # In ms; the noise is that of the noisier run.
    assert found == [("bluefog_cpp allreduce 2 1 float32 1024", "p50", 8.0, 16.0, 0.5),
                     ("bluefog_cpp allreduce 2 1 float32 1024", "p95", 16.0, 32.0, 0.5)]
    assert diff.row(*found[0])[2:] == ("8", "16", "+100.0% *", "±50.0%")


def test_a_change_within_the_noise_has_no_mark():
    assert diff.row("x", "p50", 10.0, 11.0, 0.2)[4] == "+10.0%"
    assert diff.row("x", "p50", 10.0, 11.0, None)[4:] == ("+10.0%", "one start")


def test_percentiles_of_training():
    old = merge_train_starts([[training(rate=100.0)], [training(rate=100.0)]])
    new = merge_train_starts([[training(rate=50.0)], [training(rate=50.0)]])
    found = list(diff.compare(by_key(old), by_key(new)))
    assert [(name, spread) for _, name, _, _, spread in found] == [("p50", 0.0), ("p95", 0.0)]
    assert [test / base for _, _, base, test, _ in found] == [2.0, 2.0]


def test_the_command(tmp_path, capsys):
    def written(name, *records):
        path = tmp_path / name
        path.write_text(json.dumps({"records": merge_starts([list(records)])}))
        return str(path)

    old = written("old", operation(), operation("gloo"))
    new = written("new", operation(median=5.0), operation("memcpy"))
    assert main(["diff", old, new]) == 0
    said = capsys.readouterr().out
    assert "-50.0%" in said
    assert f"only in {old}: gloo" in said and f"only in {new}: memcpy" in said
