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
    assert found == [("bluefog_cpp allreduce 2 1 cpu float32 1024", "p50", 8.0, 16.0, 0.5),
                     ("bluefog_cpp allreduce 2 1 cpu float32 1024", "p95", 16.0, 32.0, 0.5)]
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


def file_of(path, records=None, **about):
    records = merge_starts([[operation()]]) if records is None else records
    path.write_text(json.dumps({"records": records, "versions": about}))
    return str(path)


@pytest.mark.parametrize("name, old, new, said", (
    ("command", "train", "ddp", "command train and ddp"),
    ("accumulation", 4, 1, "--accumulation 4 and 1"), ("data", "a", "b", "--data a and b"),
    ("static_graph", False, True, "--static-graph False and True"),
    ("bucket_mb", 25, 1, "--bucket-mb 25 and 1"), ("rate", "auto", 5.0, "--rate auto and 5.0")))
def test_runs_of_different_things_are_refused(name, old, new, said, tmp_path, capsys):
    first = file_of(tmp_path / "old", options={"command": "ops", "seconds": 1, name: old})
    second = file_of(tmp_path / "new", options={"command": "ops", "seconds": 1, name: new})
    assert main(["diff", first, second]) == 1
    assert f"expected two runs of the same, found {said} in {first} and {second}" in (
        capsys.readouterr().err)


@pytest.mark.parametrize("options", (
    {"seconds": 2.0}, {"json": "x"}, {"report": "x"}, {"starts": 9}, {"rounds": 9}, {"steps": 9},
    {"build": "x"}, {"sizes": [4]}, {"ranks": [4]}, {}))
def test_runs_of_other_length_or_choice_are_compared(options, tmp_path, capsys):
    same = {"dtype": "float32"}
    usual = dict.fromkeys(("seconds", "json", "report", "starts", "rounds", "steps", "build", "sizes",
                           "ranks"))
    first = file_of(tmp_path / "old", options={**same, **usual})
    second = file_of(tmp_path / "new", options={**same, **(options and {**usual, **options})})
    assert main(["diff", first, second]) == 0
    assert "warning" not in capsys.readouterr().out
    # Files of before have no options.
    assert main(["diff", file_of(tmp_path / "old"), second]) == 0


def test_another_machine_or_day_is_said(tmp_path, capsys):
    first = file_of(tmp_path / "old", processor="A", cores=2, date="2026-11-22T01:00:00+00:00")
    second = file_of(tmp_path / "new", processor="B", cores=2, date="2026-11-23T01:00:00+00:00")
    assert main(["diff", first, second]) == 0
    said = capsys.readouterr().out
    assert "warning: processor differs: A and B" in said and "cores differs" not in said
    assert "warning: date differs: 2026-11-22 and 2026-11-23" in said


def without(name):
    (record,) = merge_starts([[operation()]])
    del record[name]
    return [record]


def with_figures(**figures):
    (record,) = merge_starts([[operation()]])
    return [{**record, **figures}]


@pytest.mark.parametrize("records, said", (
    ([1], "AttributeError"), ({"a": 1}, "AttributeError"), (without("starts_p95_us"), "starts_p95_us"),
    (with_figures(starts_us=[0, 0]), "whose p50 is no time above 0"),
    (with_figures(starts_us=[]), "whose p50 is no time above 0"),
    (with_figures(median_us="x"), "TypeError"), (with_figures(ranks=[2]), "TypeError"),
    ([{**merge_train_starts([[training()]])[0], "sec_per_iter": 5}], "AttributeError")))
def test_broken_files_are_said_in_a_line(records, said, tmp_path, capsys):
    broken, whole = file_of(tmp_path / "broken", records), file_of(tmp_path / "whole")
    for words in ((broken, whole), (whole, broken)):
        assert main(["diff", *words]) == 1
        error = capsys.readouterr().err
        assert error.startswith(f"bfbench diff: {broken}: expected a file that bfbench --json")
        assert said in error and error.count("\n") == 1
