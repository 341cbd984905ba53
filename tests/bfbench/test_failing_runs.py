"""Runs in which something fails or is cut off: what they measure all the same, and say."""

import argparse
import contextlib
import os
import pathlib
import subprocess
import sys
import textwrap
import time

import pytest

from bfbench import launch, operations, train
from bfbench.__main__ import main
from commands import BUILD, left_behind, not_run, run
from image_files import idx_files

FAILED = launch.LaunchFailed("a long story", "RuntimeError: why")
SHORT_NORMS = ("syncbn", "--batches", "4", "--hidden", "3", "--seconds", "0.01")


def failing_where(monkeypatch, name, fails):
    """Jobs of which those fail for which `fails(times it was called, its words)`, which returns the
    error."""
    usual, calls = getattr(launch.Launcher, name), []

    def job(self, *words):
        calls.append(words)
        error = fails(len(calls), words)
        if error:
            raise error
        return usual(self, *words)
    monkeypatch.setattr(launch.Launcher, name, job)


def operations_arguments(*words):
    parser = argparse.ArgumentParser()
    operations.add_arguments(parser)
    return parser.parse_args(words)


@pytest.mark.long
def test_what_memory_does_not_suffice_for_is_left_out(tmp_path):
    found, *_ = run(tmp_path, "ops", "--sizes", "4,1000000000000", "--seconds", "0.01")
    assert {record["bytes"] for record in found["records"]} == {4}
    for op in ("allreduce", "win_put", "memcpy, own", "isend/irecv and average (exponential)"):
        reasons = {item["not_run"] for item in found["not_run"] if item.get("op") == op}
        assert "1000000000000 bytes" in str(reasons) and "more than is free" in str(reasons)
    assert "by int" in not_run(found, peer="Open MPI")


def test_peers_that_fail_or_are_left_out_are_listed(tmp_path, monkeypatch, capsys):
    def failing(*_):
        raise launch.LaunchFailed("a long story", "RuntimeError: no network")

    monkeypatch.setattr(launch.Launcher, "gloo", failing)
    # One rank: MPI has nothing to exchange.
    found = left_behind(tmp_path, 1, "ops", "--ranks", "1", "--sizes", "4", "--seconds", "0.01",
                        "--starts", "1")
    page = (tmp_path / "left" / "report.html").read_text()
    assert not_run(found, peer="bluefog_cpp and gloo from Python") == "RuntimeError: no network"
    assert not_run(found, peer="Open MPI") == "needs at least 2 ranks that MPI started"
    side = "bluefog_cpp and gloo from Python at 1 rank"
    assert f"Not run: {side}: RuntimeError: no network" in page
    assert f"not run: {side}: RuntimeError: no network" in capsys.readouterr().out
    assert {item["not_run"] for item in operations.never_run(
        operations_arguments("--without", "gloo"), [])} >= {"left out by --without gloo"}


