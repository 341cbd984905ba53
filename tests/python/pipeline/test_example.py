"""The example of a pipeline, briefly, in the process of the test."""

import json
import pathlib
import random
import re
import runpy
import sys

import pytest
import torch
import torch.distributed as dist

from bluefog_cpp.pipeline import ElasticPipeline

EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples"
TINY = ("--images", 96, "--test-images", 40)
LINE = re.compile(r"^Epoch (\d): (\d) x (\d) stages, (\d+) of 6 layers frozen, \d+\.\d images/s, "
                  r"loss \d\.\d{4}, test accuracy \d+\.\d{2} %$", re.MULTILINE)


@pytest.fixture
def run(monkeypatch, capfd):
    """Runs the script in the default group of the test, and gives what it prints."""
    pytest.importorskip("yaml")
    monkeypatch.setattr(dist, "init_process_group", lambda *_: None)
    monkeypatch.setattr(dist, "destroy_process_group", lambda: None)
    monkeypatch.syspath_prepend(str(EXAMPLES))

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["pytorch_pipeline.py", *map(str, arguments)])
        runpy.run_path(str(EXAMPLES / "pytorch_pipeline.py"), run_name="__main__")
        return capfd.readouterr().out

    return call


def written(tmp_path, text):
    file = tmp_path / "run.yaml"
    file.write_text(text)
    return file


needs_images = pytest.mark.skipif(not pathlib.Path("/usr/share/datasets/fashion-mnist").exists(),
                                  reason="dataset-fashion-mnist is not installed")


@needs_images
@pytest.mark.parametrize("text, shrinks", (
    ("alpha: 0.6\nby_gradients: false\n", True), ("freeze: false\nschedule: gpipe\n", False),
    ("alpha: 0.6\nby_gradients: false\nshrink: false\n", False)))
def test_lines(run, tmp_path, text, shrinks):
    printed = run(written(tmp_path, text + "layers: 2\nwidth: 16\nheads: 2\nepochs: 4\n"
                                           "batch_size: 24\ntry_micro_batches: true\n"), *TINY)
    if dist.get_rank():
        assert not LINE.search(printed)
        return
    assert (f"1 x {dist.get_world_size()} stages: " in printed) == (dist.get_world_size() > 1)
    lines = [[int(number) for number in line] for line in LINE.findall(printed)]
    assert [line[0] for line in lines] == [1, 2, 3, 4]
    size = dist.get_world_size()
    assert all(replicas * stages == size for _, replicas, stages, _ in lines)
    assert lines[0][1:] == [1, size, 0]
    assert (lines[-1][2] < size) == shrinks
    assert (lines[-1][3] > 0) == ("freeze: false" not in text)


def test_a_text(run, tmp_path):
    data = tmp_path / "text"
    data.write_text("abcdefgh" * 400)
    chosen = ("model: bert\ntokens: 16\nlayers: 2\nwidth: 16\nheads: 2\nepochs: 8\nlr: 0.01\n"
              "batch_size: 24\nfreeze: false\n")
    printed = run(written(tmp_path, chosen), "--data", data)
    if dist.get_rank() == 0:
        found = [float(rate) for rate in re.findall(r"test accuracy (\d+\.\d+) %", printed)]
        assert len(found) == 9 and found[-1] > 90
    data.write_text("short")
    with pytest.raises(SystemExit) as ended:
        run(written(tmp_path, "model: bert\n"), "--data", data)
    assert "expected text of at least 640 bytes, 10 windows of 64, found 5" in str(ended.value)


