"""The file of a whole model, which rank 0 reads at the start and writes at the end. All calls are
collective: what is wrong with the file ends the program on every rank, by the same words."""

import os
import sys

import torch
import torch.distributed as dist


def end_with(problem):
    """Collective. Ends the program on all ranks where rank 0 has found a problem."""
    found = [problem]
    dist.broadcast_object_list(found, 0)
    if found[0]:
        sys.exit(found[0])


def _write(path, state):
    """Writes `state` whole or not at all; None tries whether a file can be written, and leaves
    nothing."""
    unfinished = path if path.exists() and not path.is_file() else path.with_name(path.name + ".part")
    try:
        with unfinished.open("wb") as file:
            if state is not None:
                torch.save(state, file)
        if unfinished != path and state is not None:
            os.replace(unfinished, path)
    finally:
        if unfinished != path:
            unfinished.unlink(missing_ok=True)


def _end_unless_written(path, state):
    problem = ""
    if dist.get_rank() == 0:
        try:
            _write(path, state)
        except (OSError, RuntimeError) as error:
            problem = f"--save {path}: expected a file that can be written, found: {error}"
    end_with(problem)


def check(path):
    """Ends the program where a model cannot be written to `path`; None: none will be."""
    if path is not None:
        _end_unless_written(path, None)


def save(model, path):
    """Writes rank 0's model."""
    _end_unless_written(path, model.state_dict())


def begin_with(model, path):
    """Rank 0's parameters become those of a file; None: they stay."""
    problem = ""
    if path is not None and dist.get_rank() == 0:
        try:
            model.load_state_dict(torch.load(path, weights_only=True))
        except Exception as error:  # torch's unpickler raises whatever the bytes come to
            problem = (f"--start {path}: expected a model of these sizes, found: "
                       f"{type(error).__name__}: {error}")
    end_with(problem)
