"""Readers of datasets, and what they say of files that are not one."""

import gzip

import pytest
import torch

from bfbench import images
from image_files import cifar_rows, idx_files


def test_idx_files_are_padded_to_cifars_shape(tmp_path):
    folder = idx_files(tmp_path)
    packed = folder / "train-labels-idx1-ubyte"
    (folder / f"{packed.name}.gz").write_bytes(gzip.compress(packed.read_bytes()))
    packed.unlink()
    found = images.load(folder)
    assert found.classes == 10 and found.train.pixels.shape == (21, 1, 32, 32)
    assert found.test.labels.tolist() == [0, 1, 2]
    pixels, labels = found.train.batch(torch.tensor([3, 1]))
    assert pixels.shape == (2, 3, 32, 32) and labels.tolist() == [3, 1]
    assert pixels[0, 2, 16, 16] == pytest.approx(60 / 127.5 - 1) and pixels[0, 0, 0, 0] == -1


def test_cifar_files(tmp_path):
    for name in [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]:
        (tmp_path / name).write_bytes(cifar_rows(1, 4))
    ten = images.load(tmp_path)
    assert ten.classes == 10 and ten.train.labels.tolist() == [0, 1, 2, 3] * 5
    for name in ("train.bin", "test.bin"):
        (tmp_path / name).write_bytes(cifar_rows(2, 4))
    hundred = images.load(tmp_path)
    assert hundred.classes == 100 and hundred.test.labels.tolist() == [1, 2, 3, 4]
    assert hundred.test.pixels[2, :, 31, 31].tolist() == [2, 4, 6]


def test_synthetic_images_are_the_same_each_time():
    one, other = images.synthetic(5, 30, 10), images.synthetic(5, 30, 10)
    assert one.classes == 5 and one.train.pixels.equal(other.train.pixels)
    assert one.test.pixels.shape == (10, 3, 32, 32) and one.train.labels.max() < 5


@pytest.mark.parametrize("name, damage, expected", (
    ("t10k-labels-idx1-ubyte", None, "expected .*t10k-labels-idx1-ubyte, plain or .gz"),
    ("train-images-idx3-ubyte", lambda data: data[:-1],
     r"expected \[21, 28, 28\] values, found 16463"),
    ("train-images-idx3-ubyte", lambda data: b"\0",
     r"the header of an IDX file of 3 dimensions \(00000803\), found 1 bytes"),
    ("t10k-labels-idx1-ubyte", lambda data: data[:7],
     r"the header of an IDX file of 1 dimensions \(00000801\), found 7 bytes"),
    ("t10k-labels-idx1-ubyte", lambda data: data[:-1] + b"\x0a", "test images below 10, found 10"),
    ("t10k-labels-idx1-ubyte", lambda data: data[:7] + b"\x02" + data[8:-1],
     "expected 3 labels, found 2"),
    ("train-images-idx3-ubyte", lambda data: data[:3] + b"\x01" + data[4:], "found 16480 bytes"),
))
def test_damaged_idx_files(tmp_path, name, damage, expected):
    path = idx_files(tmp_path) / name
    if damage:
        path.write_bytes(damage(path.read_bytes()))
    else:
        path.unlink()
    with pytest.raises(images.NoData, match=expected):
        images.load(path.parent)


def test_a_damaged_gzip_stream_is_named(tmp_path):
    path = idx_files(tmp_path) / "train-images-idx3-ubyte"
    packed = gzip.compress(path.read_bytes())
    path.unlink()
    for data in (packed[:-9], packed + b"junk", b"plain"):
        path.with_name(f"{path.name}.gz").write_bytes(data)
        with pytest.raises(images.NoData, match=r"ubyte\.gz: expected a gzip stream"):
            images.load(path.parent)


def test_damaged_cifar_file(tmp_path):
    (tmp_path / "train.bin").write_bytes(cifar_rows(2, 4)[:-1])
    with pytest.raises(images.NoData, match="expected rows of 3074 bytes, found 12295"):
        images.load(tmp_path)
