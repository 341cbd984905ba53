"""bfbench pipeline: what it makes of its runs, and a short one."""

import argparse
import pathlib

import pytest

from bfbench.launch import LaunchFailed
from bfbench.pipelines.command import row, runs_of, titled_rows
from bfbench.pipelines.records import largest_that_fit, merge, pause_us_of, record_of
from bfbench.pipelines.ways import WAYS, command_of, configuration_of
from commands import run


def seconds(total, forward, bubble):
    return {"loading": 0.0, "forward": forward, "backward": 0.5, "bubble": bubble,
            "allreduce_exposed": 0.25, "allreduce": 0.5, "optimizer": 0.0, "total": total}


def events(img_per_sec=50.0, memory=(10.0, 30.0)):
    ranks = [{"seconds": seconds(2.0, 0.5, 0.75), "stage_bytes": 300, "allreduce_bytes": 100},
             {"seconds": seconds(2.0, 1.0, 0.25), "stage_bytes": 0, "allreduce_bytes": 100}]
    epochs = [{"event": "epoch", "rows": 100, "stages": stages, "frozen": 2 - stages,
               "ranks": ranks} for stages in (2, 1)]
    return [{"event": "run"}, {"event": "step"}, *epochs,
            {"event": "result", "seconds": 200 / img_per_sec, "test_accuracy": 0.75,
             "memory_mib": list(memory)}]


def record(way="pipe_ddp", batch=64, chunks=8, **given):
    return record_of(events(**given), way=way, label=WAYS[way].label, language="C++", ranks=2,
                     batch_size=batch, chunks=chunks, emulated=False, pause_us=0)


def test_a_record_sums_epochs_and_ranks():
    found = record()
    assert (found["img_per_sec"], found["seconds"], found["accuracy"]) == (50.0, 4.0, 0.75)
    assert found["memory_mib"] == 30.0
    assert found["shares"] == {"loading": 0.0, "forward": 3 / 8, "backward": 2 / 8,
                               "bubble": 2 / 8, "allreduce_exposed": 1 / 8, "optimizer": 0.0}
    assert found["bytes_per_sec"] == 1000 / 4.0
    assert (found["stages"], found["frozen"]) == ([2, 1], [0, 1])


def test_medians_over_starts_and_shares_of_the_plain_pipeline():
    records = merge([record(img_per_sec=rate) for rate in (50.0, 40.0, 60.0)]
                    + [record("cache", img_per_sec=100.0), record("torch_pipe", img_per_sec=25.0),
                       record("cache", batch=32, img_per_sec=10.0)])
    plain, cache, torchs, alone = records
    assert (plain["img_per_sec"], plain["starts_img_per_sec"]) == (50.0, [50.0, 40.0, 60.0])
    assert "of_pipe" not in plain and plain["of_torch_pipe"] == 2.0
    assert (cache["of_pipe"], cache["of_torch_pipe"], torchs["of_pipe"]) == (2.0, 4.0, 0.5)
    assert "of_pipe" not in alone


def test_the_largest_batch_that_fits():
    records = [record(batch=32, memory=(10.0,)), record(batch=64, memory=(20.0,), img_per_sec=1.0),
               record(batch=64, chunks=4, memory=(19.0,), img_per_sec=2.0),
               record(batch=128, memory=(40.0,)), record("cache", memory=(99.0,))]
    found, = largest_that_fit(records, 30.0)
    assert (found["way"], found["batch_size"], found["chunks"]) == ("pipe_ddp", 64, 4)
    titles = [title for title, _ in titled_rows(merge(records), 30.0)]
    assert titles == ["2 ranks", "2 ranks: the largest batches that fit into 30 MiB"]


def test_a_row():
    found = merge([record("dp", img_per_sec=100.0), record()])
    assert row(found[0]) == ("  + freeze + pipe + dp", "C++", "8", "64", "30", "100.0", "2.0",
                             "75.0 %", "2.00", "", "38 %", "25 %", "25 %", "12 %", "2 → 1")


def test_ddp_runs_once_for_each_batch():
    args = argparse.Namespace(ranks=[2], batches=[8, 16], chunks=[1, 2], ways=["ddp", "pipe"],
                              compute=["sleep", "real"])
    assert [run[0] for run in runs_of(args)] == ["ddp", "pipe", "pipe"] * 4
    assert [run[-1] for run in runs_of(args)] == ["sleep"] * 6 + ["real"] * 6


def test_what_is_slept_is_what_a_row_took():
    # 100 rows in 2 layers: 400 half layers, whose three passes took 0.5 + 0.5 seconds.
    assert pause_us_of(events(), 2) == round(1e6 / 1200)
    assert pause_us_of([{"event": "epoch", "rows": 10 ** 9, "ranks": [{"seconds": seconds(
        2.0, 0.5, 0.0)}]}], 2) == 1


def test_tables_keep_kinds_of_compute_apart():
    slept = record_of(events(img_per_sec=100.0), way="cache", label="", language="C++", ranks=2,
                      batch_size=64, chunks=8, emulated=True, pause_us=30)
    records = merge([record(), slept])
    assert "of_pipe" not in records[1]
    assert [title for title, _ in titled_rows(records)] == [
        "2 ranks", "2 ranks, compute slept: 30 µs a row and half layer"]


def test_each_way_is_a_configuration_with_a_part_more():
    parts = [sum(WAYS[way].parts.values()) for way in ("pipe_ddp", "freeze", "pipe", "dp", "cache")]
    assert parts == [0, 1, 2, 3, 4]
    assert configuration_of("freeze", epochs=2, pause_us=0) == (
        "freeze: true\nrepartition: false\nshrink: false\ncache: false\nepochs: 2\npause_us: 0\n")


def test_programs_that_are_not_there_are_named():
    with pytest.raises(LaunchFailed, match="train_pipeline"):
        command_of("pipe", pathlib.Path("/no/build"), "python3")


def test_a_run(tmp_path, capsys):
    pytest.importorskip("yaml")
    if not pathlib.Path("/usr/share/datasets/fashion-mnist").exists():
        pytest.skip("dataset-fashion-mnist is not installed")
    ways = ("ddp", "torch_pipe", "cache")
    found, _, page = run(tmp_path, "pipeline", "--ways", ",".join(ways), "--ranks", "2",
                         "--chunks", "2", "--batches", "24", "--epochs", "4", "--images", "96",
                         "--test-images", "40", "--layers", "3", "--width", "16", "--alpha", "0.6",
                         "--device-mib", "100000", "--compute", "real,sleep",
                         "--slept-width", "16", "--pretrain", "1", "--pretrain-images", "96")
    records = found["records"]
    assert not found["not_run"]
    assert [record["way"] for record in records] == list(ways) * 2
    assert [record["chunks"] for record in records] == [0, 2, 2] * 2
    assert [record["stages"][-1] for record in records] == [1, 2, 1] * 2
    pauses = [record["pause_us"] for record in records]
    assert pauses[:3] == [0] * 3 and pauses[3] > 0 and len(set(pauses[3:])) == 1
    assert {record["pretrained_epochs"] for record in records} == {1}
    for record in records:
        assert record["img_per_sec"] > 0 and record["memory_mib"] > 0
        assert 0 <= record["accuracy"] <= 1
        assert sum(record["shares"].values()) <= 1 + 1e-9
    assert "2 ranks: the largest batches that fit into 100000 MiB" in page
    assert "torch&#39;s pipelining (gloo)" in page
    assert "torch's pipelining" in capsys.readouterr().out
