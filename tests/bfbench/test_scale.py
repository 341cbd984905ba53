"""Training on hosts with limited links: the search for a rate, the model, and a short run."""

import argparse
import json
import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from bfbench import hosts, scale, scale_model
from bfbench.__main__ import main
from bfbench.launch import LaunchFailed
from bfbench.link_rate import find_rate
from bfbench.reports import scale_report
from bfbench.scale_model import Costs
from bfbench.workers import scale_worker
from bfbench.workers.scale_ways import baseline_of, ways_of
from bfbench.workers.scale_worker import add_shares
from bfbench.workers.sleeping_model import SleepingModel, grouped
from records_of import on_hosts

BUILD = os.environ["BFBENCH_BUILD"]


def test_rates_are_searched_from_below_and_from_above():
    def share(rate):
        return rate / (rate + 50)  # 0.66 at 97
    for first in (10, 97, 1000):
        found = find_rate(share, 0.66, first)
        assert abs(found.share - 0.66) <= 0.01 and found.share == share(found.rate)
        assert found.probes[0] == (first, share(first))


def test_the_rate_is_sought_for_ddp_at_its_best(monkeypatch, capsys):
    """Larger buckets are better on slow links here, and smaller ones on fast links."""
    rate = [0.0]
    speeds = {"ddp_alone": lambda: 100.0, "ddp": lambda: rate[0] / 2,
              "ddp_4_mib": lambda: 60 + rate[0] / 50}

    class Turns:
        def __init__(self, name):
            self.way = argparse.Namespace(algorithm=name)

        def forget(self):
            pass

        def take(self, steps):
            pass

    monkeypatch.setattr(scale_worker, "img_per_sec",
                        lambda turns, _: (speeds[turns.way.algorithm](), []))
    monkeypatch.setattr(scale_worker.hosts, "set_rate", lambda mbit: rate.__setitem__(0, mbit))
    for name, value in (("local_rank", 0), ("rank", 0), ("machine_size", 4), ("barrier", None)):
        monkeypatch.setattr(scale_worker.bf, name, lambda value=value: value)
    scale_worker.search([Turns(name) for name in speeds],
                        argparse.Namespace(rounds=1, steps=1, search_share=0.61, rate=40.0))
    found = json.loads(capsys.readouterr().out)
    assert found["rate_mbit"] == 40.0 and found["fastest_ddp"] == "ddp_4_mib"
    assert found["share_of_ddp_alone"] == pytest.approx(0.608)


def test_a_search_that_never_meets_ends_with_the_nearest():
    found = find_rate(lambda rate: 0.9 if rate > 100 else 0.2, 0.66, 80, most_probes=6)
    assert len(found.probes) == 6 and found.share == 0.9 and found.rate > 100


def test_gradients_that_come_together_are_one_layer():
    assert grouped([(0.0005, 3), (0.003, 2), (0.0035, 1), (0.01, 0)], 0.02) == [
        (pytest.approx(0.003), [3, 2]), (pytest.approx(0.017), [1, 0])]
    assert grouped([(0.001, 0)], 0.001) == [(0.001, [0])]


def test_a_sleeping_model_takes_its_time_and_has_all_gradients():
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1))
    sleeping = SleepingModel(model, {"forward_sec": 0.02, "backward_sec": 0.05,
                                     "ready": [(0.01, 2), (0.02, 3), (0.03, 0), (0.03, 1)]})
    start = time.perf_counter()
    sleeping(torch.zeros(1)).backward()
    assert time.perf_counter() - start >= 0.07
    assert all(p.grad.shape == p.shape and p.grad.any() for p in model.parameters())


PROFILE = {"forward_sec": 0.1, "backward_sec": 0.3, "ready": [(0.1, 2), (0.2, 1), (0.3, 0)],
           "bytes": [100, 200, 300]}


def linear(family, ranks, message_bytes, alpha_us, beta):
    """A step takes a second per 1,000 bytes, an all-reduce twice that."""
    assert alpha_us == 5.0 and beta == 2.0
    degree = {"one-peer-exponential": 1, "exponential": (ranks - 1).bit_length(), "ring": 0}[family]
    return {"step_sec": degree * message_bytes / 1000, "allreduce_sec": message_bytes / 500}


