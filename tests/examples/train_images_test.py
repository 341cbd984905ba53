"""Runs train_images on a small data set and checks what it prints and writes.

    train_images_test.py --bfrun PATH --program PATH CASE

The data set has the files of MNIST, with images whose brightest stripe tells the class, so that a
few steps suffice to learn it.
"""

import argparse
import json
import math
import os
import pathlib
import random
import re
import signal
import struct
import subprocess
import sys
import tempfile

SIDE = 8
TRAIN_IMAGES = 640
TEST_IMAGES = 200
STEPS_PER_EPOCH = 10  # of 2 ranks with batches of 32
ALGORITHMS = ("atc", "awc", "gradient_allreduce", "none")
# The algorithms with the period that each is run with.
EACH_SECOND = ("--local-steps", "2")
MORE_ALGORITHMS = (("extra",), ("exact-diffusion",), ("d2",), ("gradient-tracking",),
                   ("push-sum", *EACH_SECOND), ("gossip-pga", "--option", "global_period_rounds=5"),
                   ("local-sgd", "--local-steps", "5"), ("qg-dsgdm",),
                   ("win-put",), ("pull-get",), ("async-push-sum", *EACH_SECOND))
WITHOUT_WAITING = ("win-put", "pull-get", "async-push-sum")


def write_images(folder, part, count, rng):
    pixels, labels = bytearray(), bytearray()
    for index in range(count):
        label = index % 10
        noise = [rng.randrange(60) for _ in range(SIDE * SIDE)]
        for k in range(6):
            noise[label * 6 + k] += 190
        pixels += bytes(noise)
        labels.append(label)
    images = struct.pack(">IIII", 0x803, count, SIDE, SIDE) + bytes(pixels)
    (folder / f"{part}-images-idx3-ubyte").write_bytes(images)
    (folder / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, count) + labels)


def write_data(folder):
    folder.mkdir()
    rng = random.Random(1)
    write_images(folder, "train", TRAIN_IMAGES, rng)
    write_images(folder, "t10k", TEST_IMAGES, rng)
    return folder


class Runner:
    def __init__(self, bfrun, program, folder):
        self.bfrun, self.program, self.folder = bfrun, program, folder
        self.data = write_data(folder / "data")

    def run(self, *options, ranks=2, data=None):
        launcher = [self.bfrun, "-np", str(ranks)] if ranks > 1 else []
        command = [*launcher, self.program, "--batch-size", "32", "--data", data or self.data,
                   "--threads", "1", *options]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                              timeout=240, check=False)
        print("$", *command, f"\n{done.stdout}{done.stderr}(exit code {done.returncode})",
              flush=True)
        return done

    def train(self, *options, ranks=2):
        """A run that must succeed: its output and the lines of its metrics file."""
        metrics = self.folder / "metrics.jsonl"
        done = self.run("--metrics", metrics, *options, ranks=ranks)
        check(done.returncode == 0, "exit code 0", done.returncode)
        lines = [json.loads(line) for line in metrics.read_text().splitlines()]
        return done.stdout, lines


def check(holds, expected, found):
    if not holds:
        sys.exit(f"FAILED: expected {expected}, found {found!r}")


def check_finished_run(output, lines, ranks, epochs):
    events = [line["event"] for line in lines]
    check(events == ["run"] + ["epoch"] * epochs + ["result"], "run, epochs, result", events)
    run, result = lines[0], lines[-1]
    check(run["ranks"] == ranks, f"{ranks} ranks", run)
    check(len(result["test_accuracy"]) == ranks, f"{ranks} accuracies", result)
    check(min(result["peak_memory_bytes"]) > 1 << 20, "a peak of memory", result)
    check(result["img_per_sec"] > 0, "a rate", result)
    check(result["loss_not_finite_since"] == [None] * ranks, "finite losses", result)
    pattern = rf"^Total img/sec on {ranks} CPU\(s\): \d+\.\d \+- \d+\.\d$"
    check(re.search(pattern, output, re.MULTILINE), pattern, output)
    for rank in range(ranks):
        check(f"rank {rank}: test accuracy" in output, f"a line of rank {rank}", output)
    check("ETA" in output, "progress with ETA", output)


