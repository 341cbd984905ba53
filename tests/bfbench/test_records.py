"""Records of several starts, joined."""

import pytest
import torch

from bfbench.records import (
    LEAST_LINK_BYTES,
    add_peer_ratios,
    add_shares,
    merge_not_run,
    merge_starts,
    merge_train_starts,
    with_link_as_limit,
    with_one_memcpy,
)
from bfbench.workers import gloo_worker
from records_of import operation, training


def test_medians_over_starts_and_every_start():
    (merged,) = merge_starts([[operation(median=m)] for m in (30.0, 10.0, 20.0)])
    assert merged["median_us"] == 20.0 and merged["p95_us"] == 40.0
    assert merged["starts_us"] == [30.0, 10.0, 20.0]
    assert merged["starts_p95_us"] == [60.0, 20.0, 40.0]


def test_measurements_are_apart_and_may_be_missing_in_a_start():
    small, large = operation(), operation(bytes=2048)
    merged = merge_starts([[small, large], [small], [{"peer": "gloo", "not_run": "why"}]])
    assert [(r["bytes"], len(r["starts_us"])) for r in merged] == [(1024, 2), (2048, 1)]


def test_what_did_not_run_is_said_once_for_all_sizes_and_starts():
    mpi = [{"peer": "Open MPI", "bytes": size, "not_run": "no float16"} for size in (4, 8)]
    gloo = {"peer": "gloo", "ranks": 2, "not_run": "no network"}
    assert merge_not_run([[operation(), *mpi], [*mpi, gloo]]) == [
        {"peer": "Open MPI", "not_run": "no float16"}, gloo]


def test_peers_are_compared_by_kind():
    own, average = operation(), operation(op="neighbor_allreduce (ring)", median=5.0)
    records = add_peer_ratios([
        own, average, operation("gloo", "allreduce", 50.0), operation("memcpy", "memcpy", 0.1),
        operation("gloo", "isend/irecv and average (exponential)", 40.0),
        operation("Open MPI", "MPI_Allreduce", 5.0),
        operation("Open MPI", "MPI_Neighbor_alltoallv and average (exponential)", 15.0),
        operation("Open MPI", "MPI_Allreduce", 1.0, bytes=4)])
    assert records[0]["peer_ratio"] == 0.5 and records[0]["gloo_ratio"] == 5.0
    assert records[0]["fastest_peer"] == "Open MPI MPI_Allreduce"
    # An average with neighbours has two rivals of gloo: its all-reduce averages as well.
    assert records[1]["peer_ratio"] == 3.0 and records[1]["gloo_ratio"] == 8.0
    assert "peer_ratio" not in records[2] and "peer_ratio" not in records[3]


def test_averages_are_compared_with_as_many_neighbours():
    own = [operation(op=f"neighbor_allreduce ({graph})", ranks=8)
           for graph in ("exponential", "one-peer", "ring")]
    add_peer_ratios([*own, operation("gloo", "allreduce", 60.0, ranks=8),
                     operation("gloo", "isend/irecv and average (exponential), threads bound", 30.0,
                               ranks=8)])
    assert own[0]["peer_ratio"] == 3.0 and own[0]["gloo_ratio"] == 3.0
    for fewer in own[1:]:  # gloo's exact mean of 8 ranks does more
        assert "peer_ratio" not in fewer and "gloo_ratio" not in fewer
    ring = operation(op="neighbor_allreduce (ring)", ranks=3)
    add_peer_ratios([ring, operation("gloo", "allreduce", 60.0, ranks=3)])
    assert ring["gloo_ratio"] == 6.0  # it hears all others too