def test_what_the_model_says_of_a_step():
    def seconds(algorithm, graph="", ranks=4, compute=0.4):
        return scale_model.step_sec(algorithm, graph, ranks, ranks // 2,
                                    Costs(5.0, 2.0, compute, PROFILE, 1 << 20), linear)
    assert seconds("atc", "one_peer") == pytest.approx(0.4 + 0.6)
    assert seconds("atc", "exponential", 1024) == pytest.approx(0.4 + 6.0)
    assert seconds("awc", "one_peer") == 0.6 and seconds("awc", "one_peer", compute=5.0) == 5.0
    # All gradients are in one bucket, which waits for the last one.
    assert seconds("atc_in_backward", "one_peer") == seconds("atc", "one_peer")
    assert seconds("hierarchical", "machines", 8) == pytest.approx(0.4 + 2 * 0.6)
    # All gradients in one bucket, which waits for the last.
    assert seconds("ddp") == seconds("ddp_4_mib") == pytest.approx(0.4 + 1.2)
    assert seconds("gradient_allreduce") == seconds("ddp")


def test_the_model_gives_ddp_the_buckets_that_it_has():
    """Gradients of 1 MiB each, one every 0.1 s of the backward pass, reduced at 5 MiB a second."""
    profile = {"forward_sec": 0.0, "backward_sec": 0.8,
               "ready": [(0.1 * (8 - place), place) for place in reversed(range(8))],
               "bytes": [scale_model.MIB] * 8}
    costs = Costs(5.0, 2.0, 0.8, profile, 25 * scale_model.MIB)

    def seconds(algorithm):
        return scale_model.step_sec(
            algorithm, "", 4, 4, costs,
            lambda family, ranks, size, *_: {"allreduce_sec": size / (5 * scale_model.MIB)})

    # Where a program says 25, all waits for the last gradient; torch sends the first one early.
    assert seconds("ddp_25_mib") == pytest.approx(0.8 + 1.6)
    assert seconds("ddp") == pytest.approx(0.8 + 1.4)
    assert seconds("ddp_4_mib") == pytest.approx(0.4 + 0.8 + 0.8)
    assert seconds("ddp_1_mib") == pytest.approx(0.1 + 1.6)


def test_buckets_are_reduced_one_after_the_other_once_they_are_full():
    found = scale_model.buckets(PROFILE, 300, 1000)
    assert found == [(pytest.approx(0.2), 300), (pytest.approx(0.4), 300)]
    # The first one is on its way until 0.5, the second then until 0.8.
    assert scale_model.step_sec_beside_backward(
        0.4, PROFILE, found, lambda size: size / 1000) == pytest.approx(0.8)
    # A step of twice the time, local step included, stretches all of it.
    assert scale_model.step_sec_beside_backward(
        0.8, PROFILE, found, lambda size: size / 1000) == pytest.approx(1.1)


def test_measured_points_are_compared_and_the_curve_goes_on_to_1024():
    records = [on_hosts("none", ranks=n, rate=rate) for n, rate in ((2, 15.0), (4, 40.0))] + [
        on_hosts("awc", graph="one_peer", ranks=n, rate=5.0 * n) for n in (2, 4)]
    networks = [{"alpha_us": a, "beta_ns_per_byte": b} for a, b in ((5.0, 2.0), (6.0, 9.0),
                                                                     (9.0, 1.0))]
    costs = scale_model.costs_of(records, networks, PROFILE, 1 << 20)
    assert costs.alpha_us == 5.0 and costs.compute_sec == pytest.approx(0.8)  # 8 images / 10
    made = scale_model.simulated_records(records, costs, linear)
    assert [r["ranks"] for r in made] == [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]
    assert all(r["simulated"] and r["efficiency"] == 1.0 and r["algorithm"] == "awc" for r in made)
    assert made[-1]["img_per_sec"] == pytest.approx(10240)
    assert records[2]["simulated_difference"] == pytest.approx(1.0)


