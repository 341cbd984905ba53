"""The training scripts, pytorch_mnist.py and pytorch_resnet.py, with the options of BlueFog's."""

import pathlib
import runpy
import struct
import types

import pytest
import torch

import bluefog_cpp.torch as bf
from conftest import EXAMPLES
from test_examples import common_folder, refusal
from test_published_options import PUBLISHED, words_of

# ---- pytorch_mnist.py


def write_idx(path, values):
    path.write_bytes(
        bytes((0, 0, 8, values.dim()))
        + struct.pack(f">{values.dim()}i", *values.shape)
        + bytes(values.flatten().tolist())
    )


@pytest.mark.from_ranks(2)
@pytest.mark.up_to_ranks(2)
@pytest.mark.parametrize("case", (PUBLISHED[0], PUBLISHED[6], PUBLISHED[7]), ids=" ".join)
def test_mnist(run, case, rank, tmp_path):
    for part, count in (("train", 12), ("t10k", 4)):
        write_idx(tmp_path / f"{part}-images-idx3-ubyte", torch.randint(256, (count, 8, 8)))
        write_idx(tmp_path / f"{part}-labels-idx1-ubyte", torch.arange(count) % 10)
    printed = run(
        "pytorch_mnist.py",
        "--epochs=1",
        "--data",
        tmp_path,
        "--batch-size",
        2,
        "--no-cuda",
        "--log-interval",
        2,
        "--average-test-result",
        "--virtual-topology",
        "star",
        *words_of(case),
    )
    assert f"[rank {rank}] epoch 1, batch 2/" in printed and "batch 1/" not in printed
    assert ("Epoch 1: test accuracy" in printed) == (rank == 0)


@pytest.mark.up_to_ranks(1)
def test_mnist_of_a_damaged_file(run, capfd, tmp_path):
    (tmp_path / "train-images-idx3-ubyte").write_bytes(b"\0\0\x08\x03\0")
    said = refusal(run, capfd, "pytorch_mnist.py", "--data", tmp_path)
    assert "the header of an IDX file of 3 dimensions (00000803), found 5 bytes" in said


# ---- pytorch_resnet.py

TINY = ("pytorch_resnet.py", "--epochs=1", "--batch-size", 2, "--no-cuda")


@pytest.mark.from_ranks(2)
@pytest.mark.up_to_ranks(2)
@pytest.mark.parametrize("case", (PUBLISHED[0], PUBLISHED[5], PUBLISHED[8]), ids=" ".join)
def test_resnet_takes_other_models_and_several_batches_a_step(run, case, rank, size):
    pytest.importorskip("torchvision")
    printed = run(
        *TINY,
        "--model=squeezenet1_0",
        "--synthetic",
        8 * size,
        "--batches-per-allreduce",
        2,
        "--virtual-topology=power2",
        *words_of(case),
    )
    assert ("Epoch 1: training loss" in printed) == (rank == 0)


@pytest.mark.up_to_ranks(1)
def test_several_batches_are_one_step_of_their_mean(monkeypatch):
    pytest.importorskip("torchvision")
    monkeypatch.syspath_prepend(EXAMPLES)
    resnet = runpy.run_path(str(EXAMPLES / "pytorch_resnet.py"))
    images, labels = torch.randn(6, 3), torch.arange(6) % 2
    weights = []
    for parts in (1, 3):
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 2).double()
        optimizer = bf.DistributedGradientAllreduceOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.5), model, num_steps_per_communication=parts
        )
        arguments = types.SimpleNamespace(
            base_lr=0.5 / parts,
            warmup_epochs=0,
            decay=0.1,
            decay_epochs=[],
            batches_per_allreduce=parts,
        )
        resnet["train"](
            arguments, torch.device("cpu"), model, optimizer, (), [(images.double(), labels)], 0
        )
        optimizer.finish()
        weights.append(model.weight.detach().clone())
    # Means of two and of six losses, which are added up in another order.
    assert (weights[0] - weights[1]).abs().max() < 1e-14


@pytest.mark.from_ranks(2)
@pytest.mark.up_to_ranks(2)
def test_resnet_on_folders_of_images(run, capfd, rank, tmp_path):
    pytest.importorskip("torchvision")
    from PIL import Image

    for place in ("train", "val"):
        for label in ("cat", "dog"):
            folder = tmp_path / place / label
            folder.mkdir(parents=True)
            for number in range(2):
                Image.new("RGB", (300, 260), (40 * number, 80, 120)).save(folder / f"{number}.png")
    folders = (
        "--train-dir",
        tmp_path / "train",
        "--val-dir",
        tmp_path / "val",
    )
    shared = common_folder(tmp_path)
    printed = run(
        *TINY,
        *folders,
        "--model=squeezenet1_1",
        "--checkpoint-format",
        shared / "states" / "checkpoint-{epoch}.pth.tar",
    )
    assert ("Epoch 1: training loss" in printed) == (rank == 0)
    bf.barrier()
    state = torch.load(shared / "states" / "checkpoint-1.pth.tar")
    assert state["epochs_done"] == 1 and state["model"] and state["optimizer"]
    bf.barrier()
    assert "--val-dir: expected a folder with a folder of images" in refusal(
        run, capfd, *TINY, *folders[:-1], tmp_path / "none"
    )
    assert "--train-dir: expected --dataset imagenet, found cifar10" in refusal(
        run, capfd, *TINY, *folders, "--dataset", "cifar10"
    )
    assert "expected --train-dir and --val-dir, found --synthetic" in refusal(
        run, capfd, *TINY, *folders, "--synthetic", 8
    )
    assert "--checkpoint-format: expected a name with {epoch}" in refusal(
        run, capfd, *TINY, "--synthetic", 8, "--checkpoint-format", "checkpoint-{step}"
    )


@pytest.mark.up_to_ranks(2)
def test_resnet_writes_for_tensorboard(run, capfd, tmp_path, rank):
    pytest.importorskip("torchvision")
    options = (*TINY, "--synthetic", 8 * bf.size(), "--log-dir", tmp_path / "logs")
    try:
        import tensorboard  # noqa: F401
    except ImportError:
        assert "--log-dir: expected the package tensorboard, found none" in refusal(
            run, capfd, *options
        )
    else:
        run(*options)
        assert any((tmp_path / "logs").glob("events*")) == (rank == 0)


@pytest.mark.from_ranks(2)
@pytest.mark.up_to_ranks(2)
def test_resnet_fetches_cifar(run, capfd, monkeypatch, rank):
    datasets = pytest.importorskip("torchvision.datasets")
    numpy = pytest.importorskip("numpy")

    def found(folder, train=True, download=False):
        assert pathlib.Path(folder) == pathlib.Path("data")
        count = 8 * bf.size() if train else 4
        return types.SimpleNamespace(
            data=numpy.random.default_rng(0).integers(
                256, size=(count, 32, 32, 3), dtype=numpy.uint8
            ),
            targets=[label % 10 for label in range(count)],
        )

    monkeypatch.setattr(datasets, "CIFAR10", found)
    assert ("Epoch 1" in run(*TINY, "--model=squeezenet1_0")) == (rank == 0)

    def missing(folder, download=False):
        raise OSError("no network")

    monkeypatch.setattr(datasets, "CIFAR10", missing)
    said = refusal(run, capfd, *TINY)
    assert ("CIFAR-10 is not in data and could not be fetched: no network; name a" in said) == (
        rank == 0
    )
