"""Short runs on 2 ranks, from the command to its files."""

import pathlib

import pytest

from bfbench import contestants, hosts, launch, operations, versions
from bfbench.records import FIGURES
from commands import BUILD, not_run, run
from image_files import idx_files


def test_operations(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("BLUEFOG_DRILL", "kept")
    # 1, 2 and 4 bytes are one element of float32: one measurement.
    found, charts, page = run(tmp_path, "ops", "--ranks", "2", "--sizes", "1,2,4,4098", "--seconds",
                              "0.01")
    said = capsys.readouterr().out
    measured = {(r["peer"], r["op"], r["language"]) for r in found["records"]}
    own = (("bluefog_cpp", "neighbor_allreduce (exponential)"), ("bluefog_cpp", "allreduce"),
           ("bluefog_cpp", "allreduce, shared buffers"))
    gloo = ("gloo", "allreduce")
    by_language = {
        "C++": [*own, ("bluefog_cpp", "win_put"), ("bluefog_cpp", "win_get"),
                ("Open MPI", "MPI_Allreduce"),
                ("Open MPI", "send/receive and average (exponential)"),
                ("memcpy", "memcpy, C library"), ("memcpy", "memcpy, own"),
                ("memcpy", "memcpy, own, around the cache")],
        "Python": [*own, gloo, ("gloo", "isend/irecv and average (exponential)")]}
    from_cpp = [item for item in found["not_run"] if item["peer"] == "gloo from C++"]
    if not from_cpp:
        by_language["C++"] += [gloo, ("gloo", "allreduce by bcube, threads bound"),
                               ("gloo", "send/receive and average (exponential)")]
    for language, expected in by_language.items():
        for peer, op in expected:
            assert (peer, op, language) in measured
            assert op in said and op in page
    # A size that is no multiple of an element's is rounded up.
    assert {r["bytes"] for r in found["records"]} == {4, 4100}
    assert len(found["records"]) == 2 * len(measured)
    for record in found["records"]:
        assert record["ranks"] == 2 and record["dtype"] == "float32"
        if record["peer"] == "bluefog_cpp" and record["op"] == "allreduce" and (
                record["language"] == "Python" or not from_cpp):
            rivals = [r["median_us"] for r in found["records"]
                      if r["peer"] == "gloo" and r["bytes"] == record["bytes"]
                      and r["language"] == record["language"] and "allreduce" in r["op"]]
            assert record["gloo_ratio"] == min(rivals) / record["median_us"]
        assert all(record[name] > 0 for name in (*FIGURES, "cpu_us"))
        assert record["p95_us"] >= record["median_us"] == record["starts_us"][0]
        assert record["algbw_gbps"] == pytest.approx(record["bytes"] / record["median_us"] / 1e3)
        assert len(record["starts_us"]) == 1
    about = found["versions"]
    assert about["command"].startswith("bfbench ops --build")
    assert "--sizes 1,2,4,4098" in about["command"]
    assert about["options"]["sizes"] == [1, 2, 4, 4098] and about["options"]["dtype"] == ["float32"]
    assert about["environment"]["BLUEFOG_DRILL"] == "kept" and "BLUEFOG_DRILL=kept" in page
    assert about["command"] in page and about.get("commit") == (
        versions.words_of("git", "-C", str(launch.ROOT), "describe", "--always", "--dirty") or None)
    assert found["versions"]["torch"] and "GPU" in not_run(found, peer="NCCL")
    assert "one host" in not_run(found, peer="link between hosts")
    assert charts == ["time_2_ranks.png", "time_2_ranks_python.png"]
    assert "tuned" in about["mpi_components"]["coll"] and about["mpi_single_copy"]


@pytest.mark.long  # python.c10d makes these calls
def test_torchs_backends(tmp_path):
    found, *_ = run(tmp_path, "ops", "--backend", "--ranks", "2", "--sizes", "4,4096", "--seconds",
                    "0.01")
    calls = {"all_reduce by torch", "all_gather_into_tensor by torch",
             "reduce_scatter_tensor by torch"}
    own = "all_reduce of the backend's memory by torch"
    for nbytes in (4, 4096):
        records = [r for r in found["records"] if r["bytes"] == nbytes]
        assert {(r["peer"], r["op"]) for r in records} == {
            ("memcpy", "memcpy"), ("bluefog_cpp", own),
            *((peer, call) for peer in ("bluefog_cpp", "gloo") for call in calls)}
        for record in records:
            if record["peer"] == "bluefog_cpp":
                (theirs,) = [r for r in records
                             if r["peer"] == "gloo"
                             and r["op"] == record["op"].replace(own, "all_reduce by torch")]
                assert record["gloo_ratio"] == theirs["median_us"] / record["median_us"]


@pytest.mark.long  # bfbench scale runs between hosts too
def test_operations_between_hosts(tmp_path, capsys):
    reason = hosts.why_none()
    if reason:
        pytest.skip(reason)
    found, charts, page = run(tmp_path, "ops", "--hosts", "2", "--local-ranks", "2", "--rate",
                              "2000",
                              "--sizes", "65536,1048576", "--seconds", "0.01")
    assert not_run(found, peer="Open MPI") == operations.NO_MPI_HERE
    measured = {(r["peer"], r["op"]): r for r in found["records"] if r["bytes"] == 1048576}
    assert not any(r["peer"] == "link" for r in found["records"] if r["bytes"] == 65536)
    link = measured["link", "TCP stream to the next host"]
    assert link["limit_ratio"] is None
    assert not any(peer == "memcpy" for peer, *_ in measured)
    for peer, op in (("bluefog_cpp", "neighbor_allreduce (exponential)"),
                     ("gloo", "isend/irecv and average"),
                     ("bluefog_cpp", "hierarchical_neighbor_allreduce")):
        records = [r for (who, what), r in measured.items() if who == peer and what.startswith(op)]
        assert len(records) == (2 if peer == "gloo" else 1)  # its threads free, and bound
        for record in records:
            assert (record["hosts"], record["ranks"]) == (2, 4)
            assert record["limit_ratio"] is None  # of several ranks a host
    said = capsys.readouterr().out
    assert "4 ranks on 2 hosts" in said and "× link" in said and "× link" in page
    assert found["versions"]["links"] == "2000 Mbit/s from each host"
    assert not any(item.get("peer") == "link between hosts" for item in found["not_run"])
    assert "time_4_ranks.png" in charts


@pytest.mark.long
def test_operations_by_transport_and_dtype(tmp_path):
    found, charts, _ = run(tmp_path, "ops", "--ranks", "2", "--sizes", "4,4096", "--seconds",
                           "0.01",
                           "--dtype", "float32,float64", "--transports", "auto,mpi", "--without",
                           "gloo",
                           "--without", "nccl")
    assert not_run(found, peer="NCCL") == "left out by --without nccl"
    for dtype in ("float32", "float64"):
        ops = [(r["peer"], r["op"]) for r in found["records"]
               if r["dtype"] == dtype and r["bytes"] == 4096]
        assert len(ops) == len(set(ops))
        for peer, op in (("bluefog_cpp", "allreduce, transport auto"), ("memcpy", "memcpy, own"),
                         ("bluefog_cpp", "allreduce, transport mpi"),
                         ("Open MPI", "MPI_Allreduce")):
            assert (peer, op) in ops
        by_op = {r["op"]: r for r in found["records"] if r["dtype"] == dtype and r["bytes"] == 4096}
        own, rival = by_op["allreduce, transport mpi"], by_op["MPI_Allreduce"]
        assert own["fastest_peer"] == "Open MPI MPI_Allreduce"
        assert own["peer_ratio"] == pytest.approx(rival["median_us"] / own["median_us"])
    assert charts == ["time_2_ranks_float32.png", "time_2_ranks_float64.png"]


@pytest.mark.long
def test_the_job_for_devices_runs_on_cpus():
    """Beside gloo; with GPUs it is the one beside NCCL."""
    found = launch.Launcher(pathlib.Path(BUILD)).worker(
        "device_worker", 2, "--sizes", "4,4096", "--dtype", "float32", "--seconds", "0.01",
        "--device",
        "cpu")
    assert [(r["peer"], r["op"], r["bytes"]) for r in found] == [
        (peer, op, bytes_) for bytes_ in (4, 4096) for peer, op in (
            ("bluefog_cpp", "neighbor_allreduce (exponential)"), ("bluefog_cpp", "allreduce"),
            ("gloo", "allreduce"), ("gloo", "send/receive and average (exponential)"),
            ("memcpy", "memcpy"))]
    assert all(record["median_us"] > 0 and record["device"] == "cpu" for record in found)


@pytest.mark.parametrize("names", [
    "none,ddp",
    pytest.param("none,none_wrapped,ddp,ddp_bluefog,decent_dp,gradient_allreduce,atc,awc,hierarchical",
                 marks=pytest.mark.long)])
def test_training(names, tmp_path, capsys):
    expected = set(contestants.with_all_buckets(names.split(","), ["default", "4"]))
    found, charts, page = run(tmp_path, "train", "--models", "cnn", "--ranks", "2", "--batch-size",
                              "2", "--image-size", "8", "--rounds", "1", "--steps", "2",
                              "--bucket-mb", "1", "--static-graph", "--ddp-buckets", "default,4",
                              "--algorithms", names)
    said = capsys.readouterr().out
    by_algorithm = {record["algorithm"]: record for record in found["records"]}
    missing = {item["algorithm"] for item in found["not_run"]}
    assert set(by_algorithm) | missing == expected and not set(by_algorithm) & missing
    assert expected - {"decent_dp", "hierarchical"} <= set(by_algorithm)
    if "hierarchical" in expected:
        assert not_run(found, algorithm="hierarchical").startswith("one machine")
        assert "at least 4" in not_run(found, algorithm="hierarchical")
    assert by_algorithm["none"]["share_of_none"] == 1.0
    assert min(by_algorithm[name]["share_of_ddp"] for name in ("ddp", "ddp_4_mib")) <= 1.0
    assert max(by_algorithm[name]["share_of_ddp"] for name in ("ddp", "ddp_4_mib")) == 1.0
    for name, record in by_algorithm.items():
        assert name in said and name in page
        assert record["img_per_sec"] > 0 and record["parameters"] > 100_000
        assert list(record["sec_per_iter"]) == ["p50", "p75", "p90", "p95"]
        assert record["page_faults_per_step"] >= 0
    assert charts == ["training_0.png"] and "page faults" in page


@pytest.mark.long
def test_batch_norms(tmp_path, capsys):
    found, charts, page = run(tmp_path, "syncbn", "--ranks", "2", "--batches", "4", "--hidden",
                              "3,8",
                              "--seconds", "0.01")
    said = capsys.readouterr().out
    assert [(r["peer"], r["op"]) for r in found["records"]] == [
        (peer, f"batch norm 4 × {hidden}") for hidden in (3, 8)
        for peer in ("bluefog_cpp", "torch's formulas (gloo)", "no communication")]
    for record in found["records"]:
        assert record["peer"] in said and record["median_us"] > 0
        # The peak holds at least the output and the input's gradient.
        assert record["peak_bytes"] >= 2 * record["bytes"]
    assert found["records"][1]["share_of_peer_time"] == 1.0
    assert charts == ["batch_norm_2_ranks.png"] and "4 × 8" in page


@pytest.mark.long
def test_data_parallel_training(tmp_path, capsys):
    found, charts, page = run(tmp_path, "ddp", "--ranks", "2", "--data", str(idx_files(tmp_path)),
                              "--batch-size", "2", "--accumulation", "2", "--epochs", "2",
                              "--ddp-buckets", "1")
    said = capsys.readouterr().out
    torch_ddp, own = found["records"]
    assert [torch_ddp["algorithm"], own["algorithm"]] == ["ddp_1_mib", "gradient_allreduce"]
    # The same data in the same order: the same training.
    assert own["loss"] == pytest.approx(torch_ddp["loss"], rel=1e-4)
    assert own["accuracy"] == torch_ddp["accuracy"]
    for record in found["records"]:
        assert record["algorithm"] in said and record["algorithm"] in page
        assert record["epoch_sec"] > 0 and record["peak_mib"] > 50
        assert 2 < record["grown_mib"] < record["peak_mib"] / 2
    assert charts == ["ddp_0_accuracy.png", "ddp_0_img_per_sec.png", "ddp_0_loss.png",
                      "ddp_0_peak_mib.png"]