def test_a_model_that_misses_what_was_measured_is_doubted():
    near, far, farther = (on_hosts("awc", graph, ranks=n, simulated_difference=difference)
                          for graph, n, difference in (
                              ("one_peer", 2, 0.15), ("exponential", 2, -0.16),
                              ("exponential", 4, 0.21)))
    ((title, _),) = scale_report.titled_rows([near])
    assert "warning" not in title
    ((title, _),) = scale_report.titled_rows([near, far, farther])
    assert ("warning: the model lies more than 15% from what was measured of awc, exponential "
            "(+21% at 4 ranks): do not rely") in title


def test_bftopo_answers_the_model():
    simulate = scale_model.bftopo_at(scale.pathlib.Path(BUILD))
    found = simulate("exponential", 8, 1000, 5.0, 2.0)
    assert found["step_sec"] == pytest.approx(3 * (5e-6 + 2e-6))
    assert found["allreduce_sec"] == pytest.approx(14 * 5e-6 + 14 / 8 * 2e-6)


def test_the_rate_is_sought_at_the_middle():
    def chosen(*words):
        parser = scale_parser()
        return scale.rate_hosts(parser.parse_args(words))
    assert chosen() == 4 and chosen("--hosts", "2,6,8") == 6 and chosen("--rate-hosts", "3") == 3


def scale_parser():
    parser = argparse.ArgumentParser()
    scale.add_arguments(parser)
    return parser


@pytest.mark.parametrize("words, expected", (
    ("--hosts 1,4", "from 2 to 16, found '1' in '1,4'"), ("--rate fast", "found 'fast'"),
    ("--rate 0.5", "from 1 to 100000, found '0.5'"), ("--share 1", "from 0.01 to 0.99, found '1'"),
    ("--compute wait", "out of sleep, real"),
    ("--algorithms none", "out of ddp, gradient_allreduce"),
    ("--graphs ring", "out of one_peer, exponential")))
def test_refused_words(words, expected, capsys):
    with pytest.raises(SystemExit):
        main(["scale", *words.split()])
    assert expected in capsys.readouterr().err


def test_training_without_communication_is_always_measured():
    assert ways_of(["ddp", "ddp_4_mib"], ["one_peer"]) == [
        ("ddp_alone", ""), ("none", ""), ("none_wrapped", ""), ("ddp", "all ranks"),
        ("ddp_4_mib", "all ranks")]
    assert baseline_of("ddp_4_mib") == "ddp_alone" and baseline_of("none_wrapped") == "none"
    records = add_shares([on_hosts("ddp_alone", rate=8.0, cpu_sec_per_step=1.0),
                          on_hosts("none", rate=20.0, cpu_sec_per_step=1.0),
                          on_hosts("ddp", rate=6.0, cpu_sec_per_step=1.5)])
    assert [r["efficiency"] for r in records] == [1.0, 1.0, 0.75]
    assert records[2]["communication_cpu_sec"] == 0.5


def test_hierarchical_alone_of_one_rank_a_host_is_not_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(scale, "measure", lambda *_: pytest.fail("measured"))
    monkeypatch.setattr(hosts, "why_none", lambda: "")
    file = tmp_path / "records.json"
    assert main(["scale", "--build", BUILD, "--json", str(file), "--algorithms",
                 "hierarchical"]) == 1
    assert f"not run: hierarchical: {scale.FLAT_HERE}" in capsys.readouterr().out
    assert json.loads(file.read_text())["records"] == []


def test_a_machine_without_hosts_says_so(tmp_path, monkeypatch, capsys):
    script = tmp_path / "netns.sh"
    script.write_text("#!/bin/sh\necho 'SKIPPED: netns.sh needs root'\nexit 77\n")
    script.chmod(0o755)
    monkeypatch.setattr(hosts, "NETNS", script)
    file = tmp_path / "records.json"
    assert main(["scale", "--build", BUILD, "--json", str(file), "--algorithms", "ddp,awc"]) == 0
    assert "not run: awc: no hosts in network namespaces: netns.sh needs root" in (
        capsys.readouterr().out)
    found = json.loads(file.read_text())
    assert found["records"] == [] and [r["algorithm"] for r in found["not_run"]] == ["ddp", "awc"]


needs_hosts = pytest.mark.skipif(bool(hosts.why_none()), reason=hosts.why_none())


