"""Two runs, percentile by percentile."""

import json
import pathlib

import pytest

from bfbench import diff
from bfbench.__main__ import main
from bfbench.records import (
    SCALE_FIGURES,
    SCALE_KEY,
    key_of_operation,
    merge_starts,
    merge_train_starts,
)
from records_of import on_hosts, operation, training


def by_key(records):
    return {diff.key_of(record): record for record in records}


def test_noise_is_half_of_the_range_of_the_starts():
    assert diff.noise([9.0, 10.0, 12.0]) == pytest.approx(0.15)
    assert diff.noise([9.0]) is None


def test_percentiles_of_operations():
    old = merge_starts([[operation(median=m)] for m in (8000.0, 9000.0, 8000.0)])
    new = merge_starts([[operation(median=m)] for m in (32000.0, 16000.0, 16000.0)])
    found = list(diff.compare(by_key(old), by_key(new)))
    # The noise is that of the noisier run.
    what = "bluefog_cpp allreduce C++ 2 1 cpu float32 1024"
    assert found == [(what, "p50 µs", 8000.0, 16000.0, 0.5),
                     (what, "p95 µs", 16000.0, 32000.0, 0.5)]
    assert diff.row(*found[0])[2:] == ("8000", "16000", "+100.0% *", "±50.0%")
    assert diff.time_text(0.2876) == "0.2876"


def test_a_change_within_the_noise_has_no_mark():
    assert diff.row("x", "p50", 10.0, 11.0, 0.2)[4] == "+10.0%"
    assert diff.row("x", "p50", 10.0, 11.0, None)[4:] == ("+10.0%", "one start")


def test_percentiles_of_training():
    old = merge_train_starts([[training(rate=100.0)], [training(rate=100.0)]])
    new = merge_train_starts([[training(rate=50.0)], [training(rate=50.0)]])
    found = list(diff.compare(by_key(old), by_key(new)))
    assert [(name, spread) for _, name, _, _, spread in found] == [("p50 ms", 0.0), ("p95 ms", 0.0)]
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
    usual = dict.fromkeys(("seconds", "json", "report", "starts", "rounds", "steps", "build",
                           "sizes",
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


def test_other_versions_and_commits_are_said(tmp_path, capsys):
    same = {"python": "3.11.2", "mpi": "Open MPI 5.0.11"}
    first = file_of(tmp_path / "old", torch="2.10.0", commit="abc", topology="Machine\n  L3",
                    **same)
    second = file_of(tmp_path / "new", torch="2.11.0", commit="def-dirty", topology="Machine",
                     **same)
    assert main(["diff", first, second]) == 0
    said = capsys.readouterr().out
    for line in ("commit differs: abc and def-dirty", "torch differs: 2.10.0 and 2.11.0",
                 "topology differs: Machine; L3 and Machine"):
        assert f"warning: {line}\n" in said
    assert said.count("warning") == 3


def test_other_rates_of_links_are_refused(tmp_path, capsys):
    def trained(name, rate_mbit):
        starts = [[on_hosts("ddp", rate_mbit=rate_mbit)]]
        return file_of(tmp_path / name, merge_train_starts(starts, SCALE_KEY, SCALE_FIGURES))

    first = trained("old", 100.0)
    assert main(["diff", first, trained("alike", 104.0)]) == 0
    for name, rate in (("faster", 106.0), ("slower", 94.0)):
        second = trained(name, rate)
        assert main(["diff", first, second]) == 1
        assert (f"expected two runs of the same, found links of 100.0 and {rate} Mbit/s in {first} "
                f"and {second}") in capsys.readouterr().err


def test_training_of_earlier_files_is_compared_with_what_it_was(tmp_path):
    """DDP with buckets that the program gave, and no communication by this project's optimizer."""
    def keys_of(options):
        records = merge_train_starts([[training(name) for name in ("ddp", "none", "atc")]])
        found, _ = diff.load(pathlib.Path(file_of(tmp_path / "file", records, options=options)))
        return [key[1] for key in found]

    assert keys_of({"bucket_mb": 25}) == ["ddp_25_mib", "none_wrapped", "atc"]
    assert keys_of({"bucket_mb": 25, "ddp_buckets": ["default"]}) == ["ddp", "none", "atc"]
    assert keys_of({}) == ["ddp", "none", "atc"]


def test_operations_of_earlier_files_have_the_language_that_they_had():
    def language(**record):
        record = operation(**record)
        del record["language"]
        return key_of_operation(record)[2]

    assert language() == language(peer="Open MPI") == language(peer="memcpy") == "C++"
    assert language(peer="gloo") == language(peer="link") == "Python"
    assert language(op="all_reduce by torch") == language(device="cuda") == "Python"


def without(name):
    (record,) = merge_starts([[operation()]])
    del record[name]
    return [record]


def with_figures(**figures):
    (record,) = merge_starts([[operation()]])
    return [{**record, **figures}]


@pytest.mark.parametrize("records, said", (
    ([1], "TypeError"), ({"a": 1}, "without a list of records"),
    (without("starts_p95_us"), "starts_p95_us"),
    (with_figures(starts_us=[0, 0]), "whose p50 µs is no time above 0"),
    (with_figures(starts_us=[]), "whose p50 µs is no time above 0"),
    (with_figures(median_us="x"), "TypeError"), (with_figures(ranks=[2]), "TypeError"),
    ([{**merge_train_starts([[training()]])[0], "sec_per_iter": 5}], "AttributeError")))
def test_broken_files_are_said_in_a_line(records, said, tmp_path, capsys):
    broken, whole = file_of(tmp_path / "broken", records), file_of(tmp_path / "whole")
    for words in ((broken, whole), (whole, broken)):
        assert main(["diff", *words]) == 1
        error = capsys.readouterr().err
        assert error.startswith(f"bfbench diff: {broken}: expected a file that bfbench --json")
        assert said in error and error.count("\n") == 1