def processes_with(variable):
    """Identifiers of running processes whose environment has `variable`."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if variable.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


def is_worker(pid):
    with contextlib.suppress(OSError):
        return b"bfbench.workers.train_worker" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def wait_until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.1)
    return condition()


def test_a_killed_command_leaves_no_ranks_behind():
    mark = f"BLUEFOG_DRILL=killed_{os.getpid()}"
    command = subprocess.Popen(
        [sys.executable, "-m", "bfbench", "train", "--build", BUILD, "--ranks", "2", "--models",
         "cnn",
         "--algorithms", "none", "--rounds", "1000000"],
        env={**os.environ, "BLUEFOG_DRILL": f"killed_{os.getpid()}"}, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL)
    try:
        assert wait_until(lambda: len([pid for pid in processes_with(mark) if is_worker(pid)]) >= 2)
    finally:
        command.kill()
        command.wait()
    assert wait_until(lambda: not processes_with(mark), seconds=30)


@pytest.mark.long
def test_a_peer_that_fails_in_training_leaves_the_others_their_turns(tmp_path, monkeypatch, capsys):
    """decent-dp is one here that fails on one rank, in its third backward pass."""
    (tmp_path / "decent_dp").mkdir()
    (tmp_path / "decent_dp" / "__init__.py").touch()
    (tmp_path / "decent_dp" / "ddp.py").write_text(textwrap.dedent("""
        import os
        import torch

        class DecentralizedDataParallel(torch.nn.Module):
            def __init__(self, model, *words, **options):
                super().__init__()
                self.model, self._comm_ops, self.passes = model, [], 0

            def forward(self, images):
                self.passes += 1
                if self.passes == 3 and os.environ["OMPI_COMM_WORLD_RANK"] == "0":
                    raise RuntimeError("no third pass")
                return self.model(images)
        """))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    train.refused.cache_clear()
    found = left_behind(tmp_path, 1, "train", "--models", "cnn", "--ranks", "2", "--batch-size",
                        "2",
                        "--image-size", "8", "--rounds", "1", "--steps", "2", "--starts", "1",
                        "--algorithms", "none,decent_dp,atc")
    train.refused.cache_clear()
    assert {record["algorithm"] for record in found["records"]} == {"none", "atc"}
    assert not_run(found, algorithm="decent_dp") == "RuntimeError: no third pass"
    assert "no third pass" in capsys.readouterr().out


def test_images_that_are_not_there(tmp_path, capsys):
    folder = idx_files(tmp_path)
    for words, expected in (((str(tmp_path),), "or --data synthetic; found none"),
                            ((str(folder), "--batch-size", "100"), "found 21")):
        assert main(["ddp", "--build", BUILD, "--data", *words]) == 1
        assert expected in capsys.readouterr().err


@pytest.mark.long
def test_a_number_of_ranks_that_fails_leaves_the_others(tmp_path, monkeypatch, capsys):
    # Three ranks are no two on each machine.
    monkeypatch.setenv("BLUEFOG_NODES_PER_MACHINE", "2")
    found = left_behind(tmp_path, 1, *SHORT_NORMS, "--starts", "1", "--ranks", "3,2")
    assert {record["ranks"] for record in found["records"]} == {2}
    assert "BLUEFOG_NODES_PER_MACHINE" in not_run(found, op="batch norm", ranks=3)
    said = capsys.readouterr()
    assert "not run: batch norm at 3 ranks" in said.out and "ended with code" in said.err


@pytest.mark.long
def test_later_starts_that_fail_or_are_interrupted_leave_the_first(tmp_path, monkeypatch):
    for error, code, where in ((FAILED, 1, {"ranks": 1}), (KeyboardInterrupt(), 130,
                                                           {"op": "the rest"})):
        with monkeypatch.context() as patch:
            failing_where(patch, "worker",
                          lambda count, _, error=error: error if count > 1 else None)
            found = left_behind(tmp_path, code, *SHORT_NORMS, "--ranks", "1", "--starts", "3")
        assert [len(record["starts_us"]) for record in found["records"]] == [1, 1, 1]
        assert not_run(found, **where) == ("RuntimeError: why" if code == 1 else "interrupted")


@pytest.mark.long
def test_a_side_that_fails_leaves_the_other(tmp_path, monkeypatch):
    failing_where(monkeypatch, "worker", lambda _, words: FAILED if "ddp_1_mib" in words else None)
    found = left_behind(tmp_path, 1, "ddp", "--ranks", "1", "--data", str(idx_files(tmp_path)),
                        "--batch-size", "2", "--accumulation", "2", "--starts", "1",
                        "--ddp-buckets", "1")
    assert [record["algorithm"] for record in found["records"]] == ["gradient_allreduce"]
    assert not_run(found, algorithm="ddp_1_mib", ranks=1) == "RuntimeError: why"


def test_operations_of_one_number_of_ranks_may_fail(tmp_path, monkeypatch):
    failing_where(monkeypatch, "own_and_mpi", lambda _, words: FAILED if words[0] == 2 else None)
    found = left_behind(tmp_path, 1, "ops", "--ranks", "2,1", "--sizes", "4", "--seconds", "0.01",
                        "--starts", "1", "--without", "gloo")
    assert {record["ranks"] for record in found["records"]} == {1}
    side = "bluefog_cpp, Open MPI and gloo from C++"
    assert not_run(found, peer=side, ranks=2) == "RuntimeError: why"


def test_a_peer_that_cannot_be_imported_is_refused(tmp_path, monkeypatch):
    (tmp_path / "decent_dp.py").write_text("raise ImportError('no such symbol')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    train.refused.cache_clear()
    assert train.refused("decent_dp") == (
        "decent-dp cannot be imported: ImportError: no such symbol")
    train.refused.cache_clear()
    assert train.refused("ddp") == ""