@needs_images
@pytest.mark.parametrize("words", ((), ("--ddp",)))
def test_metrics(run, tmp_path, words):
    file = tmp_path / "metrics.jsonl"
    printed = run(written(tmp_path, "freeze: false\nlayers: 2\nwidth: 16\nheads: 2\nepochs: 2\n"
                                    "batch_size: 24\n"), *TINY, "--metrics", file, *words)
    size = dist.get_world_size()
    if dist.get_rank():
        assert not file.exists()
        return
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    steps = [line for line in lines if line["event"] == "step"]
    assert [step["step"] for step in steps] == [1, 2, 3, 4] * 2
    assert all(step["rows"] == 24 for step in steps)
    for step in steps:
        assert [one["rank"] for one in step["ranks"]] == list(range(size))
        for one in step["ranks"]:
            seconds = one["seconds"]
            assert seconds["forward"] > 0 and seconds["backward"] > 0 and seconds["loading"] > 0
            parts = ("forward", "backward", "bubble", "allreduce_exposed", "optimizer")
            assert sum(seconds[name] for name in parts) <= seconds["total"] + 1e-9
            assert (one["stage_bytes"] > 0) == (not words)
            assert (one["allreduce_parameters"] > 0) == bool(words)
    epochs = [line for line in lines if line["event"] == "epoch"]
    for epoch in epochs:
        own = [step for step in steps if step["epoch"] == epoch["epoch"]]
        assert epoch["ranks"][0]["seconds"]["forward"] == pytest.approx(
            sum(step["ranks"][0]["seconds"]["forward"] for step in own))
    assert [(epoch["pipelines"], epoch["stages"]) for epoch in epochs] == [
        (size, 1) if words else (1, size)] * 2
    assert lines[0]["event"] == "run" and lines[0]["layers"] == 2
    assert lines[-1]["event"] == "result" and len(lines[-1]["memory_mib"]) == size
    assert printed.count("  rank 0 (pipeline 0, stage 0): loading ") == 2


def test_each_configuration_is_read(run):
    from helpers import pipeline_configuration
    for file in sorted((EXAMPLES / "pipeline_configurations").glob("*.yaml")):
        chosen = pipeline_configuration.read(file)
        assert chosen.freeze == (file.name != "no_freeze.yaml")
        assert chosen.cache == (file.name in ("all.yaml", "bert.yaml", "cifar.yaml",
                                              "freeze_pipe_cache.yaml"))
        assert chosen.shrink == (not file.name.startswith("freeze"))


@pytest.mark.parametrize("text, expected", (
    ("frieze: true\n", "expected keys of model, stages, schedule, "),
    ("alpha: deep\n", "expected a number between 0 and 1 for 'alpha', found 'deep'"),
    ("epochs: true\n", "expected a whole number from 1 to 1073741824 for 'epochs', found True"),
    ("lr: .nan\n", "for 'lr', found nan"), ("epochs: 0\n", "for 'epochs', found 0"),
    ("schedule: zb\n", "expected 1f1b or gpipe for 'schedule', found 'zb'"),
    ("freeze: 1\n", "expected true or false for 'freeze', found 1"),
    ("replicas: parameters\n", "replicas: expected gradients"),
    ("micro_batches: 4\ntry_micro_batches: true\n",
     "expected micro_batches of 0 with try_micro_batches, found 4"),
    ("epochs: 3\nepochs: 4\n", "expected 'epochs' once, found it twice"),
    ("- a\n", "expected names with values, found ['a']"), ("a: [\n", "expected a YAML file"),
    (None, "expected a YAML file, found: ")))
def test_files_that_do_not_fit(run, tmp_path, text, expected):
    file = tmp_path / "none.yaml" if text is None else written(tmp_path, text)
    with pytest.raises(SystemExit) as ended:
        run(file, *TINY)
    assert expected in str(ended.value)


@pytest.fixture
def shared(tmp_path):
    """A folder that all ranks have, rank 0's."""
    found = [str(tmp_path)]
    dist.broadcast_object_list(found, 0)
    return pathlib.Path(found[0])


def small_text(folder, more=""):
    data = folder / "text"
    if dist.get_rank() == 0:
        data.write_text("abcdefgh" * 400)
        written(folder, "model: bert\ntokens: 16\nlayers: 2\nwidth: 16\nheads: 2\nepochs: 1\n"
                        f"batch_size: 24\nfreeze: false\n{more}")
    dist.barrier()
    return (folder / "run.yaml", "--data", data)


