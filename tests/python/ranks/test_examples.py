"""The example scripts, briefly, in the process of the test: what they compute and what they
print."""

import pathlib
import re
import runpy
import sys

import pytest
import torch

import bluefog_cpp.torch as bf
from bluefog_cpp.util import env
from conftest import EXAMPLES, needs


def refusal(run, capfd, *arguments):
    """The message of a script that ends on its arguments."""
    with pytest.raises(SystemExit) as ended:
        run(*arguments)
    return f"{ended.value} {capfd.readouterr().err}"


def common_folder(tmp_path):
    """Rank 0's, for all ranks."""
    text = torch.tensor(list(str(tmp_path).ljust(300).encode()), dtype=torch.uint8)
    return pathlib.Path(bytes(bf.broadcast(text, 0).tolist()).decode().strip())


# ---- --device

@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("script, options", (
    ("pytorch_benchmark.py", ("--model", "squeezenet1_1")), ("pytorch_mnist.py", ()),
    ("pytorch_resnet.py", ("--synthetic", 8))), ids=str)
def test_a_device_that_is_not_there(run, capfd, script, options):
    if script != "pytorch_mnist.py":
        pytest.importorskip("torchvision")
    text = refusal(run, capfd, script, "--device", "cuda", *options)
    assert "--device cuda: expected a torch with CUDA and a GPU, found " in text


# ---- pytorch_benchmark.py

TINY = ("--model", "squeezenet1_1", "--image-size", 32, "--batch-size", 2, "--num-iters", 2,
        "--num-batches-per-iter", 1, "--num-warmup-batches", 1)


@pytest.mark.up_to_ranks(2)
@pytest.mark.from_ranks(2)
@pytest.mark.parametrize("options", (
    (), ("--atc-style", "--disable-dynamic-topology"), ("--dist-optimizer", "horovod"),
    ("--dist-optimizer", "win_put"), ("--dist-optimizer", "pull_get"),
    ("--dist-optimizer", "push_sum"),
    ("--dist-optimizer", "pytorch_ddp")), ids=str)
def test_benchmark(run, options, rank, size):
    pytest.importorskip("torchvision")
    printed = run("pytorch_benchmark.py", *TINY, *options)
    if rank > 0:
        assert printed == ""
        return
    assert "Model: squeezenet1_1\nBatch size: 2\n" in printed
    assert len(re.findall(r"^Iter #[01]: \d+\.\d img/sec per CPU$", printed, re.MULTILINE)) == 2
    assert re.search(rf"^Total img/sec on {size} CPU\(s\): \d+\.\d \+- \d+\.\d\n\Z", printed,
                     re.MULTILINE)
    assert ("gradient all-reduce" in printed) == ("horovod" in options)


def test_benchmark_on_two_machines(run, rank, size):
    pytest.importorskip("torchvision")
    needs(4)
    bf.shutdown()
    with env(BLUEFOG_NODES_PER_MACHINE="2"):
        bf.init()
    printed = run("pytorch_benchmark.py", *TINY, "--dist-optimizer",
                  "hierarchical_neighbor_allreduce")
    assert ("Total img/sec on 4 CPU(s)" in printed) == (rank == 0)


def test_benchmark_of_wrong_models(run, capfd):
    pytest.importorskip("torchvision")
    assert "there is resnet50" in refusal(run, capfd, "pytorch_benchmark.py", "--model", "resnet5O")
    for script, option, value, least in (
            ("pytorch_benchmark.py", "--num-iters", 0, 1),
            ("pytorch_benchmark.py", "--num-warmup-batches", -3, 0),
            ("pytorch_optimization.py", "--max-iters", 0, 1),
            ("pytorch_average_consensus.py", "--data-size", "x", 1),
            ("pytorch_resnet.py", "--synthetic", 0, 1), ("pytorch_mnist.py", "--batch-size", 0, 1)):
        assert (f"{option}: expected a number of {least} or more, found {value}"
                in refusal(run, capfd, script, option, value))
    assert "expected a folder that exists" in refusal(
        run, capfd, "pytorch_optimization.py", "--save-plot-file", "/none/such.png")


