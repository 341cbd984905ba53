"""The launcher script on one host: a short run, and words that do not fit.

    run_pipetransformer_test.py SCRIPT PYTHON CASE
"""

import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile

IMAGES = pathlib.Path("/usr/share/datasets/fashion-mnist")
SKIPPED = 77
SMALL = "layers: 2\nwidth: 16\nheads: 2\nepochs: 2\nbatch_size: 24\nfreeze: false\n"


def check(holds, expected, found):
    if not holds:
        raise AssertionError(f"expected {expected}, found {found}")


def run(script, python, folder, *words):
    done = subprocess.run(
        [script, *map(str, words)], capture_output=True, text=True, timeout=240, check=False,
        cwd=folder, env={**os.environ, "PYTHON": python, "OMP_NUM_THREADS": "1"})
    print("$", script, *words, f"\n{done.stdout}{done.stderr}(exit code {done.returncode})")
    return done


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def case_run(script, python, folder, config):
    """Two ranks of one host, then two hosts of one rank, both of which are this one."""
    if not IMAGES.exists():
        print("SKIPPED: dataset-fashion-mnist is not installed")
        return SKIPPED
    short = ("--images", 96, "--test-images", 40)
    done = run(script, python, folder, 2, 1, 0, "127.0.0.1", free_port(), config, "one", *short)
    check(done.returncode == 0, "exit code 0", done.returncode)
    check("Epoch 2: 1 x 2 stages, 0 of 6 layers frozen" in done.stdout, "epoch 2", done.stdout)
    lines = [json.loads(line) for line in (folder / "one.jsonl").read_text().splitlines()]
    check(lines[-1]["event"] == "result" and lines[-1]["ranks"] == 2, "a result", lines[-1])

    port = free_port()
    words = ("127.0.0.1", port, config, "two", *map(str, short))
    other = subprocess.Popen([script, "1", "2", "1", *map(str, words)], cwd=folder,
                             env={**os.environ, "PYTHON": python, "OMP_NUM_THREADS": "1"})
    try:
        done = run(script, python, folder, 1, 2, 0, *words)
        check(done.returncode == 0 and other.wait(60) == 0, "exit codes 0", done.returncode)
    finally:
        other.kill()
        other.wait()
    check("Epoch 2: 1 x 2 stages" in done.stdout, "epoch 2", done.stdout)
    return 0


def case_refusals(script, python, folder, config):
    fits = [2, 1, 0, "localhost", 29500, config, "run"]
    for place, word, expected in (
            (0, "0", "expected NPROC to be 1 or more, found '0'"),
            (0, "two", "expected NPROC to be 1 or more, found 'two'"),
            (1, "-1", "expected NNODES to be 1 or more, found '-1'"),
            (2, "1", "expected RANK to be from 0 to 0, found '1'"),
            (3, "", "expected a HOST, found none"),
            (4, "70000", "expected PORT to be from 1 to 65535, found '70000'"),
            (5, "none.yaml", "expected config.yaml to be a file, found 'none.yaml'"),
            (6, "a/b", "found 'a/b'")):
        words = list(fits)
        words[place] = word
        done = run(script, python, folder, *words)
        check(done.returncode == 2 and expected in done.stderr, expected, done.stderr)
    done = run(script, python, folder, *fits[:6])
    check(done.returncode == 2 and "RUN_ID, found 6 words" in done.stderr, "6 words", done.stderr)
    return 0


def main():
    script, python, case = sys.argv[1:]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        config = folder / "config.yaml"
        config.write_text(SMALL)
        return globals()[f"case_{case}"](script, python, folder, config)


if __name__ == "__main__":
    sys.exit(main())
