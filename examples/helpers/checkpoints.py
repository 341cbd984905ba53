"""The options --checkpoint, --resume and --checkpoint-format."""

import os
import pathlib
import sys

import torch

import bluefog_cpp.torch as bf
from helpers import checksums


def add_arguments(parser):
    parser.add_argument(
        "--checkpoint",
        type=pathlib.Path,
        metavar="FOLDER",
        help="each rank saves its state here after each epoch",
    )
    parser.add_argument("--resume", action="store_true", help="go on from --checkpoint")
    parser.add_argument(
        "--checkpoint-format",
        metavar="FILE",
        help="rank 0 saves its state here after each epoch, as checkpoint-{epoch}.pth.tar",
    )


def check(parser, arguments):
    if arguments.resume and arguments.checkpoint is None:
        parser.error("--resume: expected --checkpoint too")
    try:
        (arguments.checkpoint_format or "").format(epoch=1)
    except (IndexError, KeyError, ValueError) as error:
        parser.error(
            "--checkpoint-format: expected a name with {epoch} for the number of the epoch, found "
            f"{arguments.checkpoint_format} ({error!r})"
        )


class Checkpoints:
    """One file for each rank: models differ between ranks, and so does what optimizers know."""

    def __init__(self, arguments, model, optimizer):
        folder = arguments.checkpoint
        self._path = folder and folder / f"rank{bf.rank()}-of-{bf.size()}.pt"
        self._format = arguments.checkpoint_format if bf.rank() == 0 else None
        self._model, self._optimizer = model, optimizer

    def save(self, epochs_done):
        state = {"epochs_done": epochs_done}
        if self._path is not None:
            self._write(self._path, state)
        if self._format is not None:
            self._write(pathlib.Path(self._format.format(epoch=epochs_done)), state)

    def _write(self, path, state):
        unfinished = path.with_name(f"{path.name}.new")
        whole = {
            **state,
            "model": self._model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
        }
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            checksums.save(whole, unfinished)
            os.replace(unfinished, path)
        except OSError as error:
            unfinished.unlink(missing_ok=True)
            sys.exit(f"rank {bf.rank()}: {path}: expected to write a checkpoint, found: {error}")

    def load(self):
        """The number of epochs that were done; the same on all ranks."""
        if not self._path.exists():
            sys.exit(
                f"rank {bf.rank()}: {self._path} is not there: expected a checkpoint of as many ranks"
            )
        try:
            state = checksums.load(self._path)
        except (OSError, ValueError) as error:
            sys.exit(f"rank {bf.rank()}: {error}")
        try:
            self._model.load_state_dict(state["model"])
            self._optimizer.load_state_dict(state["optimizer"])
        except (KeyError, RuntimeError, ValueError) as error:  # which name no file
            sys.exit(f"rank {bf.rank()}: {self._path}: expected a checkpoint of this run, "
                     f"found: {error}")
        done = bf.allgather(torch.tensor([state["epochs_done"]]), name="epochs done").tolist()
        if len(set(done)) > 1:
            sys.exit(
                f"{self._path.parent}: expected checkpoints of one epoch, found {done}, by rank"
            )
        return done[0]
