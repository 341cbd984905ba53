"""Labelled images to train on, of the shape of CIFAR's: 3 × 32 × 32.

From files where they are: Fashion-MNIST or MNIST (IDX files, padded, the same in all three
channels), CIFAR-10 or CIFAR-100 (binary files); or made from random numbers, where "synthetic" is
asked for.
"""

import gzip
import math
import pathlib
import zlib
from typing import NamedTuple

import numpy
import torch

from bfbench.launch import NoData

FASHION = "/usr/share/datasets/fashion-mnist"
SIDE = 32
SYNTHETIC = "synthetic"


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
            return checked(Dataset(f"{name} of {folder.name}", classes, *read(folder)), folder)
    raise NoData(
        f"expected the files of MNIST, Fashion-MNIST, CIFAR-10 or CIFAR-100 in {folder}, "
        f"or --data {SYNTHETIC}; found none (Debian: dataset-fashion-mnist)")


def checked(dataset, folder):
    for part, images in (("training", dataset.train), ("test", dataset.test)):
        if images.labels.max() >= dataset.classes:
            raise NoData(f"{folder}: expected labels of {part} images below {dataset.classes}, "
                           f"found {images.labels.max()}")
    return dataset


def contents(folder, name):
    for path in (folder / name, folder / f"{name}.gz"):
        if path.exists() and path.suffix != ".gz":
            return path.read_bytes()
        if path.exists():
            try:
                return gzip.decompress(path.read_bytes())
            except (EOFError, OSError, zlib.error) as error:
                raise NoData(f"{path}: expected a gzip stream and nothing behind it, "
                               f"found {error}") from error
    raise NoData(f"expected {folder / name}, plain or .gz, found nothing")


def idx_array(folder, name, dimensions):
    data = contents(folder, name)
    header, magic = 4 + 4 * dimensions, bytes((0, 0, 8, dimensions))
    if len(data) < header or data[:4] != magic:
        raise NoData(f"{folder / name}: expected the header of an IDX file of {dimensions} "
                       f"dimensions ({magic.hex()}), found {len(data)} bytes that begin with "
                       f"{data[:4].hex()}")
    shape = numpy.frombuffer(data, ">u4", dimensions, offset=4).tolist()
    if len(data) - header != math.prod(shape):
        raise NoData(f"{folder / name}: expected {shape} values, found {len(data) - header}")
    values = numpy.frombuffer(data, numpy.uint8, offset=header)
    return torch.from_numpy(values.reshape(shape).copy())


def idx(folder):
    for part in ("train", "t10k"):
        name, name_of_labels = f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte"
        pixels, labels = idx_array(folder, name, 3), idx_array(folder, name_of_labels, 1).long()
        count, rows, columns = pixels.shape
        if count == 0 or rows != columns or not 0 < rows <= SIDE:
            raise NoData(f"{folder / name}: expected square images of up to {SIDE} x {SIDE}, "
                           f"found {list(pixels.shape)}")
        if len(labels) != count:
            raise NoData(f"{folder / name_of_labels}: expected {count} labels, "
                           f"found {len(labels)}")
        margin = (SIDE - rows) // 2
        padding = (margin, SIDE - rows - margin) * 2
        yield Images(torch.nn.functional.pad(pixels.unsqueeze(1), padding), labels)


def cifar(folder, names, labels):
    """Rows of `labels` bytes, of which the last one counts, and an image."""
    data = b"".join(contents(folder, name) for name in names)
    row = labels + 3 * SIDE * SIDE
    if not data or len(data) % row:
        raise NoData(
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
