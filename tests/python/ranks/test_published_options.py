"""The example scripts take the options of BlueFog's scripts, or say what to use in their place."""

import pathlib
import runpy
import struct
import types

import pytest
import torch

import bluefog_cpp
import bluefog_cpp.torch as bf
from conftest import EXAMPLES, needs
from test_examples import common_folder, refusal

SHORT = (
    "--model=lenet",
    "--batch-size",
    4,
    "--num-iters=1",
    "--num-batches-per-iter",
    2,
    "--num-warmup-batches",
    0,
    "--no-cuda",
)
# The cases that BlueFog's own script of all examples runs.
PUBLISHED = (
    ("gradient_allreduce",),
    ("allreduce",),
    ("allreduce", "--atc-style"),
    ("neighbor_allreduce",),
    ("neighbor_allreduce", "--disable-dynamic-topology"),
    ("neighbor_allreduce", "--atc-style"),
    ("neighbor_allreduce", "--atc-style", "--disable-dynamic-topology"),
    ("win_put",),
    ("win_put", "--disable-dynamic-topology"),
)
MORE = (
    ("hierarchical_neighbor_allreduce",),
    ("pull_get",),
    ("push_sum",),
    ("horovod",),
    ("empty",),
)


def words_of(case):
    return (f"--dist-optimizer={case[0]}", *case[1:])


# ---- pytorch_benchmark.py


@pytest.mark.up_to_ranks(2)
@pytest.mark.parametrize("case", PUBLISHED + MORE, ids=" ".join)
def test_benchmark_by_each_optimizer(run, case, rank, size):
    pytest.importorskip("torchvision")
    printed = run("pytorch_benchmark.py", *SHORT, *words_of(case))
    assert (f"Total img/sec on {size} CPU(s): " in printed) == (rank == 0)


@pytest.mark.up_to_ranks(2)
def test_benchmark_options(run, rank):
    pytest.importorskip("torchvision")
    printed = run(
        "pytorch_benchmark.py",
        *SHORT,
        "--num-classes",
        10,
        "--profiler",
        "--virtual-topology",
        "ring",
        "--enable-dynamic-topology",
    )
    assert ("Self CPU" in printed) == (rank == 0)


@pytest.mark.up_to_ranks(1)
def test_inner_outer_graphs_change_from_step_to_step(run, capfd):
    pytest.importorskip("torchvision")
    wrong = refusal(
        run,
        capfd,
        "pytorch_benchmark.py",
        *SHORT,
        "--virtual-topology",
        "InnerOuterRing",
        "--dist-optimizer",
        "win_put",
    )
    assert (
        "--virtual-topology InnerOuterRing: expected --dist-optimizer neighbor_allreduce" in wrong
    )
    for options in ((), ("--enable-dynamic-topology", "--asynchronous-mode")):
        assert (
            "InnerOuterExpo2: expected --enable-dynamic-topology, without --asynchronous-mode"
            in refusal(
                run,
                capfd,
                "pytorch_average_consensus.py",
                "--virtual-topology",
                "InnerOuterExp2",
                *options,
            )
        )


@pytest.mark.up_to_ranks(2)
def test_inner_outer_graphs_want_machines(run):
    pytest.importorskip("torchvision")
    needs(2)
    with pytest.raises(
        bluefog_cpp.InvalidArgument, match="outer exponential schedule: .* expected at least"
    ):
        run(
            "pytorch_benchmark.py",
            *SHORT,
            "--virtual-topology",
            "InnerOuterExp2",
            "--local-size",
            1,
        )


@pytest.mark.up_to_ranks(1)
@pytest.mark.parametrize("name", ("push_sum", "gradient_allreduce", "allreduce", "empty"))
def test_optimizers_that_take_no_turns(run, capfd, name):
    """A wish for turns that the optimizer does not take is refused."""
    words = ("--dist-optimizer", name, "--enable-dynamic-topology", "--epochs=0")
    assert (
        "--enable-dynamic-topology: expected --dist-optimizer neighbor_allreduce, "
        f"hierarchical_neighbor_allreduce, win_put or pull_get, found {name}, "
        in refusal(run, capfd, "pytorch_mnist.py", *words)
    )


@pytest.mark.up_to_ranks(1)
@pytest.mark.parametrize("name", ("power2", "power_two_ring", "exponential"))
def test_other_names_of_a_graph(run, name):
    printed = run(
        "pytorch_optimization.py",
        "--topology",
        name,
        "--method=diffusion",
        "--max-iters=1",
    )
    assert "diffusion: " in printed


