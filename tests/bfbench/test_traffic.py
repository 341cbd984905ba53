"""bfbench traffic: its words, what is spent at equal loss, and a short run with all peers."""

import contextlib
import json
import os
import socket
import threading

import pytest
import torch

from bfbench import hosts
from bfbench.__main__ import main
from bfbench.launch import LaunchFailed
from bfbench.reports import traffic_report
from bfbench.traffic import texts
from bfbench.traffic.curves import merged, spent_at
from bfbench.traffic.presets import fill
from bfbench.traffic.ways import PEERS, Way, way_list, ways_of
from bfbench.workers.sent_bytes import counted
from bfbench.workers.traffic_worker import LEAST_RATE, rate_at
from commands import not_run

BUILD = os.environ["BFBENCH_BUILD"]
COUNTERS = """Inter-|   Receive                            |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs
    lo:  111  1 0 0 0 0 0 0  1000 1 0 0 0 0 0 0
  eth0:  222  1 0 0 0 0 0 0    30 1 0 0 0 0 0 0
  eth1:  333  1 0 0 0 0 0 0     4 1 0 0 0 0 0 0
"""


def names(text, codes=("default",), graphs=("one_peer",), local_steps=20):
    return [way.name() for way in ways_of(way_list(text), codes, graphs, local_steps)]


def test_each_algorithm_runs_with_what_it_takes():
    assert names("ddp,atc,gossip-diloco,post-local-sgd,diloco,local_sgd,slowmo") == [
        "ddp", "adapt_then_combine@one_peer", "gossip_diloco@one_peer/20", "post_local_sgd/20",
        "diloco/20", "local_sgd/20", "slowmo@one_peer"]
    assert names("choco,atc,gradient_allreduce", ["default", "int8"], ["ring", "full"]) == [
        "choco+int4@ring", "choco+int4@full", "choco+int8@ring", "choco+int8@full",
        "adapt_then_combine@ring", "adapt_then_combine@full", "gradient_allreduce",
        "gradient_allreduce+int8"]


def test_words_say_what_is_run():
    assert names("gossip_diloco+topk:32@ring/7,gossip_diloco/7,atc@full,atc/3",
                 ["int8"], ["ring"]) == [
        "gossip_diloco+topk:32@ring/7", "gossip_diloco+int8@ring/7", "adapt_then_combine@full",
        "adapt_then_combine@ring/3"]
    word = "gossip_diloco+int4@ring/7~outer_momentum=0.5~outer_learning_rate=1"
    assert names(word) == [word]
    way, = ways_of(way_list(word), (), (), 1)
    assert way.numbers() == {"outer_momentum": 0.5, "outer_learning_rate": 1.0}


@pytest.mark.parametrize("words, expected", (
    ("--algorithms atc+int4", "'atc+int4': expected no code: adapt_then_combine takes none"),
    ("--algorithms ddp@ring", "'ddp@ring': expected no graph: ddp takes none"),
    ("--algorithms ddp/5", "'ddp/5': expected no H: ddp takes none"),
    ("--algorithms extra/5", "'extra/5': expected no H: extra takes none"),
    ("--algorithms diloco/0", "'diloco/0': expected H of at least 1, found 0"),
    ("--algorithms atc@star", "full, base, default; found 'star'"),
    ("--algorithms choco+int5", "'choco+int5': expected one of none, bfloat16, float16, int8, "),
    ("--algorithms diloco+topk:9999", "'diloco+topk:9999': "),
    ("--algorithms choco+none", "'choco+none': expected a code, which choco always has, found"),
    ("--compressions int8,in4", "'int8,in4': expected one of none, bfloat16, "),
    ("--algorithms diloco~outer_momentun=1", "outer_momentum; found 'outer_momentun'"),
    ("--algorithms diloco~outer_momentum=x", "expected a number for outer_momentum; found 'x'"),
    ("--algorithms diloco~outer_momentum", "expected a number for outer_momentum; found ''"),
    ("--algorithms diloco~outer_delay=1~outer_delay=0", "each option once; found outer_delay"),
    ("--algorithms ddp~lr=1", "expected no option: ddp has none here"),
    ("--algorithms gossip_pga~global_period_rounds=3", "which the benchmark chooses"),
    ("--algorithms atc,,ddp", "expected NAME[+CODE][@GRAPH][/H][~OPTION=NUMBER"),
    ("--algorithms diloko", "did you mean diloco?"),
    ("--baseline dpp", "found 'dpp'"),
    ("--rate 0", "expected a number from 1"), ("--more 0", "found '0'"),
    ("--seeds x", "found 'x'"), ("--shards 0", "found '0'"), ("--task text", "invalid choice")))
