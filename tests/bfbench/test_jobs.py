"""Jobs that fail, that do not come back, that are cut off: made by programs of a false build."""

import json
import subprocess
import sys
import types

import pytest

from bfbench import hosts, launch, operations, output, turns
from bfbench.__main__ import main
from bfbench.workers import rounds
from records_of import operation

BFRUN = """#!/bin/sh
[ "$1" != --version ] || { echo "bfrun of a drill"; exit; }
shift 4
exec "$@"
"""


def false_build(folder, *starts):
    """A build whose operations_benchmark prints a record and does what a line of shell says:
    another one in each start, the last one in all that follow."""
    record = json.dumps(operation())
    cases = "\n".join(f"{index}) {line} ;;" for index, line in enumerate(starts[:-1]))
    programs = {"tools/bfrun/bfrun": BFRUN, "benchmarks/operations_benchmark": f"""#!/bin/sh
start=$(cat {folder}/start 2>/dev/null || echo 0)
echo $((start + 1)) > {folder}/start
echo '{record}'
case $start in
{cases}
*) {starts[-1]} ;;
esac
"""}
    for name, text in programs.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder


def left_behind(tmp_path, build, code, *words):
    file = tmp_path / "left.json"
    assert main(["ops", "--build", str(build), "--json", str(file), "--without", "gloo",
                 "--without", "nccl", "--without", "mpi", "--starts", "3", *words]) == code
    found = json.loads(file.read_text())
    return found["records"], [item["not_run"] for item in found["not_run"]
                              if item.get("peer") == "bluefog_cpp, Open MPI and gloo from C++"
                              or item.get("op") == "the rest"]


def test_a_job_that_does_not_come_back_is_ended(tmp_path):
    build = false_build(tmp_path, "exec sleep 100")
    records, reasons = left_behind(tmp_path, build, 1, "--job-timeout", "0.3")
    assert [record["starts_us"] for record in records] == [[10.0]]
    assert reasons == ["not done after 0.3 s (--job-timeout) (1 of 3 starts, not started again)"]
    assert (tmp_path / "start").read_text() == "1\n"


def test_what_a_job_printed_before_it_failed_is_kept(tmp_path, capsys):
    build = false_build(tmp_path, "exit 0",
                        "echo 'bfrun: rank 1 was killed by signal 9' >&2; exit 9",
                        "exit 0")
    records, reasons = left_behind(tmp_path, build, 1)
    assert [len(record["starts_us"]) for record in records] == [3]
    assert reasons == ["bfrun: rank 1 was killed by signal 9 (1 of 3 starts)"]
    assert "ended with code 9" in capsys.readouterr().err


def test_sigterm_shows_and_writes_what_was_measured(tmp_path):
    # Each program between the job and this process has replaced the one before it.
    # It listens by the time that it is told to end, however late it gets a core.
    build = false_build(tmp_path, "exit 0", "sleep 1; kill -TERM $PPID; exec sleep 100")
    records, reasons = left_behind(tmp_path, build, 130)
    # The second start's job was cut off after its first record; there was no third.
    assert [len(record["starts_us"]) for record in records] == [2]
    assert reasons == ["interrupted"]
    assert (tmp_path / "start").read_text() == "2\n"


