"""Options, and what is said of words that do not fit."""

import json
import os
import subprocess
import sys

import pytest

from bfbench.__main__ import main
from bfbench.commands import with_command
from bfbench.launch import last_words_of
from bfbench.options import choice_list, new_file, new_folder, whole_list
from bfbench.records import merge_starts
from records_of import operation


def test_lists():
    assert whole_list()("4,1048576,4") == [4, 1048576]
    assert choice_list(("atc", "awc"))("awc,atc,awc") == ["awc", "atc"]


@pytest.mark.parametrize("words, expected", (
    ("ops --sizes 4,many",
     "expected a whole number from 1 to 1125899906842624, found 'many' in '4,many'"),
    ("ops --sizes 0", "found '0'"),
    ("ops --sizes 99999999999999999999999", "from 1 to 1125899906842624, found '9999"),
    ("ops --job-timeout 0", "expected a number of at least 0.001, found '0'"),
    ("ops --sizes ,", "found ''"),
    ("ops --ranks 65", "from 1 to 64, found '65'"),
    ("ops --seconds nan", "expected a number of at least 0.001, found 'nan'"),
    ("ops --dtype int8", "out of float16, bfloat16, float32, float64; found 'int8'"),
    ("ops --transports shm", "out of auto, mpi, tcp; found 'shm'"),
    ("ops --preset all", "'default', 'quick', 'grid'"),
    ("ops --json /no/such/folder/file", "expected a file in a folder that exists"),
    ("ops --report /proc/version", "found the file '/proc/version'"),
    ("ops --json /proc/x.json", "expected a file that can be written, found '/proc/x.json'"),
    ("ops --report /etc/passwd/x", "expected a folder that can be written, found '/etc/passwd/x'"),
    ("ops --report /proc/x/y", "expected a folder that can be written, found '/proc/x/y'"),
    ("train --models cnn,vgg", "found 'vgg'"),
    ("train --algorithms sgd", "out of none, none_wrapped, ddp, ddp_bluefog"),
    ("train --ddp-buckets 1,big", "found 'big' in '1,big'"),
    ("train --batch-size 0", "argument --batch-size: expected a whole number of at least 1"),
    ("train --starts 1.5", "argument --starts: expected a whole number"),
    ("fly", "invalid choice: 'fly'"),
    ("--sizes 0", "bfbench ops: error: argument --sizes"),
    ("--json /no/such/folder/file", "bfbench ops: error: argument --json"),
))
def test_refused_words(words, expected, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words.split())
    assert ended.value.code == 2 and expected in capsys.readouterr().err


def test_ops_is_meant_without_a_command():
    assert with_command([]) == ["ops"]
    assert with_command(["--json", "x"]) == ["ops", "--json", "x"]
    for words in (["train", "--json", "x"], ["fly"], ["-h"], ["--help"]):
        assert with_command(words) == words


@pytest.mark.parametrize("lost", ("/dev/full", None))
def test_output_that_is_lost_is_a_failure(tmp_path, lost):
    (tmp_path / "found").write_text(json.dumps({"records": merge_starts([[operation()]])}))
    ended = subprocess.run(
        ["sh", "-c", f'exec "$@" {f">{lost}" if lost else ">&-"}', "sh", sys.executable, "-m",
         "bfbench", "diff", tmp_path / "found", tmp_path / "found"], stderr=subprocess.PIPE,
        text=True, check=False)
    assert ended.returncode == 1, ended.stderr
    assert "bfbench diff: cannot write standard output" in ended.stderr


def test_an_interrupt_while_modules_are_imported_is_quiet(tmp_path):
    (tmp_path / "rich.py").write_text("import os, signal, time\n"
                                      "os.kill(os.getpid(), signal.SIGINT)\ntime.sleep(9)\n")
    path = os.pathsep.join((str(tmp_path), os.environ["PYTHONPATH"]))
    ended = subprocess.run([sys.executable, "-m", "bfbench", "ops"], capture_output=True, text=True,
                           env={**os.environ, "PYTHONPATH": path}, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


def test_trying_to_write_leaves_everything_as_it_was(tmp_path):
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    old.write_text("kept")
    assert new_file(str(old)) == old and new_file(str(new)) == new
    folder = tmp_path / "a" / "b"
    assert new_folder(str(folder)) == folder and new_folder(str(tmp_path)) == tmp_path
    assert [path.name for path in tmp_path.iterdir()] == ["old.json"] and old.read_text() == "kept"


def test_a_build_without_the_program_is_said(tmp_path, capsys):
    for words, program in (("ops", "operations_benchmark"), ("train", "bfrun")):
        assert main([words, "--build", str(tmp_path)]) == 1
        assert f"build the target {program}" in capsys.readouterr().err


def test_the_line_that_says_why():
    assert last_words_of('noise\n[rank1]:   File "x"\n[rank1]: a.b.StateError: no\nprterun: ended\n'
                         ) == "a.b.StateError: no"
    assert last_words_of("RuntimeError: first\nbfrun: rank 0 exited\n") == "RuntimeError: first"
    assert last_words_of("[rank0]: a.errors.InvalidArgument: no\nbfrun: rank 0 exited\n") == (
        "a.errors.InvalidArgument: no")
    assert last_words_of("killed\n\n") == "killed"
    killed = "bfrun: rank 1 on host vm (pid 5) was killed by signal {}"
    banner, dashes = "bfrun: 2 ranks on 1 host, 1 core each (bound), 1 thread per rank\n", "-" * 74
    box = (f"\n{dashes}\nprterun noticed that process rank 1 exited on\nsignal 9 (Killed).\n"
           f"{dashes}\n")
    # The words name the killed rank, not the errors of others; for an abort they say why.
    assert last_words_of(
        f"{banner}a.PeerFailure: rank 1 has left\n{killed.format('9 (SIGKILL)')}{box}"
        ) == "bfrun: rank 1 on host vm was killed by signal 9 (SIGKILL)"
    assert last_words_of(
        f"RuntimeError: no\n{killed.format('6 (SIGABRT)')}{box}") == "RuntimeError: no"
    assert last_words_of(f"{banner}hello\nbfrun: rank 0 on host vm (pid 3) exited with code 3{box}"
                         ) == "bfrun: rank 0 on host vm exited with code 3"
    assert last_words_of(f"{banner}no route\n{box}\n====\n") == "no route"
    assert last_words_of(f"{banner}{box}") == "it said nothing"
    assert last_words_of("") == "it said nothing"


def test_files_that_cannot_be_compared(tmp_path, capsys):
    absent, wrong, empty = (tmp_path / name for name in ("absent", "wrong", "empty"))
    wrong.write_text("[1, 2]")
    empty.write_text(json.dumps({"records": []}))
    for first, second, expected in ((absent, empty, "FileNotFoundError"),
                                    (empty, wrong, f"{wrong}: expected a file that bfbench"),
                                    (empty, empty, "no measurement in common")):
        assert main(["diff", str(first), str(second)]) == 1
        assert expected in capsys.readouterr().err