def test_refused_words(words, expected, capsys):
    with pytest.raises(SystemExit):
        main(["traffic", *words.split()])
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize("words, expected", (
    ("--hosts 3 --ranks 4", "--hosts: expected a divisor of the 4 ranks, found 3"),
    ("--rate 100", "--rate: expected --hosts of at least 2"),
    ("--heads 3", "--heads: expected a divisor of the width, 64, found 3"),
    ("--length 1024", "--length: expected less than 1024, found 1024"),
    ("--data /none/such", "--data: expected a text that can be read, found: "),
    ("--task images --data /none", "expected the files of MNIST")))
def test_words_that_do_not_go_together(words, expected, capsys):
    assert main(["traffic", "--build", BUILD, *words.split()]) == 1
    assert expected in capsys.readouterr().err


def test_options_go_before_the_preset(capsys):
    class Args:
        preset, task, ranks, hosts, steps, rate = "slow-link", None, None, None, 7, None

        def __getattr__(self, name):
            return None
    args = fill(Args())
    assert (args.ranks, args.hosts, args.rate, args.steps) == (8, 8, 100.0, 7)
    fewer = Args()
    fewer.ranks = 2
    assert fill(fewer).hosts == 2  # a rank on each
    together = Args()
    together.hosts = 1
    assert fill(together).rate is None


def test_interfaces_that_count():
    assert counted(True, COUNTERS) == 1000
    assert counted(False, COUNTERS) == 34


def test_text_is_cut_into_pieces_of_its_files(tmp_path):
    (tmp_path / "a").write_bytes(bytes([1]) * (15 * texts.PIECE_BYTES + 7))
    (tmp_path / "b").write_bytes(bytes([2]) * 5 * texts.PIECE_BYTES)
    (tmp_path / "link").symlink_to(tmp_path / "a")
    found = texts.load(tmp_path)
    assert [len(part.labels) for part in (found.train, found.test)] == [18, 2]
    for part in (found.train, found.test):
        assert part.values.eq(part.labels[:, None] + 1).all()
    (tmp_path / "b").unlink()
    (tmp_path / "a").write_bytes(bytes(3 * texts.PIECE_BYTES))
    with pytest.raises(LaunchFailed, match="at least 10 pieces of 1024 bytes, found 3"):
        texts.load(tmp_path)


def test_the_rate_rises_and_falls():
    rates = [rate_at(step, 100, 10) for step in range(101)]
    assert rates[0] == 0.1 and rates[9] == rates[10] == 1.0
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[100] == pytest.approx(LEAST_RATE)
    assert rate_at(0, 5, 0) == 1.0


def point(step, loss, bytes_):
    return {"step": step, "seconds": step / 10, "bytes": bytes_, "loss": loss, "accuracy": 1 / loss,
            "consensus_distance": 0.0}


def test_what_is_spent_at_a_loss():
    curve = [point(10, 4.0, 100), point(20, 2.0, 300), point(30, 3.0, 500), point(40, 1.0, 700)]
    assert spent_at(curve, 3.0) == {"step": 15, "seconds": 1.5, "bytes": 200}
    assert spent_at(curve, 2.0)["step"] == 20
    assert spent_at(curve, 4.5)["step"] == 10
    assert spent_at(curve, 1.5) == {"step": 37.5, "seconds": 3.75, "bytes": 650}
    assert spent_at(curve, 0.5) is None


def run_of(algorithm, seed, points):
    return {"peer": "x", **Way(algorithm)._asdict(), "shards": "iid", "ranks": 2, "hosts": 1,
            "rate_mbit": None, "batch_size": 4, "task": "language", "data": "d", "parameters": 5,
            "steps": points[-1]["step"], "seed": seed, "points": points}


def test_ways_are_set_against_the_baseline_of_their_seed():
    runs = [run_of("ddp", 1, [point(10, 4.0, 100), point(20, 2.0, 200)]),
            run_of("ddp", 2, [point(10, 4.0, 100), point(20, 3.0, 200)]),
            run_of("atc", 1, [point(10, 3.0, 10), point(20, 2.0, 20)]),
            run_of("atc", 2, [point(10, 3.0, 10), point(20, 2.0, 20)]),
            run_of("none", 1, [point(10, 9.0, 0), point(20, 2.5, 0)]),
            {**run_of("d2", 1, [point(10, 9.0, 0)]), "not_run": "why"}]
    records = {record["algorithm"]: record for record in merged(runs, "ddp")}
    assert set(records) == {"ddp", "atc", "none"}
    ddp, atc = records["ddp"], records["atc"]
    assert ddp["loss"] == 2.5 and ddp["loss_by_seed"] == [2.0, 3.0]
    assert ddp["loss_deviation"] == pytest.approx(0.5 ** 0.5)
    assert ddp["curve"][-1]["loss"] == 2.5 and ddp["at_loss"]["bytes"] == 200
    assert atc["at_loss"]["bytes_by_seed"] == [20, 10] and atc["at_loss"]["step"] == 15
    assert atc["at_loss"]["bytes_share"] == 15 / 200
    assert atc["bytes_per_step_and_rank"] == 20 / 20 / 2
    assert "at_loss" not in records["none"]  # never gets there


