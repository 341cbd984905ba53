"""CIFAR-10 and CIFAR-100 from their binary files, or a few images made up."""

import pathlib
import sys

import numpy
import torch

import bluefog_cpp.torch as bf

MOST_NAMES = 8  # of a folder, in a message
SIDE = 32
PIXELS = 3 * SIDE * SIDE
# For each set: training files, test files, bytes of labels before an image (the last one counts),
# classes.
SETS = (
    (tuple(f"data_batch_{part}.bin" for part in range(1, 6)), ("test_batch.bin",), 1, 10),
    (("train.bin",), ("test.bin",), 2, 100),
)


def load(folder):
    """(training set, test set, number of classes) of the set whose files `folder` has."""
    folder = pathlib.Path(folder)
    for train_files, test_files, label_bytes, classes in SETS:
        if all((folder / name).exists() for name in (*train_files, *test_files)):
            train, test = (
                _read(folder, names, label_bytes, classes) for names in (train_files, test_files)
            )
            return (*_normalized(train, test), classes)
    expected = " or ".join(", ".join((*train, *test)) for train, test, _, _ in SETS)
    names = sorted(path.name for path in folder.glob("*"))
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    sys.exit(
        f"{folder}: expected the binary files of CIFAR-10 or CIFAR-100 ({expected}); found "
        f"{', '.join(names[:MOST_NAMES]) or 'nothing'}{more}"
    )


def fetched(folder):
    """Collective. CIFAR-10 like `load`'s, by torchvision, which fetches it where `folder` has none."""
    from torchvision import datasets

    problem = ""
    if bf.local_rank() == 0:
        try:
            datasets.CIFAR10(folder, download=True)
        except (OSError, RuntimeError) as error:
            problem = str(error)
    # Who waits for its host's files has to hear that none will come.
    problems = bf.allreduce(
        torch.tensor([float(bool(problem))]), average=False, name="CIFAR-10 fetched"
    )
    if problems > 0:
        sys.exit(
            f"CIFAR-10 is not in {folder} and could not be fetched: {problem}; name a folder with its "
            "binary files by --data, or try --synthetic 1000"
            if problem
            else 1
        )

    def read(is_train):
        found = datasets.CIFAR10(folder, train=is_train)
        return torch.from_numpy(found.data).permute(0, 3, 1, 2), torch.tensor(found.targets)

    return (*_normalized(read(True), read(False)), 10)


def made_up(train_count, test_count, classes=5, side=8):
    """Small images, in place of `load`'s: noise whose bright stripe tells the class."""
    generator = torch.Generator().manual_seed(0)

    def make(count):
        labels = torch.arange(count) % classes
        images = torch.randint(60, (count, 3, side, side), generator=generator)
        for image, label in zip(images, labels):
            image[:, label] += 190
        return images.byte(), labels

    return (*_normalized(make(train_count), make(test_count)), classes)


class Augmented(torch.utils.data.Dataset):
    """Shifted by up to four pixels and mirrored, at random."""

    def __init__(self, data):
        self._data = data

    def __len__(self):
        return len(self._data)

    def __getitem__(self, place):
        image, label = self._data[place]
        top, left = torch.randint(9, (2,)).tolist()
        rows, columns = image.shape[1:]
        image = torch.nn.functional.pad(image, (4, 4, 4, 4))[
            :, top : top + rows, left : left + columns
        ]
        return (image.flip(-1) if torch.rand(()) < 0.5 else image), label


def _read(folder, names, label_bytes, classes):
    record = label_bytes + PIXELS
    parts = []
    for name in names:
        values = numpy.fromfile(folder / name, numpy.uint8)
        if values.size == 0 or values.size % record != 0:
            sys.exit(
                f"{folder / name}: expected images of {record} bytes, found {values.size} bytes"
            )
        rows = values.reshape(-1, record)
        highest = rows[:, label_bytes - 1].max()
        if highest >= classes:
            sys.exit(f"{folder / name}: expected labels below {classes}, found {highest}")
        parts.append(rows)
    rows = torch.from_numpy(numpy.concatenate(parts))
    return rows[:, label_bytes:].reshape(-1, 3, SIDE, SIDE), rows[:, label_bytes - 1].long()


def _normalized(train, test):
    """Data sets of mean 0 and deviation 1, by the channels of the training images."""
    values = train[0].float().div(255)
    mean, deviation = (
        moment(values, dim=(0, 2, 3)).view(3, 1, 1) for moment in (torch.mean, torch.std)
    )
    return tuple(
        torch.utils.data.TensorDataset((images.float().div(255) - mean) / deviation, labels)
        for images, labels in (train, test)
    )