@needs_hosts
def test_hosts_end_with_whoever_started_them():
    program = ("import sys; sys.path.insert(0, sys.argv[1]); import pathlib; "
               "from bfbench.hosts import HostLauncher; HostLauncher(pathlib.Path(sys.argv[2]), 2, "
               "1, 100).run(2, 'sleep', '4321')")
    process = subprocess.Popen([sys.executable, "-c", program, str(hosts.ROOT / "benchmarks"),
                                BUILD])
    try:
        until(lambda: ranks_asleep() == 2, "two ranks")
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    until(lambda: ranks_asleep() == 0, "their end")


def ranks_asleep():
    found = subprocess.run(["pgrep", "-x", "-f", "sleep 4321"], check=False, capture_output=True,
                           text=True)
    return len(found.stdout.split())


def until(holds, what):
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, f"waited for {what}"
        time.sleep(0.1)


@needs_hosts
def test_a_run(tmp_path, capsys):
    file, folder = tmp_path / "records.json", tmp_path / "report"
    assert main(["scale", "--build", BUILD, "--json", str(file), "--report", str(folder), "--hosts",
                 "2", "--model", "cnn", "--batch-size", "2", "--rate", "200", "--rounds", "1",
                 "--steps", "2", "--graphs", "one_peer", "--starts", "1", "--ddp-buckets",
                 "default,4"]) == 0
    said = capsys.readouterr().out
    found = json.loads(file.read_text())
    measured = [r for r in found["records"] if not r["simulated"]]
    assert [(r["algorithm"], r["graph"]) for r in measured] == [
        ("ddp_alone", ""), ("none", ""), ("none_wrapped", ""), ("ddp", "all ranks"),
        ("ddp_4_mib", "all ranks"), ("gradient_allreduce", "all ranks"),
        ("atc", "one_peer"), ("atc_in_backward", "one_peer"), ("awc", "one_peer")]
    for record in measured:
        assert record["hosts"] == record["ranks"] == 2 and record["emulated"]
        assert record["rate_mbit"] == 200 and record["algorithm"] in said
        assert record["efficiency"] > 0 and record["sec_per_iter"]["p50"] > 0
    assert {r["ranks"] for r in found["records"] if r["simulated"]} >= {2, 1024}
    assert all("simulated_difference" in r for r in measured[3:])
    assert "emulated compute (slept)" in said and "simulated" in said
    assert [r["not_run"] for r in found["not_run"]] == [scale.FLAT_HERE]
    assert sorted(path.name for path in folder.iterdir()) == [
        "report.html", "scale_0_measured.png", "scale_0_model.png"]
    assert main(["diff", str(file), str(file)]) == 0


def test_hosts_that_fail_leave_the_others(tmp_path, monkeypatch, capsys):
    """Also where nobody answers the search for a rate."""
    def job(self, count, compute, mbit, algorithms, *options):
        if count == 4 or compute == "real":
            raise LaunchFailed("a long story", f"RuntimeError: {count}, {compute}")
        return [on_hosts(name, ranks=count, cpu_sec_per_step=1.0, communication_cpu_sec=0.0)
                for name in ("none", "ddp")] + [
            {"alpha_us": 5.0, "beta_ns_per_byte": 2.0, "hosts": count}]
    monkeypatch.setattr(scale.Measurement, "job", job)
    monkeypatch.setattr(scale.Measurement, "profile", lambda self: PROFILE)
    monkeypatch.setattr(hosts, "why_none", lambda: "")
    file = tmp_path / "records.json"
    words = ["scale", "--build", BUILD, "--json", str(file), "--algorithms", "ddp", "--hosts",
             "2,4"]
    assert main([*words, "--compute", "sleep,real", "--rate", "100"]) == 1
    found = json.loads(file.read_text())
    assert {r["ranks"] for r in found["records"] if not r["simulated"]} == {2}
    assert any(r["simulated"] for r in found["records"])
    assert [r["not_run"] for r in found["not_run"]] == [
        f"RuntimeError: {count}, {compute}" for count, compute in ((4, "sleep"), (2, "real"),
                                                                  (4, "real"))]
    assert main([*words, "--compute", "real"]) == 1
    said = capsys.readouterr().out
    assert "not run: search for a rate, compute: real: RuntimeError: 4, real" in said
