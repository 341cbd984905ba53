"""Files of images as datasets come in."""

import numpy


def idx(values):
    """An IDX file of bytes."""
    header = bytes((0, 0, 8, values.ndim)) + numpy.array(values.shape, ">i4").tobytes()
    return header + values.astype(numpy.uint8).tobytes()


def idx_files(folder):
    """A folder with 21 images to train on and 3 to test with; label k is of brightness 20 k."""
    made = folder / "idx"
    made.mkdir()
    for part, count in (("train", 21), ("t10k", 3)):
        labels = numpy.arange(count) % 10
        pixels = numpy.broadcast_to(labels[:, None, None] * 20, (count, 28, 28))
        (made / f"{part}-images-idx3-ubyte").write_bytes(idx(pixels))
        (made / f"{part}-labels-idx1-ubyte").write_bytes(idx(labels))
    return made


def cifar_rows(labels_per_row, count):
    """Rows of a CIFAR file: labels k and k + 1, and channels of brightness k, 2 k, 3 k."""
    rows = []
    for k in range(count):
        channels = numpy.repeat(numpy.arange(1, 4) * k, 32 * 32)
        rows.append(bytes((k, k + 1)[:labels_per_row]) + channels.astype(numpy.uint8).tobytes())
    return b"".join(rows)