def algorithms(runner):
    for name in ALGORITHMS:
        output, lines = runner.train("--algorithm", name, "--epochs", "3", "--progress", "lines")
        check_finished_run(output, lines, ranks=2, epochs=3)
        result = lines[-1]
        check(lines[0]["steps_per_epoch"] == STEPS_PER_EPOCH, STEPS_PER_EPOCH, lines[0])
        check(result["test_accuracy_mean"] > 0.9, "accuracy over 90 %", result)
        distance = result["consensus_distance"]
        if name == "none":
            check(distance > 0.05, "ranks that differ", distance)
        elif name == "awc":
            check(0 <= distance < 0.5, "ranks that nearly agree", distance)
        else:
            # Two ranks average exactly; gradients are summed to the same bits.
            check(distance == 0, "ranks that agree", distance)


def more_algorithms(runner):
    for name, *words in MORE_ALGORITHMS:
        output, lines = runner.train("--algorithm", name, *words, "--epochs", "1",
                                     "--max-test-images", "100", "--progress", "lines")
        check_finished_run(output, lines, ranks=2, epochs=1)
        result = lines[-1]
        # Push-sum's weight falls to 1/8 while nothing arrives, and steps of x / w are then eight
        # times as long: a rank may learn nothing if a peer has no core for these few milliseconds.
        if name != "async-push-sum":
            check(result["test_accuracy_mean"] > 0.3, "to learn something", result)
        # The distance between ranks that do not wait depends on the machine.
        most = math.inf if name in WITHOUT_WAITING else 1
        check(0 <= result["consensus_distance"] < most, "ranks that nearly agree", result)


def resume(runner):
    state = runner.folder / "state" / "run"
    state.parent.mkdir()
    for algorithm in ("atc", "awc"):
        common = ("--algorithm", algorithm, "--shards", "dirichlet", "--topology", "ring")
        _, whole = runner.train(*common, "--epochs", "2")
        runner.train(*common, "--epochs", "1", "--checkpoint", state)
        _, parts = runner.train(*common, "--epochs", "2", "--checkpoint", state, "--resume")
        for key in ("train_loss", "test_accuracy", "test_loss", "consensus_distance"):
            ours = [line for line in parts if line["event"] == "epoch"][-1][key]
            check(ours == whole[2][key], f"{key} {whole[2][key]}", ours)
    size = (runner.folder / "state" / "run.rank0.pt").stat().st_size
    check(size < 4 << 20, "a checkpoint of the size of model and state", size)


def diverges(runner):
    done = runner.run("--lr", "1e30", "--momentum", "0", "--epochs", "2", "--max-batches", "4",
                      "--max-test-images", "20", "--metrics", runner.folder / "metrics.jsonl")
    check(done.returncode == 0, "exit code 0", done.returncode)
    for rank in range(2):
        warning = (rf"^train_images: rank {rank}: the loss is (?:not a number|infinite) "
                   r"in epoch 1, step \d: ")
        found = re.findall(warning, done.stderr, re.MULTILINE)
        check(len(found) == 1, f"one line '{warning}'", done.stderr)
    check("loss not finite since: rank 0 epoch 1, step" in done.stdout, "a final line", done.stdout)
    result = json.loads((runner.folder / "metrics.jsonl").read_text().splitlines()[-1])
    since = result["loss_not_finite_since"]
    check(len(since) == 2 and since[0]["epoch"] == 1 and since[0]["step"] >= 1,
          "the step of each rank", result)


def pid_of_rank(bfrun, rank, joins=False):
    """The process of a rank of the launch among all that bfrun has started, or None."""
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            variables = (folder / "environ").read_bytes().split(b"\0")
            name = (folder / "comm").read_text().strip()
        except OSError:
            continue
        mine = f"TRAIN_IMAGES_JOB={bfrun}".encode() in variables
        is_rank = f"RANK={rank}".encode() in variables and name == "train_images"
        if mine and is_rank and (b"BLUEFOG_JOIN=1" in variables) == joins:
            return int(folder.name)
    return None