NAN = float("nan")


def test_runs_that_diverge_are_said_to(tmp_path):
    def cut(points, loss=NAN, distance=0.0):
        return [*points, {**point(30, loss, 300), "consensus_distance": distance}]
    calm = [point(10, 4.0, 100), point(20, 3.0, 200)]
    runs = [run_of("ddp", 1, cut(calm, 2.0)), run_of("ddp", 2, cut(calm, 2.0)),
            run_of("atc", 1, cut(calm, 2.5)), run_of("atc", 2, cut(calm)),
            run_of("extra", 1, cut(calm, float("inf"))), run_of("extra", 2, cut(calm, 2.0, NAN)),
            run_of("d2", 1, [point(10, NAN, 100)]), run_of("d2", 2, [point(10, NAN, 100)]),
            run_of("awc", 1, cut([point(10, 1.5, 100), point(20, 9e30, 200)])),
            run_of("awc", 2, cut([point(10, 1.5, 100), point(20, 9e30, 200)]))]
    found = merged(runs, "ddp")
    json.dumps(found, allow_nan=False)
    records = {record["algorithm"]: record for record in found}
    assert [records[name]["diverged_at_by_seed"] for name in ("ddp", "atc", "extra", "d2")] == [
        [None, None], [None, 30], [30, 30], [10, 10]]
    assert records["atc"]["loss"] is None and records["atc"]["loss_by_seed"] == [2.5, None]
    assert records["atc"]["bytes"] == 300 and records["d2"]["curve"] == []
    assert [each["step"] for each in records["extra"]["curve"]] == [10, 20]
    assert "at_loss" not in records["atc"] and records["awc"]["at_loss"]["step"] == 10
    assert "at_loss" not in merged(runs, "atc")[0]  # seed 2 of the baseline has no end
    rows = {cells[0]: cells for _, group in traffic_report.titled_rows(found, "ddp")
            for cells in group}
    assert [rows[name][3] for name in ("ddp", "atc", "d2")] == ["2.0000", "1 of 2 diverged",
                                                              "diverged"]
    for some in (found, [records["d2"]], [records["awc"]]):
        traffic_report.writer("ddp")(tmp_path, {}, some, [])
        assert "diverged" in (tmp_path / "report.html").read_text()
    figure = traffic_report.chart_of("title", found)
    assert "d2 (diverged)" in {text.get_text() for text in figure.axes[0].texts}
    assert figure.axes[0].get_ylim()[1] < 5  # what ways come to that do not diverge is seen


TINY = ("--ranks", "2", "--seeds", "1", "--batch-size", "2", "--length", "16", "--width", "16",
        "--layers", "1", "--heads", "2", "--warmup-steps", "2")


def text_file(tmp_path):
    file = tmp_path / "text"
    file.write_bytes(bytes(range(256)) * 80)
    return str(file)


@contextlib.contextmanager
def others_bytes():
    """Some 60 MB/s through the machine's loopback interface."""
    ends = threading.Event()

    def send():
        with socket.socket(type=socket.SOCK_DGRAM) as nobody:
            nobody.bind(("127.0.0.1", 0))
            while not ends.wait(1e-3):
                nobody.sendto(bytes(60000), nobody.getsockname())

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        ends.set()
        sender.join()


