"""How jobs that train are started, and what their workers have in common."""

import argparse

import pytest
import torch

from bfbench import contestants, train, training


def prefixes(monkeypatch, *words):
    """The words before Python where the job of an algorithm is started."""
    found = {}
    monkeypatch.setattr(train, "Side", lambda *words, prefix: found.update({words[-1]: prefix}))
    monkeypatch.setattr(train, "options_of_worker", lambda args, model, algorithm: [algorithm])
    parser = argparse.ArgumentParser()
    train.add_arguments(parser)
    for algorithm in ("atc", "ddp_4_mib", "decent_dp"):
        train.start_side(parser.parse_args(words), None, 2, "cnn", algorithm)
    return found


def test_all_sides_have_one_environment_unless_peers_are_as_under_torchrun(monkeypatch):
    for name in train.MALLOC_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert prefixes(monkeypatch) == {"atc": [], "ddp_4_mib": [], "decent_dp": []}
    without = ["env", "-u", "MALLOC_TRIM_THRESHOLD_", "-u", "MALLOC_MMAP_THRESHOLD_"]
    assert prefixes(monkeypatch, "--peers-as-torchrun") == {"atc": [], "ddp_4_mib": without,
                                                            "decent_dp": without}
    # Variables that the user has set stay.
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "1")
    assert prefixes(monkeypatch, "--peers-as-torchrun")["ddp_4_mib"] == [
        "env", "-u", "MALLOC_MMAP_THRESHOLD_"]


def test_ddp_broadcasts_no_buffers_unless_told(monkeypatch):
    monkeypatch.setattr(torch.nn.parallel, "DistributedDataParallel",
                        lambda model, **options: options)
    usual = {"bucket_cap_mb": None, "gradient_as_bucket_view": True, "broadcast_buffers": False}
    for name in ("ddp", "ddp_alone", "ddp_bluefog"):  # torch then has a small first bucket
        assert training.with_ddp(None, name) == usual
    assert training.with_ddp(None, "ddp_4_mib", broadcast_buffers=True) == {
        **usual, "bucket_cap_mb": 4, "broadcast_buffers": True}


def test_who_is_measured_and_percentiles():
    assert [contestants.peer_of(name) for name in
            ("ddp", "ddp_25_mib", "ddp_alone", "ddp_bluefog", "decent_dp", "atc")] == [
        *3 * ["torch DDP (gloo)"], "torch DDP (bluefog)", "Decent-DP (gloo)", "bluefog_cpp"]
    seconds = torch.arange(101, dtype=torch.float64)
    assert training.quantiles_of(seconds) == pytest.approx(
        {"p50": 50.0, "p75": 75.0, "p90": 90.0, "p95": 95.0})


def test_no_communication_is_a_plain_loop_of_torchs():
    """The optimizer is the user's own, and this project's wrapper stands beside it."""
    from bfbench.workers import train_worker
    model, optimizer = object(), object()
    assert train_worker.CONTESTANTS["none"](model, optimizer, None) == (model, optimizer)
    assert {"none", "none_wrapped"} < set(train.ALGORITHMS)


def test_ddp_is_trained_with_each_size_of_buckets():
    assert contestants.with_all_buckets(["none", "ddp", "ddp_bluefog"], ["default", "1", "25"]) == [
        "none", "ddp", "ddp_1_mib", "ddp_25_mib", "ddp_bluefog"]
    parser = argparse.ArgumentParser()
    train.add_arguments(parser)
    assert parser.parse_args([]).ddp_buckets == ["default", "1", "4", "25"]
    assert parser.parse_args([]).starts == 7