def test_files_are_written_although_nobody_reads_the_output(tmp_path):
    build = false_build(tmp_path, "exit 0")
    file, folder = tmp_path / "found.json", tmp_path / "report"
    process = subprocess.Popen(
        [sys.executable, "-m", "bfbench", "ops", "--build", str(build), "--json", str(file),
         "--report",
         str(folder), "--without", "gloo", "--without", "nccl", "--starts", "1"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    process.stdout.close()
    process.wait(timeout=120)
    assert len(json.loads(file.read_text())["records"]) == 1
    assert (folder / "report.html").exists()


def test_files_that_cannot_be_written_leave_the_output(capsys, tmp_path):
    args = types.SimpleNamespace(json=tmp_path / "none" / "found.json", report=None)
    with pytest.raises(FileNotFoundError):
        output.show(args, {"date": "today"}, ["a table"], [{"op": "b", "not_run": "no c"}], [],
                    None)
    said = capsys.readouterr().out
    assert "date: today" in said and "a table" in said and "not run: b: no c" in said


def test_a_line_that_was_cut_off_is_no_record():
    assert launch.records_in('words\n{"a": 1}\n{"b": ') == [{"a": 1}]


def test_a_turn_that_does_not_come_back_is_ended():
    launcher = types.SimpleNamespace(words=lambda *_: ["sleep", "100"], environment=None,
                                     longest_sec=0.3)
    with pytest.raises(launch.DeadlinePassed, match="not done after 0.3 s"):
        turns.Side(launcher, 1, "no_worker")


def test_jobs_have_longer_for_more_bytes_and_slower_links():
    def longest(*words):
        args = operations_arguments(*words)
        operations.check(args)
        (launcher, _), = operations.places_of(args, operations.PRESETS["quick"])
        return launcher.longest_sec

    assert 600 < longest("--sizes", "4") < longest("--sizes", "100000000")
    assert longest("--hosts", "2", "--rate", "1000") < longest("--hosts", "2", "--rate", "10")
    assert longest("--job-timeout", "7", "--sizes", "100000000") == 7


def operations_arguments(*words):
    import argparse
    parser = argparse.ArgumentParser()
    operations.add_arguments(parser)
    return parser.parse_args(words)


def words_of_jobs(*words):
    """The words that bfrun is told by the own side and by gloo's."""
    args = operations_arguments(*words)
    operations.check(args)
    (launcher, _), = operations.places_of(args, operations.PRESETS["quick"])
    told = []
    launcher.run = lambda ranks, *command: told.append([str(word) for word in command])
    launcher.require = lambda program: None
    launcher.own_and_mpi(2, [4], "float32", 1)
    launcher.gloo(2, [4], "float32", 1)
    return told


def test_between_hosts_both_sides_rest_until_the_bucket_is_full():
    def rests(*words):
        return [float(told[told.index("--pause-ms") + 1]) for told in words_of_jobs(*words)]

    # 256 KiB at 200 Mbit/s are 10.5 ms.
    assert rests("--hosts", "2", "--rate", "200") == pytest.approx([15.7, 15.7], abs=0.1)
    assert rests("--hosts", "2", "--rate", "1000") == pytest.approx([3.1, 3.1], abs=0.1)
    assert rests("--ranks", "2") == [0, 0]
    assert f"kBurstBytes={hosts.BUCKET_BYTES}\n" in hosts.SET_RATE.read_text()


def test_ranks_rest_before_each_timing(monkeypatch):
    for name in ("barrier", "broadcast"):
        monkeypatch.setattr(rounds.dist, name, lambda *_: None)
    done = []
    monkeypatch.setattr(rounds.time, "sleep", lambda sec: done.append(sec))
    rounds.take_turns([lambda given: done.append("call")], 1e-9, lambda: 0, batch=2, pause_sec=0.5)
    assert done == [0.5, "call", "call"] * (len(done) // 3)
    assert len(done) >= 3 * rounds.FEWEST_ROUNDS


@pytest.mark.parametrize("words, peer, expected", (
    ("", "link between hosts", "all ranks were on one host"),
    ("--hosts 2 --without gloo", "link between hosts", "beside gloo, which was left out"),
    ("--hosts 2 --sizes 4,65536", "link between hosts", "sizes of 1048576 bytes and more"),
    ("", "bluefog_cpp", "one machine; --hosts makes several"),
    # Nothing is said here: a measurement that was cut off says so itself.
    ("--hosts 2 --sizes 4,1048576", "link between hosts", None),
    ("--hosts 2", "bluefog_cpp", None)))
def test_what_options_leave_out_is_said(words, peer, expected):
    reasons = [item["not_run"]
               for item in operations.never_run(operations_arguments(*words.split()), [])
               if item["peer"] == peer]
    assert len(reasons) == (expected is not None) and all(expected in reason for reason in reasons)


def test_mpi_is_left_out_between_hosts_of_several_ranks():
    def said(*words):
        args = operations_arguments(*words)
        operations.check(args)
        (launcher, _), = operations.places_of(args, operations.PRESETS["quick"])
        return launcher.operations_words

    assert said() == said("--hosts", "2") == ()
    hosts = ("--hosts", "2", "--local-ranks", "2")
    assert said(*hosts) == ("--without-mpi", operations.NO_MPI_HERE)
    assert said(*hosts, "--with", "mpi") == ()
    assert said(*hosts, "--without", "mpi") == ("--without-mpi", "left out by --without mpi")
    assert said("--without", "gloo") == ("--without-gloo", "left out by --without gloo")


@pytest.mark.parametrize("words, expected", (
    ("--ranks 2 --hosts 2", "expected --ranks or --hosts, found both"),
    ("--many --hosts 2", "expected --many or --hosts, found both"),
    ("--rate 100", "expected --hosts beside --rate"),
    ("--local-ranks 2", "expected --hosts beside --local-ranks"),
    ("--with mpi --without mpi", "expected --with mpi or --without mpi, found both"),
))
def test_options_that_do_not_fit_are_refused(words, expected, capsys):
    assert main(["ops", *words.split()]) == 1
    assert expected in capsys.readouterr().err


def test_a_torch_without_gloo_is_no_failure(monkeypatch):
    monkeypatch.setattr(operations.dist, "is_gloo_available", lambda: False)
    sides = {side.who: side for side in operations.sides_of(operations_arguments())}
    python, cpp = "bluefog_cpp and gloo from Python", "bluefog_cpp, Open MPI and gloo from C++"
    assert operations.why_not_here(None, sides[python], 2) == "this torch is built without gloo"
    assert operations.why_not_here(None, sides[cpp], 2) == ""


def test_short_calls_are_timed_in_batches(monkeypatch):
    for name in ("barrier", "broadcast"):
        monkeypatch.setattr(rounds.dist, name, lambda *_: None)
    prepared, called = [], []

    def prepare():
        prepared.append(len(prepared))
        return prepared[-1]

    (times,) = rounds.take_turns([called.append], 1e-9, prepare, batch=32)
    assert len(times) == rounds.FEWEST_ROUNDS
    # The expected calls include the warm-up and the round that tells how many fit into the time.
    assert called == prepared == list(
        range(32 * (rounds.FEWEST_ROUNDS + rounds.WARM_UP_ROUNDS + 1)))


@pytest.mark.parametrize("words, expected", (
    ("", [2]), ("--many", [2, 8, 16]), ("--many --ranks 4,8", [4, 8, 16]),
    ("--many --preset grid", [2, 4, 6, 8, 16])))
def test_many_ranks_come_when_they_are_asked_for(words, expected):
    args = operations_arguments(*words.split())
    operations.check(args)
    places = operations.places_of(args, operations.preset_of(args))
    assert [ranks for _, ranks in places] == expected