def test_a_run(tmp_path, capsys):
    """All peers, and bytes as they must be: those of the largest messages are known."""
    file, folder = tmp_path / "records.json", tmp_path / "report"
    with others_bytes() if hosts.has_own_loopback() else contextlib.nullcontext():
        assert main(["traffic", "--build", BUILD, "--json", str(file), "--report", str(folder),
                     *TINY, "--data", text_file(tmp_path), "--steps", "4", "--report-every", "2",
                     "--local-steps", "2", "--algorithms", ",".join(PEERS)
                     + ",none,atc,win_put,gossip_diloco,choco+int8@ring"]) == 0
    found = json.loads(file.read_text())
    records = {record["algorithm"]: record for record in found["records"]}
    assert set(records) == {*PEERS, "none", "adapt_then_combine", "gossip_diloco", "choco"}
    for record in records.values():
        assert [point["step"] for point in record["curve"]] == [2, 4]
        assert 0 <= record["accuracy"] <= 1 and 0 < record["loss"] < 10
        assert record["seconds"] > 0
    assert "no rank waits for another" in not_run(found, algorithm="win_put")
    # A rank of two sends the model once in an average with the other.
    model = 4 * records["ddp"]["parameters"]
    per_step = {name: record["bytes_per_step_and_rank"] for name, record in records.items()}
    assert per_step["none"] < 0.2 * model
    for name in ("ddp", "adapt_then_combine"):
        assert model <= per_step[name] < 1.5 * model
    for name in ("ddp_bf16", "gossip_diloco"):
        assert 0.5 * model <= per_step[name] < 0.8 * model
    assert 0.25 * model <= per_step["choco"] < 0.6 * model
    assert records["ddp"]["at_loss"]["bytes_share"] == 1.0
    assert sorted(path.name for path in folder.iterdir()) == ["report.html", "tables.md",
                                                              "traffic_0.png"]
    said = capsys.readouterr().out
    for name in ("choco+int8@ring", "gossip_diloco@one_peer/2", "ddp_powersgd", "post_local_sgd/2"):
        assert name in said and name in (folder / "tables.md").read_text()
    assert main(["diff", str(file), str(file)]) == 1
    assert "records of bfbench converge and traffic are not compared" in capsys.readouterr().err


@pytest.mark.long
def test_a_run_between_hosts(tmp_path):
    if hosts.why_none():
        pytest.skip(hosts.why_none())
    file = tmp_path / "records.json"
    assert main(["traffic", "--build", BUILD, "--json", str(file), *TINY, "--data",
                 text_file(tmp_path), "--preset", "slow-link", "--steps", "2", "--report-every",
                 "2", "--local-steps", "2", "--more", "1"]) == 0
    records = {record["algorithm"]: record for record in json.loads(file.read_text())["records"]}
    model = 4 * records["ddp"]["parameters"]
    assert set(records) == {"ddp", "adapt_then_combine", "choco", "gossip_diloco"}
    for record in records.values():
        assert (record["hosts"], record["rate_mbit"]) == (2, 100.0)
    assert model <= records["ddp"]["bytes_per_step_and_rank"] < 1.5 * model


def test_images(tmp_path):
    from image_files import idx_files
    file = tmp_path / "records.json"
    assert main(["traffic", "--build", BUILD, "--json", str(file), *TINY, "--task", "images",
                 "--data", str(idx_files(tmp_path)), "--steps", "2", "--report-every", "1",
                 "--algorithms", "ddp,dmsgd@ring", "--shards", "0.5", "--more", "2"]) == 0
    records = {record["algorithm"]: record for record in json.loads(file.read_text())["records"]}
    assert [len(records[name]["curve"]) for name in ("ddp", "dmsgd")] == [2, 4]
    assert records["dmsgd"]["shards"] == "0.5"


def test_a_run_that_diverges(tmp_path, capsys):
    from image_files import idx_files
    file, folder = tmp_path / "records.json", tmp_path / "report"
    assert main(["traffic", "--build", BUILD, "--json", str(file), "--report", str(folder), *TINY,
                 "--task", "images", "--data", str(idx_files(tmp_path)), "--steps", "4",
                 "--warmup-steps", "1", "--report-every", "1", "--lr", "1e30", "--algorithms",
                 "atc@ring", "--baseline", "atc", "--seeds", "1,2"]) == 0
    text = file.read_text()
    assert "NaN" not in text and "Infinity" not in text
    for record in json.loads(text)["records"]:
        assert record["loss"] is None and None not in record["diverged_at_by_seed"]
    assert "diverged" in capsys.readouterr().out
    assert "diverged" in (folder / "tables.md").read_text()


def test_windows_are_followed_by_their_bytes(tmp_path):
    from bfbench.workers.traffic_tasks import ByteTransformer, LanguageTask

    class Args:
        data, batch_size, length, width, layers, heads = text_file(tmp_path), 8, 16, 16, 2, 2
    task = LanguageTask(Args())
    generator = torch.Generator().manual_seed(1)
    inputs, targets = task.batch(torch.arange(len(task.labels)), generator)
    assert inputs.shape == targets.shape == (8, 16)
    assert inputs.add(1).remainder(256).equal(targets)
    model = task.model()
    assert isinstance(model, ByteTransformer)
    before = model(inputs)
    inputs[:, 9:] = 0  # what comes later does not tell
    torch.testing.assert_close(model(inputs)[:, :9], before[:, :9])
    assert all(one.add(1).remainder(256).equal(two) for one, two in task.test_batches())
