"""Image files that the example scripts read: whatever is in them, a word that names the file."""

import gzip
import pathlib
import struct

import numpy
import pytest

EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples"
NAMES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")


@pytest.fixture
def readers(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    from helpers import cifar, idx
    return idx, cifar


def header(*shape, magic=0x800):
    return struct.pack(f">{1 + len(shape)}I", magic + len(shape), *shape)


IMAGES = header(3, 28, 28) + bytes(range(256)) * 9 + bytes(48)
LABELS = header(3) + bytes((0, 9, 4))


def write(folder, images=IMAGES, labels=LABELS, suffix=""):
    for name, data in zip(NAMES, (images, labels)):
        (folder / f"{name}{suffix}").write_bytes(data)


@pytest.mark.parametrize("packed", [False, True])
def test_what_is_there_is_read(readers, tmp_path, packed):
    idx, _ = readers
    if packed:
        write(tmp_path, gzip.compress(IMAGES), gzip.compress(LABELS), ".gz")
    else:
        write(tmp_path)
    images, labels = idx.load(tmp_path, "train")
    assert images.shape == (3, 1, 28, 28)
    assert ((images.flatten()[:256] + 0.5) * 255).round().tolist() == list(range(256))
    assert labels.tolist() == [0, 9, 4]


@pytest.mark.parametrize(("files", "words"), [
    ({"labels": header(3) + bytes((0, 10, 4))}, ("labels-idx1", "labels below 10, found 10")),
    ({"labels": header(2) + bytes(2)}, ("labels-idx1", "expected 3 labels, found 2")),
    ({"labels": LABELS + b"x"}, ("labels-idx1", "expected 3 values, found more")),
    ({"labels": b""}, ("labels-idx1", "found 0 bytes")),
    ({"images": IMAGES[:-1]}, ("images-idx3", "expected 2352 values, found 2351")),
    ({"images": header(3, 28, 28, magic=0x900) + IMAGES[16:]}, ("images-idx3", "(00000803)")),
    ({"images": header(3, 2**32 - 1, 2**32 - 1) + IMAGES[16:]}, ("images-idx3", "found 2352")),
    ({"images": header(0, 28, 28), "labels": header(0)}, ("images-idx3", "found [0, 28, 28]")),
    ({"images": header(3, 0, 0)}, ("images-idx3", "expected square images of at least 4 pixels")),
    ({"images": header(3, 3, 3) + bytes(27)}, ("images-idx3", "found [3, 3, 3]")),
    ({"images": header(3, 27, 28) + bytes(3 * 27 * 28)}, ("images-idx3", "found [3, 27, 28]")),
    ({"images": gzip.compress(IMAGES)[:-9], "suffix": ".gz"}, ("images-idx3-ubyte.gz", "end")),
    ({"images": gzip.compress(IMAGES) + b"junk", "suffix": ".gz"}, ("images-idx3-ubyte.gz",)),
    ({"images": IMAGES, "suffix": ".gz"}, ("images-idx3-ubyte.gz", "gzip")),
])
def test_a_damaged_file_is_named(readers, tmp_path, files, words):
    idx, _ = readers
    write(tmp_path, **files)
    with pytest.raises(SystemExit) as refused:
        idx.load(tmp_path, "train")
    for word in (str(tmp_path), *words):
        assert word in str(refused.value)


def test_test_images_of_another_size_are_refused(readers, tmp_path):
    idx, _ = readers
    write(tmp_path)
    for name, data in zip(NAMES, (header(3, 8, 8) + bytes(192), LABELS)):
        (tmp_path / name.replace("train", "t10k")).write_bytes(data)
    with pytest.raises(SystemExit, match=r"\[28, 28\], found \[8, 8\]"):
        idx.load_parts(tmp_path)


def test_a_label_beyond_the_classes_of_cifar_is_named(readers, tmp_path):
    _, cifar = readers
    record = numpy.zeros(cifar.PIXELS + 1, numpy.uint8)
    for name in (*(f"data_batch_{part}.bin" for part in range(1, 6)), "test_batch.bin"):
        record[0] = 10 if name == "data_batch_4.bin" else 9
        record.tofile(tmp_path / name)
    with pytest.raises(SystemExit, match=r"data_batch_4\.bin: expected labels below 10, found 10"):
        cifar.load(tmp_path)