@pytest.mark.parametrize("option", ("--save", "--metrics", "--start"))
def test_files_of_rank_zero_that_cannot_be_end_all_ranks_before_they_train(run, shared, option):
    words = small_text(shared)
    with pytest.raises(SystemExit) as ended:
        run(*words, option, shared / "none" / "file")
    expected = "a model of these sizes" if option == "--start" else "a file that can be written"
    assert str(ended.value).startswith(f"{option} {shared}/none/file: expected {expected}, found: ")
    with pytest.raises(SystemExit) as ended:
        run(*words, option, shared)  # a folder
    assert "Is a directory" in str(ended.value)


@pytest.mark.parametrize("content", (b"", b"abc", b"hello world\n" * 100))
def test_a_file_that_is_no_model_ends_all_ranks_by_the_same_words(run, shared, content):
    words = small_text(shared)
    if dist.get_rank() == 0:
        (shared / "model").write_bytes(content)
    dist.barrier()
    with pytest.raises(SystemExit) as ended:
        run(*words, "--start", shared / "model")
    assert str(ended.value).startswith(f"--start {shared}/model: expected a model of these sizes, ")
    every = [None] * dist.get_world_size()
    dist.all_gather_object(every, str(ended.value))
    assert len(set(every)) == 1


@pytest.mark.parametrize("inner", (".", "cifar-100-binary"))
def test_the_files_of_cifar_100(run, shared, inner):
    """Records of two label bytes, of which the second counts, in the folder or as unpacked."""
    folder, rng = shared / inner, random.Random(2)
    if dist.get_rank() == 0:
        folder.mkdir(exist_ok=True)
        for name, count in (("train.bin", 24), ("test.bin", 8)):
            (folder / name).write_bytes(b"".join(
                bytes([19, index % 100]) + rng.randbytes(3072) for index in range(count)))
        written(shared, "layers: 3\nwidth: 16\nheads: 2\npatch: 8\nepochs: 1\nbatch_size: 12\n")
    dist.barrier()
    run(shared / "run.yaml", "--data", shared, "--metrics", shared / "metrics")
    if dist.get_rank() == 0:
        lines = [json.loads(line) for line in (shared / "metrics").read_text().splitlines()]
        # Images of three channels in 16 patches, and 100 classes.
        width = 16
        expected = (3 * 64 + 1 + 16) * width + 3 * (12 * width + 13) * width + 102 * width + 100
        assert lines[0]["parameters"] == expected
        assert [line["rows"] for line in lines if line["event"] == "step"] == [12, 12]


def test_a_loss_that_is_no_number_ends_the_run(run, shared):
    with pytest.raises(SystemExit) as ended:
        run(*small_text(shared, "lr: 99999\n"))
    assert str(ended.value).startswith("epoch 1: expected a loss that is a number, found nan: the "
                                       "lr 99999.0 may be too large")


@pytest.mark.parametrize("samples", (1, 11))
def test_every_test_sample_is_judged_once(run, shared, samples, monkeypatch):
    seen = []
    evaluate = ElasticPipeline.evaluate

    def noted(pipe, inputs, rows):
        outputs = evaluate(pipe, inputs, rows)
        if outputs is not None:
            seen.append(rows)
        return outputs

    monkeypatch.setattr(ElasticPipeline, "evaluate", noted)
    run(*small_text(shared, "stages: 1\n"), "--test-images", samples)
    every = [None] * dist.get_world_size()
    dist.all_gather_object(every, sum(seen))
    assert sum(every) == samples


def test_a_model_is_written_whole_or_not_at_all(run, shared):
    words = small_text(shared)
    model = shared / "model"
    run(*words, "--save", model)
    if dist.get_rank() == 0:
        before = model.read_bytes()
        assert "0.places" in torch.load(model, weights_only=True)
    dist.barrier()
    printed = run(*words, "--start", model, "--save", "/dev/null")
    assert ("Epoch 1" in printed) == (dist.get_rank() == 0)
    with pytest.raises(SystemExit) as ended:
        run(*words, "--save", "/dev/full")
    assert "--save /dev/full: expected a file that can be written" in str(ended.value)
    if dist.get_rank() == 0:
        assert model.read_bytes() == before
        assert sorted(file.name for file in shared.iterdir()) == ["model", "run.yaml", "text"]
