"""Runs train_pipeline on a small data set and checks what it prints and writes.

    train_pipeline_test.py --bfrun PATH --program PATH --ranks N --configurations FOLDER CASE

The data set has the files of MNIST, with images of four patches, whose brightest row tells the
class.
"""

import argparse
import json
import pathlib
import random
import re
import struct
import subprocess
import tempfile

SIDE, CLASSES = 8, 4
IMAGES, TEST_IMAGES, BATCH = 96, 40, 24
SMALL = f"""layers: 3
width: 16
heads: 2
patch: 4
lr: 0.01
epochs: 4
batch_size: {BATCH}
alpha: 0.6
"""
LAYERS = 8  # of the model: an embedding, two for each layer, a head
LINE = re.compile(r"^Epoch (\d): (\d) x (\d) stages, (\d+) of 8 layers frozen, \d+\.\d images/s, "
                  r"loss \d\.\d{4}, test accuracy \d+\.\d{2} %$", re.MULTILINE)
RANK_LINE = re.compile(r"^  rank \d \(pipeline \d, stage \d\): loading \d+ %, forward \d+ %, "
                       r"backward \d+ %, bubble \d+ %, all-reduce \d+ % \(\d+ % whole\), "
                       r"optimizer \d+ %; ", re.MULTILINE)
TRIAL = re.compile(r"^(\d) x (\d) stages: (\d+) micro-batches a step, the fastest in a trial$",
                   re.MULTILINE)
SECONDS = {"loading", "forward", "backward", "bubble", "allreduce_exposed", "allreduce",
           "optimizer", "total"}


def write_images(folder, part, count, rng):
    pixels, labels = bytearray(), bytearray()
    for index in range(count):
        label = index % CLASSES
        image = [rng.randrange(60) for _ in range(SIDE * SIDE)]
        for row in (label, label + 4):
            for column in range(SIDE):
                image[row * SIDE + column] += 190
        pixels += bytes(image)
        labels.append(label)
    (folder / f"{part}-images-idx3-ubyte").write_bytes(
        struct.pack(">IIII", 0x803, count, SIDE, SIDE) + bytes(pixels))
    (folder / f"{part}-labels-idx1-ubyte").write_bytes(
        struct.pack(">II", 0x801, count) + bytes(labels))


def write_cifar100(folder):
    """Records of two label bytes, of which the second counts."""
    rng = random.Random(2)
    for name, count in (("train.bin", 24), ("test.bin", 8)):
        (folder / name).write_bytes(b"".join(
            bytes([19, index % 100]) + rng.randbytes(3072) for index in range(count)))


class Runner:
    def __init__(self, arguments, folder):
        self.arguments, self.folder = arguments, folder
        self.data = folder / "data"
        self.data.mkdir()
        rng = random.Random(1)
        write_images(self.data, "train", IMAGES, rng)
        write_images(self.data, "t10k", TEST_IMAGES, rng)

    def run(self, text, *options, data=None):
        file = self.folder / "run.yaml"
        file.write_text(text)
        command = [self.arguments.bfrun, "-np", str(self.arguments.ranks), self.arguments.program,
                   file, "--data", data or self.data, *options]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                              timeout=240, check=False)
        print("$", *command, f"\n{text}{done.stdout}{done.stderr}(exit code {done.returncode})",
              flush=True)
        return done

    def train(self, text, *options, data=None):
        """A run that must succeed: the epochs that it printed, and its metrics by event."""
        metrics = self.folder / "metrics.jsonl"
        done = self.run(text, "--metrics", metrics, *options, data=data)
        check(done.returncode == 0, "exit code 0", done.returncode)
        events = {}
        for line in map(json.loads, metrics.read_text().splitlines()):
            events.setdefault(line["event"], []).append(line)
        return done.stdout, events

    def configuration(self, name):
        """One of the examples', for the small model."""
        return (self.arguments.configurations / name).read_text() + SMALL


def check(holds, expected, found):
    if not holds:
        raise AssertionError(f"expected {expected}, found {found}")


def epochs_of(output):
    return [[int(number) for number in line] for line in LINE.findall(output)]


