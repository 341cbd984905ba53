"""The batch scripts under a Slurm of two nodes, which the test starts and ends."""

import sys

import pytest

from manifests import ROOT
from small_slurm import small_slurm

SCRIPTS = ROOT / "examples/clusters/slurm"
PROGRAM = ROOT / "tests/python/programs/starting.py"
# Nodes of one machine are hosts of their own to the ranks.
HOSTS = 'export BLUEFOG_HOST_ID="node $SLURM_NODEID"; exec "$@"'


@pytest.fixture(scope="module")
def slurm():
    with small_slurm() as running:
        yield running


def lines_of(size):
    return [f"rank {rank} of {size}: {(size - 1) / 2}" for rank in range(size)]


def ranks_in(words):
    return sorted(line for line in words.splitlines() if line.startswith("rank "))


@pytest.mark.parametrize("nodes", [1, 2])
def test_tasks(slurm, environment, nodes):
    code, words = slurm.submit(
        f"--nodes={nodes}", "--ntasks-per-node=2", SCRIPTS / "tasks.sbatch",
        "sh", "-c", HOSTS, "sh", sys.executable, PROGRAM,
        environment={**environment, "BLUEFOG_LOG_LEVEL": "info"})
    assert code == 0, words
    assert ranks_in(words) == lines_of(2 * nodes), words
    assert f"{2 * nodes} ranks, started by Slurm" in words


def test_a_task_that_fails_ends_the_job(slurm, environment):
    code, words = slurm.submit(
        "--nodes=2", "--ntasks-per-node=1", SCRIPTS / "tasks.sbatch",
        "sh", "-c", "[ $SLURM_PROCID = 0 ] || exit 3; sleep 20 && echo survived",
        environment=environment)
    assert code != 0, words
    assert "task 1: Exited with exit code 3" in words
    assert "survived" not in words


def test_torchrun(slurm, environment):
    code, words = slurm.submit(
        "--nodes=2", "--cpus-per-task=2", SCRIPTS / "torchrun.sbatch", PROGRAM,
        environment={**environment, "BLUEFOG_LOG_LEVEL": "info", "RANKS_PER_NODE": "2"})
    assert code == 0, words
    assert ranks_in(words) == lines_of(4), words
    assert "4 ranks, started by torchrun" in words
