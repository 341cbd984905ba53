"""The script that trains on a text, briefly, in the process of the test."""

import re

import pytest

import bluefog_cpp.torch as bf

TINY = ("pytorch_language.py", "--steps", 4, "--report-every", 2, "--batch-size", 2, "--length", 8,
        "--width", 8, "--layers", 1, "--heads", 2)
LINE = re.compile(r"^Step (\d)/\d: training loss \d\.\d{3}, test loss \d\.\d{3} \(\d\.\d{3} bits a "
                  r"byte\), consensus distance \d\.\d{2}e[-+]\d\d, \d+ tokens/s, \d+\.\d{3} MB a "
                  r"step between hosts$", re.MULTILINE)


def text_of(tmp_path):
    file = tmp_path / "text"
    file.write_bytes(bytes(range(256)) * 8)
    return file


@pytest.mark.parametrize("options", (
    (), ("--algorithm", "diloco", "--local-steps", 2, "--dtype", "bfloat16"),
    ("--algorithm", "gossip_diloco", "--schedule", "ring", "--compression", "int8", "--option",
     "outer-momentum=0.5")), ids=str)
def test_lines(run, tmp_path, rank, options):
    printed = run(*TINY, "--data", text_of(tmp_path), *options)
    assert LINE.findall(printed) == (["2", "4"] if rank == 0 else [])


def test_a_run_that_resumes(run, tmp_path, rank):
    options = (*TINY, "--data", text_of(tmp_path), "--checkpoint", tmp_path / "state",
               "--algorithm", "streaming_diloco")
    run(*options)
    bf.barrier()
    printed = run(*options, "--resume", "--steps", 8)
    assert LINE.findall(printed) == (["6", "8"] if rank == 0 else [])


@pytest.mark.parametrize("words, expected", (
    (("--heads", 3), "--heads: expected a divisor of the width, 8, found 3"),
    (("--option", "depth"), "expected NAME=NUMBER, found depth"),
    (("--algorithm", "diloko"), "did you mean diloco?"),
    (("--algorithm", "diloco", "--option", "outer_momentum=2"), "outer_momentum: expected from 0"),
    (("--data", "/none/such"), "--data: expected files that can be read, found: "),
    (("--length", 300), "--data: expected more than 300 bytes")))
def test_wrong_words(run, capfd, tmp_path, words, expected):
    with pytest.raises(SystemExit) as ended:
        run(*TINY, "--data", text_of(tmp_path), *words)
    assert expected in f"{ended.value} {capfd.readouterr().err}"
