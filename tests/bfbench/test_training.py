"""How jobs that train are started, and what their workers have in common."""

import argparse

import pytest
import torch

from bfbench import train, training


def prefixes(monkeypatch, *words):
    """The words before Python where the job of an algorithm is started."""
    found = {}
    monkeypatch.setattr(train, "Side", lambda *words, prefix: found.update({words[-1]: prefix}))
    monkeypatch.setattr(train, "options_of_worker", lambda args, model, algorithm: [algorithm])
    parser = argparse.ArgumentParser()
    train.add_arguments(parser)
    for algorithm in ("atc", "ddp", "decent_dp"):
        train.start_side(parser.parse_args(words), None, 2, "cnn", algorithm)
    return found


def test_all_sides_have_one_environment_unless_peers_are_as_under_torchrun(monkeypatch):
    for name in train.MALLOC_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert prefixes(monkeypatch) == {"atc": [], "ddp": [], "decent_dp": []}
    without = ["env", "-u", "MALLOC_TRIM_THRESHOLD_", "-u", "MALLOC_MMAP_THRESHOLD_"]
    assert prefixes(monkeypatch, "--peers-as-torchrun") == {"atc": [], "ddp": without,
                                                            "decent_dp": without}
    # Variables that the user has set stay.
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "1")
    assert prefixes(monkeypatch, "--peers-as-torchrun")["ddp"] == [
        "env", "-u", "MALLOC_MMAP_THRESHOLD_"]


def test_ddp_broadcasts_no_buffers_unless_told(monkeypatch):
    monkeypatch.setattr(torch.nn.parallel, "DistributedDataParallel",
                        lambda model, **options: options)
    usual = {"bucket_cap_mb": 25, "gradient_as_bucket_view": True, "broadcast_buffers": False}
    assert training.with_ddp(None, 25) == usual
    assert training.with_ddp(None, 25, broadcast_buffers=True) == {**usual,
                                                                   "broadcast_buffers": True}


def test_who_is_measured_and_percentiles():
    assert [training.peer_of(name) for name in
            ("ddp", "ddp_alone", "ddp_bluefog", "decent_dp", "atc")] == [
        "torch DDP (gloo)", "torch DDP (gloo)", "torch DDP (bluefog)", "Decent-DP (gloo)",
        "bluefog_cpp"]
    seconds = torch.arange(101, dtype=torch.float64)
    assert training.quantiles_of(seconds) == pytest.approx(
        {"p50": 50.0, "p75": 75.0, "p90": 90.0, "p95": 95.0})
