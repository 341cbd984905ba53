"""Shards, means over seeds, and a short run."""

import argparse
import json
import os
import subprocess
import sys

import numpy
import pytest

from bfbench.__main__ import main
from bfbench.algorithms import algorithm_list, registered, row_named
from bfbench.converge import PRESETS, fill, merge_seeds, runs_of, shards_list, topology_list
from bfbench.shards import rank_shares
from image_files import idx_files

LABELS = numpy.arange(1000) % 10


def test_iid_shares_are_all_images_in_equal_parts():
    shares = rank_shares(LABELS, 8, "iid", 1)
    assert sorted(numpy.concatenate(shares)) == list(range(1000))
    assert {len(share) for share in shares} == {125}
    assert any(first.tolist() != second.tolist() for first, second in
               zip(shares, rank_shares(LABELS, 8, "iid", 2)))


def test_dirichlet_shares_are_all_images_and_the_more_uneven_the_smaller_alpha():
    def largest_part(alpha):
        """The largest share of a class that one rank has, on average over classes."""
        shares = rank_shares(LABELS, 8, alpha, 1)
        assert sorted(numpy.concatenate(shares)) == list(range(1000))
        return numpy.mean([max((LABELS[share] == label).sum() for share in shares) / 100
                           for label in range(10)])
    assert largest_part("1000") < 0.2 < 0.5 < largest_part("0.1")


def test_no_rank_goes_without():
    assert all(len(share) for share in rank_shares(LABELS[:4], 8, "0.01", 1))


def test_every_registered_name_is_taken_and_each_algorithm_once():
    parse = algorithm_list()
    for row in registered():
        for name in (row.name, *row.aliases):
            assert parse(f"{name},{row.name},{name.replace('_', '-')}") == [row.name]
    assert parse("atc,exact-diffusion,ceca,decent_lam,qg-dsgdm") == [
        "adapt_then_combine", "exact_diffusion", "ceca", "decent_lam", "quasi_global_momentum"]


def test_words_of_a_command_stand_for_the_algorithms_of_their_names():
    parse = algorithm_list(("none", "decent_dp", "atc"))
    assert parse("adapt-then-combine,empty,decent-dp,extra") == ["atc", "none", "decent_dp",
                                                                 "extra"]
    alone = algorithm_list(("ddp", "atc"), has_others=False)
    assert alone("ddp,adapt_then_combine") == ["ddp", "atc"]
    with pytest.raises(argparse.ArgumentTypeError, match="out of ddp, atc; found 'extra'$"):
        alone("atc,extra")


def test_none_of_what_was_asked_for_is_measured(tmp_path, capsys):
    assert main(["converge", "--build", os.environ["BFBENCH_BUILD"], "--data",
                 str(idx_files(tmp_path)), "--algorithms", "win_put,pull-get"]) == 1
    assert "not run: pull_get: no rank waits" in capsys.readouterr().out


def test_algorithms_that_take_no_graph_run_once_for_all():
    args = argparse.Namespace(
        shards=["iid"], topologies=["ring", "full"],
        algorithms=["none", "gradient_allreduce", "local_sgd", "ceca", "atc", "win_put"])
    assert [run[:2] for run in runs_of(args, 1)] == [
        ("none", None), ("gradient_allreduce", None), ("local_sgd", None), ("ceca", None),
        ("adapt_then_combine", "ring"), ("adapt_then_combine", "full")]


def test_words():
    assert shards_list("0.1,iid,0.1") == ["0.1", "iid"]


@pytest.mark.parametrize("words, expected", (
    ("--shards iid,0", "found '0'"), ("--shards some", "found 'some'"),
    ("--topologies star", "out of ring, exponential, one_peer, full"),
    ("--seeds -1", "found '-1'"),
    ("--algorithms atc,exat_diffusion", "ceca, choco, power_gossip, local_sgd, slowmo, diloco"),
    ("--algorithms atc,exat_diffusion",
     "found 'exat_diffusion'; did you mean exact_diffusion?")))
def test_refused_words(words, expected, capsys):
    with pytest.raises(SystemExit):
        main(["converge", *words.split()])
    assert expected in capsys.readouterr().err


