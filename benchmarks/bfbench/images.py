"""Labelled images to train on, of the shape of CIFAR's: 3 × 32 × 32.

From files where they are: Fashion-MNIST or MNIST (IDX files, padded, the same in all three
channels), CIFAR-10 or CIFAR-100 (binary files); or made from random numbers, where "synthetic" is
asked for.
"""

import gzip
import pathlib
from typing import NamedTuple

import numpy
import torch

from bfbench.launch import LaunchFailed

FASHION = "/usr/share/datasets/fashion-mnist"
SIDE = 32
SYNTHETIC = "synthetic"


class NoImages(LaunchFailed):
    """No images where they were said to be; the text says what was expected."""

    def __init__(self, text):
        super().__init__(text, text)


class Images(NamedTuple):
    """pixels: uint8 [count, 1 or 3, 32, 32]; labels: int64 [count]."""
    pixels: torch.Tensor
    labels: torch.Tensor

    def batch(self, chosen):
        """(float32 images around 0 of 3 channels, labels)."""
        pixels = self.pixels[chosen].float().div_(127.5).sub_(1)
        return pixels.expand(-1, 3, -1, -1).contiguous(), self.labels[chosen]

    def part(self, begin, end):
        return Images(self.pixels[begin:end], self.labels[begin:end])


class Dataset(NamedTuple):
    name: str
    classes: int
    train: Images
    test: Images


def load(where):
    """The dataset in a folder, or the synthetic one."""
    if where == SYNTHETIC:
        return synthetic()
    folder = pathlib.Path(where)
    for name, classes, first, read in (("IDX images", 10, "train-images-idx3-ubyte", idx),
                                       ("CIFAR-100", 100, "train.bin", cifar100),
                                       ("CIFAR-10", 10, "data_batch_1.bin", cifar10)):
        if (folder / first).exists() or (folder / f"{first}.gz").exists():
            return Dataset(f"{name} of {folder.name}", classes, *read(folder))
    raise NoImages(
        f"expected the files of MNIST, Fashion-MNIST, CIFAR-10 or CIFAR-100 in {folder}, "
        f"or --data {SYNTHETIC}; found none (Debian: dataset-fashion-mnist)")


def contents(folder, name):
    for path in (folder / name, folder / f"{name}.gz"):
        if path.exists():
            return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    raise NoImages(f"expected {folder / name}, plain or .gz, found nothing")


def idx_array(folder, name):
    data = contents(folder, name)
    dimensions = data[3] if len(data) > 3 else 0
    if dimensions == 0 or len(data) < 4 + 4 * dimensions:
        raise NoImages(
            f"{folder / name}: expected the header of an IDX file, found {len(data)} bytes")
    shape = numpy.frombuffer(data, ">i4", dimensions, offset=4)
    values = numpy.frombuffer(data, numpy.uint8, offset=4 + 4 * dimensions)
    if values.size != shape.prod():
        raise NoImages(f"{folder / name}: expected {shape.tolist()} values, found {values.size}")
    return torch.from_numpy(values.reshape(tuple(shape)).copy())


def idx(folder):
    for part in ("train", "t10k"):
        pixels = idx_array(folder, f"{part}-images-idx3-ubyte").unsqueeze(1)
        margin = (SIDE - pixels.shape[-1]) // 2
        yield Images(torch.nn.functional.pad(pixels, (margin,) * 4),
                     idx_array(folder, f"{part}-labels-idx1-ubyte").long())


def cifar(folder, names, labels):
    """Rows of `labels` bytes, of which the last one counts, and an image."""
    data = b"".join(contents(folder, name) for name in names)
    row = labels + 3 * SIDE * SIDE
    if not data or len(data) % row:
        raise NoImages(
            f"{folder / names[0]}: expected rows of {row} bytes, found {len(data)} bytes")
    rows = torch.from_numpy(numpy.frombuffer(data, numpy.uint8).reshape(-1, row).copy())
    return Images(rows[:, labels:].reshape(-1, 3, SIDE, SIDE), rows[:, labels - 1].long())


def cifar100(folder):
    return [cifar(folder, [name], 2) for name in ("train.bin", "test.bin")]


def cifar10(folder):
    return [cifar(folder, [f"data_batch_{i}.bin" for i in range(1, 6)], 1),
            cifar(folder, ["test_batch.bin"], 1)]


def synthetic(classes=100, train=50_000, test=10_000):
    """A pattern for each class, under noise."""
    generator = torch.Generator().manual_seed(0)
    patterns = torch.randint(64, 192, (classes, 3, SIDE, SIDE), generator=generator)

    def images(count):
        labels = torch.randint(classes, (count,), generator=generator)
        pixels = torch.empty(count, 3, SIDE, SIDE, dtype=torch.uint8)
        for begin in range(0, count, 1000):  # in pieces, so that memory stays small
            chosen = labels[begin:begin + 1000]
            noise = torch.randint(-63, 64, (len(chosen), 3, SIDE, SIDE), generator=generator)
            pixels[begin:begin + 1000] = patterns[chosen] + noise
        return Images(pixels, labels)
    return Dataset("synthetic images", classes, images(train), images(test))