def test_streams_are_the_limit_of_one_rank_a_host():
    def ratios(ranks, with_stream=True):
        records = [operation(median=30.0, ranks=ranks, hosts=2),
                   operation("memcpy", ranks=ranks, hosts=2)]
        if with_stream:
            records.append(operation("link", "TCP stream", 20.0, ranks=ranks, hosts=2))
        return [(record["peer"], record["limit_ratio"]) for record in with_link_as_limit(records)]

    assert ratios(2) == [("bluefog_cpp", 1.5), ("link", 1.0)]
    assert ratios(4) == [("bluefog_cpp", None), ("link", None)]
    assert ratios(2, with_stream=False) == [("bluefog_cpp", None)]


def test_short_messages_are_not_compared_with_streams():
    like = torch.empty(1).expand(LEAST_LINK_BYTES // 4 - 1)
    assert gloo_worker.limits(0, 2, 2, like) == []


def test_the_fastest_memcpy_is_the_limit_of_all_whatever_they_are_called_from():
    own = operation(limit_ratio=5.0)
    python = operation("gloo", "allreduce", 40.0, language="Python", limit_ratio=None)
    with_one_memcpy([own, python, operation("memcpy", "memcpy, C library", 2.0),
                     operation("memcpy", "memcpy, own", 4.0),
                     operation("memcpy", "memcpy, own", 0.1, bytes=4)])
    assert own["limit_ratio"] == 5.0 and python["limit_ratio"] == 20.0


def test_languages_are_compared_for_themselves():
    records = add_peer_ratios([
        operation(median=1.0), operation(median=4.0, language="Python"),
        operation("gloo", "allreduce", 20.0),
        operation("gloo", "allreduce", 160.0, language="Python")])
    assert [record["gloo_ratio"] for record in records[:2]] == [20.0, 40.0]


def test_bandwidths_are_those_of_the_median():
    starts = [[operation(median=m, bytes=1000, algbw_gbps=1.0 / m, busbw_gbps=1.5 / m)]
              for m in (10.0, 40.0)]
    (merged,) = merge_starts(starts)
    assert merged["algbw_gbps"] == pytest.approx(1000 / 25.0 * 1e-3)
    assert merged["busbw_gbps"] == pytest.approx(1.5 * merged["algbw_gbps"])


def test_a_rank_alone_has_no_rival():
    own, _ = add_peer_ratios([operation(ranks=1, op="neighbor_allreduce (exponential)"),
                              operation("gloo", "isend/irecv and average (exponential)", 50.0,
                                        ranks=1)])
    assert "peer_ratio" not in own and "gloo_ratio" not in own


def test_windows_have_no_rival():
    put = operation(op="win_put")
    add_peer_ratios([put, operation("gloo", "allreduce")])
    assert "peer_ratio" not in put and "gloo_ratio" not in put


def test_shares_are_those_of_the_medians():
    starts = [[training("none", 100.0), training("ddp", 50.0), training("atc", 90.0)],
              [training("none", 200.0), training("ddp", 80.0), training("atc", 160.0)],
              [training("none", 100.0), training("ddp", 50.0), training("atc", 95.0)]]
    atc = add_shares(merge_train_starts(starts))[2]
    assert atc["share_of_none"] == 0.95 and atc["share_of_ddp"] == pytest.approx(1.9)
    assert atc["img_per_sec"] == 95.0 and atc["starts_img_per_sec"] == [90.0, 160.0, 95.0]
    assert atc["sec_per_iter"]["p50"] == 16 / 95.0


def test_ddp_counts_with_the_buckets_that_it_is_fastest_with():
    merged = add_shares(merge_train_starts([[
        training("ddp", 40.0), training("ddp_4_mib", 50.0), training("ddp_25_mib", 45.0),
        training("ddp_bluefog", 70.0), training("atc", 100.0),
        training("ddp_1_mib", 90.0, ranks=4)]]))
    assert [record["share_of_ddp"] for record in merged] == [0.8, 1.0, 0.9, 1.4, 2.0, 1.0]


def test_training_without_none_has_no_share():
    (merged,) = add_shares(merge_train_starts(
        [[training("atc"), {"algorithm": "ddp", "not_run": "why"}]]))
    assert "share_of_none" not in merged and "share_of_ddp" not in merged