# ---- --topology FILE

def test_a_graph_from_a_file(run, capfd, tmp_path, rank, size):
    file = common_folder(tmp_path) / "graph.txt"
    if rank == 0:
        file.write_text("".join(f"{i} {(i + 1) % size} 0.5\n{i} {i} 0.5\n"
                                for i in range(size)) if size > 1 else "0 0 1\n")
    bf.barrier()
    run("pytorch_average_consensus.py", "--topology", file, "--max-iters", 60, "--data-size", 10)
    assert bf.in_neighbor_ranks() == [(rank - 1) % size] * (size > 1)
    run("pytorch_optimization.py", "--topology", file, "--max-iters", 2, "--method", "push_diging")
    absent = refusal(run, capfd, "pytorch_optimization.py", "--topology", f"{file}.not")
    assert "invalid choice" in absent and "or a file of lines" in absent


# ---- pytorch_resnet.py

RESNET = ("pytorch_resnet.py", "--synthetic", 16, "--batch-size", 2, "--atc-style",
          "--warmup-epochs", 1,
          "--decay-epochs", 1)


@pytest.mark.from_ranks(2)
@pytest.mark.up_to_ranks(2)
def test_resnet_goes_on_from_its_checkpoint(run, tmp_path, rank, size):
    pytest.importorskip("torchvision")
    folder = common_folder(tmp_path) / "state"
    half = run(*RESNET, "--epochs", 1, "--checkpoint", folder, "--global-average-period", 2)
    state = torch.load(folder / f"rank{rank}-of-{size}.pt")
    assert state["epochs_done"] == 1 and state["optimizer"]["state"]
    rest = run(*RESNET, "--epochs", 2, "--checkpoint", folder, "--resume")
    assert ("Epoch 1" in half, "Epoch 1" in rest, "Epoch 2" in rest) == (rank == 0, False,
                                                                         rank == 0)
    bf.barrier()


