"""Images and labels from the IDX files of MNIST and Fashion-MNIST."""

import gzip
import pathlib
import sys

import numpy
import torch

DEFAULT_DATA = pathlib.Path("/usr/share/datasets/fashion-mnist")


def read(folder, name):
    """The array of one IDX file. Its header says how long it is."""
    for path in (folder / name, folder / f"{name}.gz"):
        if path.exists():
            data = path.read_bytes()
            data = gzip.decompress(data) if path.suffix == ".gz" else data
            break
    else:
        sys.exit(f"{folder / name}(.gz) is not there; install Debian's dataset-fashion-mnist, or "
                 "name a folder with --data")
    dimensions = data[3] if len(data) >= 4 else 0
    if len(data) < 4 + 4 * dimensions or dimensions < 1:
        sys.exit(f"{path}: expected a header of an IDX file, found {len(data)} bytes")
    shape = numpy.frombuffer(data, ">i4", dimensions, offset=4)
    values = numpy.frombuffer(data, numpy.uint8, offset=4 + 4 * dimensions)
    if values.size != shape.prod():
        sys.exit(f"{folder / name}: expected {shape.prod()} values, found {values.size}")
    return torch.from_numpy(values.reshape(tuple(shape)).copy())


def load(folder, part):
    """Images as floats around 0, [count, 1, side, side], and labels."""
    images = read(folder, f"{part}-images-idx3-ubyte").float().div_(255).sub_(0.5).unsqueeze(1)
    return images, read(folder, f"{part}-labels-idx1-ubyte").long()