class ElasticJob:
    """A job of three ranks that may be lost, whose lines are read as they come."""

    def __init__(self, runner, *options):
        self.name = f"{runner.folder}-{len(options)}"
        metrics = runner.folder / "metrics.jsonl"
        command = [runner.bfrun, "-np", "3", "--min-np", "2", "--respawn", "1", runner.program,
                   "--data", runner.data, "--batch-size", "32", "--threads", "1", "--metrics",
                   metrics, "--progress", "off", "--max-test-images", "40", *options]
        self.metrics, self.lines = metrics, []
        self.process = subprocess.Popen(
            [str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, env={**os.environ, "TRAIN_IMAGES_JOB": self.name})

    def wait_for(self, pattern):
        for line in self.process.stdout:
            self.lines.append(line)
            if re.search(pattern, line):
                return line
        sys.exit(f"FAILED: expected a line '{pattern}', found\n{''.join(self.lines)}")

    def signal(self, rank, number):
        pid = pid_of_rank(self.name, rank)
        check(pid is not None, f"a process of rank {rank}", pid)
        os.kill(pid, number)

    def end(self):
        """The last lines, and those of the metrics file."""
        self.lines += self.process.stdout.readlines()
        code = self.process.wait(60)
        print(f"{''.join(self.lines)}(exit code {code})", flush=True)
        check(code == 0, "exit code 0", code)
        return "".join(self.lines), [json.loads(line) for line in
                                     self.metrics.read_text().splitlines()]


def killed_and_back(runner):
    """A rank is killed, another process takes its place, and all three come to the end together."""
    job = ElasticJob(runner, "--epochs", "160")
    job.wait_for(r"^epoch 2/160: ")
    job.signal(1, signal.SIGKILL)
    job.wait_for(r"^2 rank\(s\) train now; without rank 1: ")
    job.wait_for(r"^3 rank\(s\) train now; rank 3 has joined$")
    output, lines = job.end()
    for rank in range(3):
        check(f"rank {rank}: test accuracy" in output, f"a line of rank {rank}", output)
    epochs = [line["epoch"] for line in lines if line["event"] == "epoch"]
    check(epochs[-1] == 160 and len(set(epochs)) == len(epochs), "each epoch once", epochs)
    result = lines[-1]
    check(result["ranks"] == 3 and len(result["test_accuracy"]) == 3, "three ranks", result)
    check(result["test_accuracy_mean"] > 0.9, "accuracy over 90 %", result)
    check(result["consensus_distance"] < 0.5, "ranks that nearly agree", result)
    groups = [line["ranks"] for line in lines if line["event"] == "members"]
    check(groups == [[0, 2], [0, 2, 3]], "two groups after the first", groups)


def leaves(runner):
    """SIGTERM has the rank that speaks leave in good order; the next one speaks on."""
    job = ElasticJob(runner, "--epochs", "60", "--algorithm", "gradient_allreduce")
    job.wait_for(r"^epoch 2/60: ")
    job.signal(0, signal.SIGTERM)
    job.wait_for(r"^rank 0 has left in epoch \d+$")
    output, lines = job.end()
    check("rank 0 on host" in output and "exited with code 143" in output, "code 143", output)
    check([line["event"] for line in lines].count("run") == 1, "one file of metrics", lines)
    check(lines[-1]["event"] == "result", "a result", lines)
    check(lines[-1]["test_accuracy_mean"] > 0.9, "accuracy over 90 %", lines[-1])


def elastic_errors(runner):
    for options, words in (
            (("--shards", "dirichlet"), "--shards: expected iid where ranks may be lost"),
            (("--max-batches", "3"), "--max-batches: expected 0 where ranks may be lost")):
        done = subprocess.run([runner.bfrun, "-np", "2", "--min-np", "1", runner.program, "--data",
                               runner.data, *options], capture_output=True, text=True, timeout=120,
                              check=False)
        check(done.returncode == 1 and words in done.stderr, words, done.stderr)


def alone(runner):
    output, lines = runner.train("--epochs", "1", "--progress", "lines", ranks=1)
    check_finished_run(output, lines, ranks=1, epochs=1)
    output, lines = runner.train("--epochs", "1", "--model", "resnet18", "--max-batches", "2",
                                 "--max-test-images", "20", "--progress", "lines", ranks=1)
    check_finished_run(output, lines, ranks=1, epochs=1)


def errors(runner):
    absent = runner.folder / "absent"
    truncated = write_data(runner.folder / "truncated")
    images = truncated / "train-images-idx3-ubyte"
    images.write_bytes(images.read_bytes()[:-1])
    full = 16 + TRAIN_IMAGES * SIDE * SIDE
    cases = (
        (dict(data=absent), (), (str(absent), "apt-get install dataset-fashion-mnist")),
        (dict(data=truncated), (), (f"expected {full} bytes, found {full - 1}",)),
        ({}, ("--model", "vgg"), ("--model", "cnn, resnet18, resnet50")),
        ({}, ("--algorithm", "gossip"), ("--algorithm", "gradient_allreduce")),
        ({}, ("--algorithm", "extra", *EACH_SECOND), ("extra expects 1", "found 2")),
        ({}, ("--lr", "-1"), ("--lr",)),
        ({}, ("--lr", "1e308"), ("--lr: expected", "found 1e308")),
        ({}, ("--lr", "nan"), ("--lr: expected", "found nan")),
        ({}, ("--checkpoint", absent, "--resume"), (str(absent),)),
        ({}, ("--checkpoint", absent / "run"), (str(absent), "a folder that exists")),
        ({}, ("--metrics", absent / "m"), (str(absent), "cannot be opened")),
        ({}, ("--topology", "hypercube"), ()),  # fits 2 ranks: the control
    )
    for where, options, words in cases:
        done = runner.run(*options, "--max-batches", "1", "--epochs", "1", **where)
        check((done.returncode != 0) == bool(words), "an exit code that tells", done.returncode)
        for word in words:
            check(word in done.stderr + done.stdout, word, done.stderr)
    check(not absent.exists(), "no folder to be made", absent)
    broken = runner.folder / "broken"
    for content, words in ((b"", "an empty file"),
                           (b"PK\3\4 cut off", "an archive that is cut off"),
                           (b"no archive", "a file of another kind")):
        (runner.folder / "broken.rank0.pt").write_bytes(content)
        done = runner.run("--checkpoint", broken, "--resume", "--epochs", "1", ranks=1)
        check(done.returncode == 1, "exit code 1", done.returncode)
        check(words in done.stderr and str(broken) in done.stderr, words, done.stderr)
        check("miniz" not in done.stderr, "no word of a zip library", done.stderr)
    checkpoint_errors(runner)
    help_text = runner.run("--help")
    check(help_text.returncode == 0, "help to be no error", help_text.returncode)
    check(help_text.stdout.count("Usage:") == 1, "help once, not once a rank", help_text.stdout)


def checkpoint_errors(runner):
    """A full disk, a changed bit, and the state of another optimizer."""
    state = runner.folder / "kept"
    file = runner.folder / "kept.rank0.pt"
    short = ("--epochs", "1", "--max-batches", "1", "--max-test-images", "20",
             "--checkpoint", state)
    check(runner.run(*short, ranks=1).returncode == 0, "a checkpoint", "none")
    whole = file.read_bytes()
    changed = bytearray(whole)
    changed[len(whole) // 2] ^= 4
    full = runner.folder / "kept.rank0.pt.new"
    for name, options, words in (
            ("full disk", (), "No space left on device"),
            ("changed bit", ("--resume",), "found bytes that have changed since they were written"),
            ("other optimizer", ("--resume", "--optimizer", "adam"),
             "of a torch::optim::Adam, found that of a torch::optim::SGD")):
        file.write_bytes(changed if name == "changed bit" else whole)
        if name == "full disk":
            full.symlink_to("/dev/full")
        done = runner.run(*short, *options, ranks=1)
        check(done.returncode == 1, f"{name}: exit code 1", done.returncode)
        named = f"checkpoint file '{file}" in done.stderr
        check(words in done.stderr and named, f"{file}: {words}", done.stderr)


def main():
    cases = {case.__name__: case for case in (
        algorithms, more_algorithms, resume, diverges, alone, errors, killed_and_back, leaves,
        elastic_errors)}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bfrun", required=True)
    parser.add_argument("--program", required=True)
    parser.add_argument("case", choices=cases)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bluefog_train_") as folder:
        cases[arguments.case](Runner(arguments.bfrun, arguments.program, pathlib.Path(folder)))


if __name__ == "__main__":
    main()