# ---- --help


@pytest.mark.up_to_ranks(1)
@pytest.mark.parametrize("script", sorted(path.name for path in EXAMPLES.glob("pytorch_*.py")))
def test_help_has_the_command_lines_as_they_are_typed(run, capfd, script):
    if script in ("pytorch_benchmark.py", "pytorch_resnet.py"):
        pytest.importorskip("torchvision")
    with pytest.raises(SystemExit) as ended:
        run(script, "--help")
    printed = capfd.readouterr().out
    assert not ended.value.code and "SUPPRESS" not in printed
    after = printed.split(f"    bfrun -np 4 python examples/{script} ")
    assert len(after) > 1, "expected a command line that begins a line"
    for text in after[1:]:
        line, following = text.split("\n")[:2]
        assert "   " not in line, "two lines run together"
        assert not following.startswith("        --") or line.endswith(" \\")


# ---- what makes no sense here


@pytest.mark.up_to_ranks(1)
@pytest.mark.parametrize(
    "script",
    (
        "pytorch_benchmark.py",
        "pytorch_mnist.py",
        "pytorch_resnet.py",
        "pytorch_average_consensus.py",
    ),
)
def test_options_that_only_say_what_to_use(run, capfd, script):
    if script in ("pytorch_benchmark.py", "pytorch_resnet.py"):
        pytest.importorskip("torchvision")
    for words, expected in (
        (
            ("--fp16-allreduce",),
            "--fp16-allreduce: tensors travel in their own dtype; use a model of",
        ),
        (
            ("--use-adasum",),
            "--use-adasum: there is no Adasum; use --dist-optimizer gradient_allreduce",
        ),
        (
            ("--partition", 4),
            "--partition: buckets are cut by size; use BLUEFOG_FUSION_THRESHOLD=BYTES",
        ),
        (("--no-bluefog",), "use --dist-optimizer horovod"),
        (("--no-rma",), "takes no windows"),
        (("--no-cuda", "--device", "cuda"), "not allowed with argument"),
        (("--virtual-topology", "power3"), "invalid choice: 'power3'"),
    ):
        assert expected in refusal(run, capfd, script, *words)


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
    assert "expected a header of an IDX file, found 5 bytes" in refusal(
        run, capfd, "pytorch_mnist.py", "--data", tmp_path
    )


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
        "--dataset=imagenet",
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


# ---- pytorch_average_consensus.py, pytorch_optimization.py


@pytest.mark.up_to_ranks(3)
@pytest.mark.parametrize(
    "options",
    (
        (),
        ("--enable-dynamic-topology",),
        ("--asynchronous-mode",),
        ("--asynchronous-mode", "--enable-dynamic-topology"),
        ("--virtual-topology", "expo3"),
        ("--virtual-topology", "mesh"),
        ("--virtual-topology", "star"),
    ),
    ids=str,
)
def test_average_consensus(run, options, rank, size):
    printed = run(
        "pytorch_average_consensus.py", "--data-size", 100, "--max-iters", 60, "--no-cuda", *options
    )
    if rank == 0:
        error = float(printed.split(f"Average consensus on {size} rank(s): mean error ")[1])
        # In each graph here the second eigenvalue is at most 2/3, and 60 steps leave 3e-11 of it.
        # The asynchronous mode ends where a rank's last messages have not gone round.
        assert error < (1e-1 if "--asynchronous-mode" in options else 1e-9)


@pytest.mark.up_to_ranks(2)
@pytest.mark.parametrize(
    "script, options",
    (
        ("pytorch_average_consensus.py", ("--max-iters", 5, "--data-size", 10)),
        ("pytorch_optimization.py", ("--max-iter", 5, "--method=diffusion", "--topology=expo2")),
    ),
    ids=str,
)
def test_pictures(run, script, options, rank, tmp_path, monkeypatch):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    shown = []
    monkeypatch.setattr(pyplot, "show", lambda: shown.append(True))
    picture = tmp_path / "errors.png"
    run(script, *options, "--save-plot-file", picture, "--plot-interactive")
    assert picture.exists() == (rank == 0) and shown == [True] * (rank == 0)


@pytest.mark.up_to_ranks(2)
@pytest.mark.parametrize(
    "method", ("diffusion", "exact_diffusion", "gradient_tracking", "push_diging")
)
def test_optimization_by_one_method(run, method, rank):
    printed = run("pytorch_optimization.py", f"--method={method}", "--max-iter", 5)
    assert (f"logistic_regression, {method}: " in printed) == (rank == 0)
