"""A checkpoint of one number of ranks, loaded by another: the program of examples/recipes."""

import pathlib
import warnings

import pytest
import torch
import torch.distributed.checkpoint as dcp
from test_starts import launched

PROGRAM = pathlib.Path(__file__).resolve().parents[3] / "examples" / "recipes" / "checkpoint.py"


def starts_of(ranks, folder):
    """The values that each rank says it started from."""
    code, lines, errors = launched(ranks, PROGRAM, folder)
    assert code == 0, errors
    assert [line.partition(" starts")[0] for line in lines] == [
        f"rank {rank} of {ranks}" for rank in range(ranks)]
    return [[float(value) for value in line.partition("[")[2].rstrip("]").split(",")]
            for line in lines]


def weights_in(folder, ranks):
    state = {f"rank {rank}": {"model": {"weight": torch.zeros(1, 4)}} for rank in range(ranks)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch, that there is no process group
        dcp.load(state, checkpoint_id=str(folder))
    return torch.cat([state[f"rank {rank}"]["model"]["weight"] for rank in range(ranks)])


@pytest.mark.long
def test_more_ranks_begin_from_the_mean_and_as_many_from_their_own(tmp_path):
    folder = tmp_path / "state"
    starts_of(2, folder)
    saved = weights_in(folder, 2)
    for own, start in zip(saved.tolist(), starts_of(2, folder)):
        assert start == pytest.approx(own, rel=1e-7)
    saved = weights_in(folder, 2)
    for start in starts_of(3, folder):
        assert start == pytest.approx(saved.mean(0).tolist(), rel=1e-6)


def test_another_number_of_ranks_begins_from_the_mean(tmp_path):
    folder = tmp_path / "state"
    starts_of(2, folder)
    saved = weights_in(folder, 2)
    assert (saved[0] - saved[1]).norm() > 1e-3  # the last step was local
    (start,) = starts_of(1, folder)
    assert start == pytest.approx(saved.mean(0).tolist(), rel=1e-6)
    assert (weights_in(folder, 1) - saved.mean(0)).norm() > 1e-3