def test_means_over_seeds():
    def record(seed, accuracy):
        return {"algorithm": "atc", "topology": "ring", "shards": "iid", "ranks": 2, "steps": 3,
                "batch_size": 4, "data": "x", "seed": seed, "accuracy": accuracy,
                "worst_accuracy": 0.5, "mean_model_accuracy": 0.5, "consensus_distance": 1.0}
    (merged,) = merge_seeds([record(1, 0.25), record(2, 0.75)])
    assert merged["accuracy"] == 0.5 and merged["accuracy_by_seed"] == [0.25, 0.75]
    assert merged["accuracy_deviation"] == pytest.approx(0.125 ** 0.5)
    assert merge_seeds([record(1, 0.25)])[0]["accuracy_deviation"] is None


def test_runs_that_diverge_are_said_to(tmp_path, capsys):
    file, folder = tmp_path / "records.json", tmp_path / "report"
    assert main(["converge", "--build", os.environ["BFBENCH_BUILD"], "--json", str(file),
                 "--report", str(folder), "--data", str(idx_files(tmp_path)), "--ranks", "2",
                 "--seeds", "1,2", "--steps", "4", "--batch-size", "4", "--topologies", "ring",
                 "--shards", "iid", "--algorithms", "atc,local_sgd", "--lr", "1e30"]) == 0
    text = file.read_text()
    assert "NaN" not in text
    for record in json.loads(text)["records"]:
        assert record["accuracy"] is None and record["consensus_distance_by_seed"] == [None, None]
    assert "diverged" in capsys.readouterr().out
    assert "diverged" in (folder / "report.html").read_text()


def test_a_run(tmp_path, capsys):
    file, folder = tmp_path / "records.json", tmp_path / "report"
    assert main(["converge", "--build", os.environ["BFBENCH_BUILD"], "--json", str(file),
                 "--report",
                 str(folder), "--data", str(idx_files(tmp_path)), "--ranks", "2", "--seeds", "1",
                 "--steps", "2", "--batch-size", "4", "--topologies", "one_peer,ring", "--shards",
                 "0.1"]) == 0
    said = capsys.readouterr().out
    written = json.loads(file.read_text())
    found = {(r["algorithm"], r["topology"]): r for r in written["records"]}
    alone = {("none", "all ranks"), ("gradient_allreduce", "all ranks"), ("local_sgd", "all ranks"),
             ("diloco", "all ranks"), ("streaming_diloco", "all ranks"),
             ("sparse_loco", "all ranks"), ("ceca", "its own")}
    assert set(found) == alone | {
        (algorithm, topology)
        for algorithm in ("adapt_then_combine", "adapt_with_combine", "push_sum", "extra",
                          "exact_diffusion", "d2", "gradient_tracking", "gossip_pga", "choco",
                          "power_gossip", "slowmo", "gossip_diloco", "noloco", "accelerated_gossip",
                          "dmsgd", "decent_lam", "quasi_global_momentum")
        for topology in ("one_peer", "ring")}
    # Each registered algorithm has a figure, or is said with the reason.
    left_out = {item["algorithm"] for item in written["not_run"]}
    assert left_out == {row.name for row in registered()} - {algorithm for algorithm, _ in found}
    assert left_out == {row.name for row in registered() if row.uses_windows}
    assert "not run: win_put: no rank waits for another" in said
    # Every graph of 2 ranks is complete: averages end at the mean, AWC's with `finish`.
    for (algorithm, topology), record in found.items():
        assert algorithm in said and topology in said and 0 <= record["accuracy"] <= 1
        # The mean of W, not of (I + W) / 2, nor of codes, nor of a fragment, nor beyond it.
        ends_at_mean = algorithm not in ("none", "extra", "exact_diffusion", "choco",
                                         "power_gossip", "streaming_diloco", "accelerated_gossip")
        assert (record["consensus_distance"] < 1e-4) == ends_at_mean
    assert sorted(path.name for path in folder.iterdir()) == ["accuracy_0.png", "report.html"]
    assert main(["diff", str(file), str(file)]) == 1
    assert (f"{file}: records of bfbench converge and traffic are not compared"
            in capsys.readouterr().err)


