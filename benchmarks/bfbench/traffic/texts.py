"""Text as bytes to train on, in pieces of which each belongs to a file."""

import pathlib
from typing import NamedTuple

import numpy
import torch

from bfbench.launch import NoData

# Debian's base-files has them on every machine.
LICENCES = "/usr/share/common-licenses"
PIECE_BYTES = 1024
HELD_BACK = 10
"""One piece in so many is to judge by."""


class Pieces(NamedTuple):
    """values: uint8 [count, PIECE_BYTES]; labels: int64 [count], the number of a piece's file."""
    values: torch.Tensor
    labels: torch.Tensor


class Text(NamedTuple):
    name: str
    train: Pieces
    test: Pieces


def files_in(folder):
    """Its files; links are files that are there by another name."""
    return sorted(each for each in folder.iterdir() if each.is_file() and not each.is_symlink())


def load(where):
    """The text of a file, or of all files of a folder."""
    path = pathlib.Path(where)
    try:
        found = [file.read_bytes() for file in (files_in(path) if path.is_dir() else [path])]
    except OSError as error:
        raise NoData(f"--data: expected a text that can be read, found: {error}") from error
    pieces = [cut(numpy.frombuffer(data, numpy.uint8)) for data in found]
    values = numpy.concatenate([numpy.empty((0, PIECE_BYTES), numpy.uint8), *pieces])
    labels = numpy.repeat(numpy.arange(len(pieces)), [len(each) for each in pieces])
    is_test = numpy.arange(len(values)) % HELD_BACK == HELD_BACK - 1
    if not is_test.any():
        raise NoData(f"--data: expected a text of at least {HELD_BACK} pieces of {PIECE_BYTES} "
                     f"bytes, found {len(values)} in {path}")
    train, test = (Pieces(torch.from_numpy(values[chosen]), torch.from_numpy(labels[chosen]))
                   for chosen in (~is_test, is_test))
    return Text(f"bytes of {path.name}", train, test)


def cut(data):
    """Whole pieces; a rest is left out."""
    return data[:len(data) // PIECE_BYTES * PIECE_BYTES].reshape(-1, PIECE_BYTES)
