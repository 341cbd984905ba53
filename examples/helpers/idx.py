"""Images and labels from the IDX files of MNIST and Fashion-MNIST."""

import gzip
import math
import pathlib
import sys
import zlib

import numpy
import torch

from helpers.networks import SmallNet

DEFAULT_DATA = pathlib.Path("/usr/share/datasets/fashion-mnist")
CLASSES = 10


def load_parts(folder):
    """`load` of the training and of the test images, which are of one size."""
    train, test = load(folder, "train"), load(folder, "t10k")
    if test[0].shape[1:] != train[0].shape[1:]:
        sys.exit(
            f"{folder}: expected test images of the size of the training images, "
            f"{list(train[0].shape[2:])}, found {list(test[0].shape[2:])}"
        )
    return train, test


def load(folder, part):
    """Images as floats around 0, [count, 1, side, side], and labels of `part` ("train", "t10k")."""
    images, path = _array(folder, f"{part}-images-idx3-ubyte", 3)
    labels, path_of_labels = _array(folder, f"{part}-labels-idx1-ubyte", 1)
    count, rows, columns = images.shape
    if count == 0 or rows != columns or rows < SmallNet.LEAST_SIDE:
        sys.exit(
            f"{path}: expected square images of at least {SmallNet.LEAST_SIDE} pixels a side, found "
            f"{list(images.shape)}"
        )
    if len(labels) != len(images):
        sys.exit(f"{path_of_labels}: expected {len(images)} labels, found {len(labels)}")
    if labels.max() >= CLASSES:
        sys.exit(f"{path_of_labels}: expected labels below {CLASSES}, found {labels.max()}")
    pixels = torch.from_numpy(images).float().div_(255).sub_(0.5).unsqueeze(1)
    return pixels, torch.from_numpy(labels).long()


def _array(folder, name, dimensions):
    """The values of one file, plain or .gz, whose header says how many there are."""
    path = next((each for each in (folder / name, folder / f"{name}.gz") if each.exists()), None)
    if path is None:
        sys.exit(
            f"{folder / name}(.gz) is not there; install Debian's dataset-fashion-mnist, or name "
            "a folder with --data"
        )
    header = 4 + 4 * dimensions
    magic = bytes((0, 0, 8, dimensions))
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            start = file.read(header)
            if len(start) < header or start[:4] != magic:
                sys.exit(
                    f"{path}: expected the header of an IDX file of {dimensions} dimensions "
                    f"({magic.hex()}), found {len(start)} bytes that begin with {start[:4].hex()}"
                )
            shape = numpy.frombuffer(start, ">u4", dimensions, offset=4).tolist()
            values = _at_most(file, math.prod(shape) + 1)
    except (EOFError, OSError, zlib.error) as error:
        sys.exit(f"{path}: expected an IDX file, with nothing behind it, found {error}")
    if len(values) != math.prod(shape):
        found = "more" if len(values) > math.prod(shape) else len(values)
        sys.exit(f"{path}: expected {math.prod(shape)} values, found {found}")
    return numpy.frombuffer(values, numpy.uint8).reshape(shape).copy(), path


def _at_most(file, count):
    """Up to `count` bytes, in pieces: a header may promise more than there is."""
    pieces = []
    while count > 0 and (piece := file.read(min(count, 1 << 24))):
        pieces.append(piece)
        count -= len(piece)
    return b"".join(pieces)