@pytest.mark.long
def test_a_graph_on_which_an_algorithm_does_not_converge_is_listed(tmp_path, capsys):
    file = tmp_path / "records.json"
    assert main(["converge", "--build", os.environ["BFBENCH_BUILD"], "--json", str(file), "--data",
                 str(idx_files(tmp_path)), "--ranks", "4", "--seeds", "1,2", "--steps", "2",
                 "--batch-size", "4", "--topologies", "one_peer,full", "--shards", "iid",
                 "--algorithms", "d2"]) == 0
    found = json.loads(file.read_text())
    assert [(r["algorithm"], r["topology"]) for r in found["records"]] == [("d2", "full")]
    (refused,) = found["not_run"]  # once for both seeds
    assert (refused["algorithm"], refused["topology"], refused["ranks"]) == ("d2", "one_peer", 4)
    assert "d2 expects the same W in every round" in refused["not_run"]
    assert "not run: d2 one_peer at 4 ranks: " in capsys.readouterr().out


OWN = """
import bluefog_cpp.torch as bf
from bluefog_cpp import topology_util

@bf.register_algorithm
class Mine(bf.Algorithm):
    name = "mine"
    mixing = bf.Mixing("rows and columns", is_symmetric=True)

    def step(self, round, buckets):
        for bucket in buckets:
            self.local_step(bucket)
            self.average(bucket)

@bf.register_schedule
class OneWay(bf.Schedule):
    name = "one-way"
    period_steps = 2

    def graph(self, step):
        return topology_util.RingGraph(self.size, connect_style=1 + step)
"""


def bfbench(*words):
    return subprocess.run([sys.executable, "-m", "bfbench", *map(str, words)], check=False,
                          capture_output=True, text=True)


def test_algorithms_and_schedules_of_a_file(tmp_path):
    own, file = tmp_path / "own.py", tmp_path / "records.json"
    own.write_text(OWN)
    words = ["converge", "--build", os.environ["BFBENCH_BUILD"], "--load", own, "--data",
             idx_files(tmp_path), "--ranks", "3", "--seeds", "1", "--steps", "2", "--batch-size",
             "4", "--shards", "iid", "--json", file]
    job = bfbench(*words, "--algorithms", "mine,atc", "--topologies", "ring,one-way")
    assert job.returncode == 0, job.stderr
    found = json.loads(file.read_text())
    records = {(r["algorithm"], r["topology"]): r for r in found["records"]}
    assert set(records) == {("mine", "ring"), ("adapt_then_combine", "ring"),
                            ("adapt_then_combine", "one-way")}
    assert records["mine", "ring"]["consensus_distance"] == \
        records["adapt_then_combine", "ring"]["consensus_distance"]
    (refused,) = found["not_run"]
    assert "mine expects a symmetric W" in refused["not_run"]


def test_files_that_cannot_be_loaded(tmp_path):
    own = tmp_path / "own.py"
    own.write_text("raise OSError('no such device')")
    job = bfbench("converge", "--build", os.environ["BFBENCH_BUILD"], "--load", own)
    assert job.returncode == 2
    assert f"argument --load: load_algorithms, '{own}': expected a file that runs" in job.stderr
    assert "found OSError: no such device" in job.stderr


def test_presets_go_behind_options():
    class Args:
        preset, seeds, topologies, shards, steps = "base-graph", [7], None, None, None
        ranks, algorithms = None, None
    args = Args()
    fill(args)
    assert (args.seeds, args.ranks, args.steps, args.shards) == ([7], [25], 300, ["0.1"])
    assert args.topologies == ["base", "one_peer", "ring"]
    everything = Args()
    everything.preset = "default"
    fill(everything)
    assert (everything.ranks, everything.algorithms, everything.steps) == ([8], None, 400)


def test_presets_name_what_is_there():
    for preset in PRESETS.values():
        for name in preset.get("algorithms", []):
            assert row_named(name).name == name
        assert topology_list(",".join(preset.get("topologies", ["ring"])))


@pytest.mark.long
def test_a_preset_says_that_it_is_scaled(tmp_path, capsys):
    file = tmp_path / "records.json"
    assert main(["converge", "--build", os.environ["BFBENCH_BUILD"], "--json", str(file), "--data",
                 str(idx_files(tmp_path)), "--preset", "base-graph", "--ranks", "3", "--seeds", "1",
                 "--steps", "2", "--batch-size", "4"]) == 0
    found = json.loads(file.read_text())
    assert {record["topology"] for record in found["records"]} == {"base", "one_peer", "ring",
                                                                   "all ranks"}
    assert "preset: base graphs and one-peer" in capsys.readouterr().out
    assert found["versions"]["preset"].endswith("scaled")
