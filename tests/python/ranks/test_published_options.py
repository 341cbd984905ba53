"""The example scripts take the options of BlueFog's scripts, or say what to use in their place."""


import pytest

from conftest import EXAMPLES, needs
from test_examples import refusal

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
def test_inner_outer_graphs_want_machines(run, rank, capfd):
    pytest.importorskip("torchvision")
    needs(2)
    with pytest.raises(SystemExit) as ended:
        run(
            "pytorch_benchmark.py",
            *SHORT,
            "--virtual-topology",
            "InnerOuterExp2",
            "--local-size",
            1,
        )
    assert ended.value.code == 2
    said = capfd.readouterr().err
    assert ("--virtual-topology InnerOuterExpo2: " in said) == (rank == 0)
    assert ("expected at least" in said) == (rank == 0)


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


# ---- pytorch_average_consensus.py, pytorch_optimization.py


@pytest.mark.up_to_ranks(1)
@pytest.mark.parametrize(
    "words, expected",
    (
        (("--use-adasum",), "--use-adasum: this script trains nothing"),
        (("--no-rma",), "--no-rma: leave out --asynchronous-mode, which alone takes windows"),
        (("--no-cuda", "--device", "cuda"), "not allowed with argument"),
        (("--virtual-topology", "power3"), "invalid choice: 'power3'"),
    ),
)
def test_options_of_average_consensus_that_only_say_what_to_use(run, capfd, words, expected):
    assert expected in refusal(run, capfd, "pytorch_average_consensus.py", *words)


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
    # In each graph here the second eigenvalue is at most 2/3, and 60 steps leave 3e-11 of it. Ranks
    # that wait for nobody make as many while the others wait for a core; after some 640 in which it
    # hears nobody, a rank of three has less mass left than a float64 can hold.
    is_asynchronous = "--asynchronous-mode" in options
    printed = run(
        "pytorch_average_consensus.py",
        *("--data-size", 100, "--max-iters", 500 if is_asynchronous else 60, "--no-cuda"),
        *options,
    )
    if rank == 0:
        error = float(printed.split(f"Average consensus on {size} rank(s): mean error ")[1])
        # The asynchronous mode ends where a rank's last messages have not gone round.
        assert error < (1e-1 if is_asynchronous else 1e-9)


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