def check_steps(runner, events):
    """Each step of each rank is there, its parts are no more than it, its rows are all rows."""
    ranks = runner.arguments.ranks
    steps = events["step"]
    check(len(steps) == 4 * (IMAGES // BATCH), f"{4 * (IMAGES // BATCH)} steps", len(steps))
    check(sum(step["rows"] for step in steps) == 4 * IMAGES, "all images in each epoch",
          [step["rows"] for step in steps])
    for step in steps:
        check([one["rank"] for one in step["ranks"]] == list(range(ranks)), "all ranks", step)
        for one in step["ranks"]:
            seconds = one["seconds"]
            check(set(seconds) == SECONDS, SECONDS, seconds)
            parts = sum(seconds[name] for name in ("forward", "backward", "bubble",
                                                   "allreduce_exposed", "optimizer"))
            check(parts <= seconds["total"] + 1e-9, "parts of the step", seconds)
            check(seconds["allreduce_exposed"] <= seconds["allreduce"], "a part of it", seconds)
    for epoch in events["epoch"]:
        own = [step for step in steps if step["epoch"] == epoch["epoch"]]
        for rank in range(ranks):
            moved = sum(step["ranks"][rank]["stage_bytes"] for step in own)
            check(epoch["ranks"][rank]["stage_bytes"] == moved, "the sum of its steps", moved)
        # A stage that is frozen as a whole has none.
        parameters = sum(one["allreduce_parameters"] for one in epoch["ranks"])
        has_peers = epoch["pipelines"] > 1
        check((parameters > 0) == has_peers, f"an all-reduce: {has_peers}", parameters)


def case_configurations(runner):
    """Freezing, stages and pipelines of each configuration."""
    ranks = runner.arguments.ranks
    for name, freezes, shrinks, caches in (
            ("no_freeze.yaml", False, False, False), ("freeze_only.yaml", True, False, False),
            ("freeze_pipe.yaml", True, False, False),
            ("freeze_pipe_cache.yaml", True, False, True), ("all.yaml", True, True, True)):
        text = runner.configuration(name)
        if "by_gradients" not in text:
            text += "by_gradients: false\n"  # so that it is known what freezes
        if name == "freeze_pipe.yaml":
            text += "costs: time\n"
        if name == "all.yaml":
            text += "try_micro_batches: true\n"
        output, events = runner.train(text)
        epochs = epochs_of(output)
        check([line[0] for line in epochs] == [1, 2, 3, 4], "four epochs", epochs)
        check(epochs[0][1:] == [1, ranks, 0], "a pipeline of all ranks at first", epochs)
        check(all(line[1] * line[2] == ranks for line in epochs), "all ranks in use", epochs)
        check((epochs[-1][3] > 0) == freezes, f"frozen layers: {freezes}", epochs)
        check((epochs[-1][2] < ranks) == shrinks, f"fewer stages: {shrinks}", epochs)
        check(len(RANK_LINE.findall(output)) == 4 * ranks, "a line an epoch and rank", output)
        several = {line[2] for line in epochs if line[2] > 1} if name == "all.yaml" else set()
        tried = [[int(word) for word in line] for line in TRIAL.findall(output)]
        check({stages for _, stages, _ in tried} == several, "a trial for each number of stages",
              output)
        check(len(tried) == len(several)
              and all(count in (stages, 2 * stages, 4 * stages, 8 * stages)
                      for _, stages, count in tried), "one of the numbers", tried)
        cached = sum(one["cached_rows"] for step in events["step"] for one in step["ranks"])
        check((cached > 0) == caches, f"rows from the cache: {caches}", cached)
        check_steps(runner, events)
        result, = events["result"]
        check(len(result["memory_mib"]) == ranks and min(result["memory_mib"]) > 0,
              "the memory of each rank", result)


def case_learns(runner):
    """The classes are learnt, with gradients and with parameters that replicas average."""
    for text in ("freeze: false\n", "freeze: false\nstages: 1\nreplicas: parameters\n"):
        _, events = runner.train(SMALL.replace("epochs: 4", "epochs: 8") + text)
        accuracy = events["result"][0]["test_accuracy"]
        check(accuracy > 0.9, "an accuracy above 0.9", accuracy)
        losses = [epoch["train_loss"] for epoch in events["epoch"]]
        check(losses[-1] < losses[0] / 2, "half of the first loss", losses)


    # A run that goes on from what another one has saved knows the classes at once.
    model = runner.folder / "model"
    text = SMALL.replace("epochs: 4", "epochs: 1") + "by_gradients: false\n"
    runner.train(SMALL.replace("epochs: 4", "epochs: 8") + "by_gradients: false\n",
                 "--save", model)
    _, events = runner.train(text.replace("lr: 0.01", "lr: 0.00001"), "--start", model,
                             "--skip", BATCH)
    accuracy = events["result"][0]["test_accuracy"]
    check(accuracy > 0.9, "an accuracy above 0.9 from the start", accuracy)
    check(events["epoch"][0]["rows"] == IMAGES - BATCH, "the images behind those that are skipped",
          events["epoch"][0]["rows"])


def case_cifar(runner):
    folder = runner.folder / "cifar"
    folder.mkdir()
    write_cifar100(folder)
    output, events = runner.train(SMALL.replace("patch: 4", "patch: 8"), data=folder)
    check("CIFAR-100: 24 training samples, 8 test samples" in output, "CIFAR-100", output)
    # Images of three channels in 16 patches, and 100 classes.
    width = 16
    expected = ((3 * 64 + 1 + 16) * width + 3 * (12 * width + 13) * width + 102 * width + 100)
    found = events["run"][0]["parameters"]
    check(found == expected, f"{expected} parameters", found)


def case_text(runner):
    """Masked bytes of a text that repeats itself, with each part of an elastic run."""
    file = runner.folder / "text"
    file.write_text("abcdefgh" * 400)
    text = SMALL.replace("patch: 4", "tokens: 16").replace("epochs: 4", "epochs: 12")
    text = text.replace("alpha: 0.6", "alpha: 0.2")
    output, events = runner.train(text + "model: bert\nby_gradients: false\ncache: true\n",
                                  data=file)
    check(f"{file}: 180 training samples, 20 test samples" in output, "its samples", output)
    accuracy = events["result"][0]["test_accuracy"]
    check(accuracy > 0.9, "an accuracy above 0.9", accuracy)
    epochs = epochs_of(output)
    check(epochs[-1][2] == 1 and epochs[-1][3] > 0, "one stage, and frozen layers", epochs)
    cached = sum(one["cached_rows"] for step in events["step"] for one in step["ranks"])
    check(cached > 0, "rows from the cache", cached)
    file.write_text("short")
    done = runner.run("model: bert\n", data=file)
    check("expected text of at least 640 bytes, 10 windows of 64, found 5" in done.stderr,
          "a refusal", done.stderr)


def case_errors(runner):
    missing = runner.folder / "missing"
    for text, options, data, expected in (
            ("frieze: true\n", (), None, "line 1: expected keys of model, stages, schedule"),
            ("alpha: deep\n", (), None, "expected a number between 0 and 1 for 'alpha'"),
            ("stages: 3\n" + SMALL, (), None, "divides"),
            ("micro_batches: 4\ntry_micro_batches: true\n" + SMALL, (), None,
             "expected micro_batches of 0 with try_micro_batches, found 4"),
            ("patch: 3\n", (), None, "patches of 3 pixels and a side of 8"),
            ("layers: 1\nwidth: 10\npatch: 4\n", (), None, "a width of 10 and 4 heads"),
            (SMALL, (), missing, "does not exist"),
            (SMALL, ("--images", "-1"), None, "--images"),
            (SMALL, ("--skip", IMAGES), None,
             f"--skip: expected less than the {IMAGES} images of"),
            (SMALL, ("--start", missing), None, f"--start {missing}: expected a model"),
            (SMALL.replace("lr: 0.01", "lr: 99999"), (), None,
             "expected a loss that is a number, found "),
            (SMALL.replace("epochs: 4", "epochs: 1"), ("--save", "/dev/full"), None,
             "--save /dev/full: expected a file that can be written"),
            (SMALL, ("--metrics", missing / "file"), None, "cannot be opened for writing"),
            ("cache: true\ncache_folder: /nowhere\n" + SMALL, (), None, "/nowhere")):
        done = runner.run(text, *options, data=data)
        check(done.returncode != 0, "an error", done.returncode)
        check(expected in done.stderr, expected, done.stderr)
    # All ranks refuse a file that cannot be written, before they train.
    for path, reason in ((missing / "file", "No such file or directory"),
                         (runner.folder, "Is a directory")):
        done = runner.run(SMALL, "--save", path)
        check(done.returncode != 0 and not done.stdout, "no training", done.stdout)
        check(f"--save {path}: expected a file that can be written" in done.stderr
              and reason in done.stderr, reason, done.stderr)
        refusals = done.stderr.count("expected a file that can be written")
        check(refusals == runner.arguments.ranks, "a refusal of each rank", refusals)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bfrun", type=pathlib.Path, required=True)
    parser.add_argument("--program", type=pathlib.Path, required=True)
    parser.add_argument("--configurations", type=pathlib.Path, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("case")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        globals()[f"case_{arguments.case}"](Runner(arguments, pathlib.Path(folder)))


if __name__ == "__main__":
    main()