@pytest.mark.up_to_ranks(1)
def test_resnet_names_a_checkpoint_that_is_not_its_own(run, capfd, tmp_path):
    pytest.importorskip("torchvision")
    file = tmp_path / "rank0-of-1.pt"
    run(*RESNET, "--epochs", 1, "--checkpoint", tmp_path)
    whole = bytearray(file.read_bytes())
    whole[len(whole) // 2] ^= 4
    file.write_bytes(whole)
    text = refusal(run, capfd, *RESNET, "--epochs", 2, "--checkpoint", tmp_path, "--resume")
    assert f"rank 0: {file}: expected the bytes that were written" in text
    torch.save({"epochs_done": 1, "model": {}, "optimizer": {}}, file)
    text = refusal(run, capfd, *RESNET, "--epochs", 2, "--checkpoint", tmp_path, "--resume")
    assert f"rank 0: {file}: expected a checkpoint of this run, found: " in text
    (tmp_path / "rank0-of-1.pt.new").symlink_to("/dev/full")
    text = refusal(run, capfd, *RESNET, "--epochs", 1, "--checkpoint", tmp_path)
    assert f"rank 0: {file}: expected to write a checkpoint" in text
    assert "No space left on device" in text


@pytest.mark.up_to_ranks(1)
@pytest.mark.parametrize("value", ("1e308", "nan", "inf", "-1", "0", "fast"))
def test_rates_that_are_none(run, capfd, value):
    pytest.importorskip("torchvision")
    for script, option in (("pytorch_resnet.py", "--base-lr"), ("pytorch_mnist.py", "--lr"),
                           ("pytorch_optimization.py", "--lr")):
        assert (f"{option}: expected a number of more than 0 and at most 1e+38, found {value}"
                in refusal(run, capfd, script, f"{option}={value}"))


def test_resnet_refuses_what_it_cannot_do(run, capfd, tmp_path):
    pytest.importorskip("torchvision")
    script, *_ = RESNET
    assert "found both" in refusal(run, capfd, script, "--data", tmp_path, "--synthetic", 8)
    assert "data_batch_1.bin" in refusal(run, capfd, script, "--data", tmp_path)
    assert "--checkpoint" in refusal(run, capfd, script, "--synthetic", 8, "--resume")
    assert "not there" in refusal(run, capfd, script, "--synthetic", 8, "--resume", "--checkpoint",
                                  tmp_path)
    assert "found win_put" in refusal(run, capfd, script, "--synthetic", 8, "--dist-optimizer",
                                      "win_put",
                                      "--global-average-period", 2)


def test_learning_rates(monkeypatch, size):
    pytest.importorskip("torchvision")
    monkeypatch.syspath_prepend(EXAMPLES)
    resnet = runpy.run_path(str(EXAMPLES / "pytorch_resnet.py"))
    monkeypatch.setattr(sys, "argv", ["pytorch_resnet.py", "--synthetic", "8", "--base-lr", "1",
                                      "--warmup-epochs", "4", "--warmup-start", "0.5",
                                      "--decay-epochs", "6", "8", "--decay", "0.25"])
    arguments = resnet["parse_arguments"]()
    rates = [resnet["learning_rate"](arguments, epoch) for epoch in (0, 2, 4, 6, 8)]
    assert rates == [0.5, (0.5 + size) / 2, size, size / 4, size / 16]


def test_cifar_files(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(EXAMPLES)
    from helpers import cifar
    image = bytes([7] * 1024 + [100] * 1024 + [250] * 1024)
    other = bytes(range(256)) * 12
    for name in ("train.bin", "test.bin"):
        (tmp_path / name).write_bytes(bytes([3, 42]) + image + bytes([4, 99]) + other)
    train, test, classes = cifar.load(tmp_path)
    assert classes == 100 and [int(label) for _, label in train] == [42, 99]
    images = torch.stack([pixels for pixels, _ in test])
    assert images.shape == (2, 3, 32, 32)
    # Sums of float32 over 2048 values of size 1.
    assert images.mean((0, 2,
                        3)).abs().max() < 1e-5 and (images.std((0, 2, 3)) - 1).abs().max() < 1e-5
    assert cifar.Augmented(train)[0][0].shape == (3, 32, 32)
    (tmp_path / "test.bin").write_bytes(image)
    with pytest.raises(SystemExit, match="expected images of 3074 bytes, found 3072 bytes"):
        cifar.load(tmp_path)


# ---- pytorch_optimization.py


@pytest.mark.parametrize("task", ("linear_regression", "logistic_regression"))
def test_optimization(run, task, rank, size):
    # A ring of up to three ranks averages exactly. Rates of convergence: factors of ten are left.
    limits = {"diffusion": (1e-5 if size > 3 else 0, 0.2), "exact_diffusion": (0, 1e-7),
              "gradient_tracking": (0, 1e-7), "push_diging": (0, 1e-7)}
    rate = 0.1 if task == "linear_regression" else 0.4
    printed = run("pytorch_optimization.py", "--task", task, "--max-iters", 400, "--lr", rate,
                  "--regularization", 0.2)
    found = {method: float(error)
             for method, error in re.findall(rf"^{task}, (\w+): (\S+) from", printed, re.MULTILINE)}
    assert set(found) == (set(limits) if rank == 0 else set())
    for method, error in found.items():
        low, high = limits[method]
        assert low <= error <= high, (method, error)


def test_optimization_is_drawn(run, tmp_path, rank):
    pytest.importorskip("matplotlib")
    picture = tmp_path / "errors.png"
    run("pytorch_optimization.py", "--max-iters", 3, "--save-plot-file", picture)
    assert picture.exists() == (rank == 0)
