"""Text as bytes: a part to train on, of which each rank has its share, and one to judge by."""

import pathlib
import sys

import numpy
import torch

# Debian's base-files has them on every machine.
USUAL = pathlib.Path("/usr/share/common-licenses")
HELD_BACK = 0.1


def files_of(path):
    """The file, or those in the folder, but for links: their files are there by another name."""
    if not path.is_dir():
        return [path]
    return sorted(each for each in path.iterdir() if each.is_file() and not each.is_symlink())


def read(paths):
    """All bytes of the files, and of those in the folders, one file after the other."""
    try:
        data = b"".join(file.read_bytes() for path in paths for file in files_of(path))
    except OSError as error:
        sys.exit(f"--data: expected files that can be read, found: {error}")
    return torch.from_numpy(numpy.frombuffer(data, numpy.uint8).copy())


class Text:
    """Windows of `length` bytes, each with the byte that follows each of its own."""

    def __init__(self, data, length, rank, size):
        train = data[:int((1 - HELD_BACK) * len(data))]
        share = len(train) // size
        self._own = train[rank * share:(rank + 1) * share]
        self._test = data[len(train):]
        self._length = length
        if min(len(self._own), len(self._test)) <= length:
            sys.exit(f"--data: expected more than {length} bytes for each of {size} ranks, and in "
                     f"the last tenth, found {len(data)} bytes in all")

    def batch(self, count, generator):
        """Windows of this rank's share, drawn by the generator."""
        places = torch.randint(len(self._own) - self._length, (count,), generator=generator)
        return self._windows(self._own, places)

    def test_batches(self, count):
        """All of the text that is held back, but for a rest."""
        places = torch.arange(0, len(self._test) - self._length, self._length)
        for some in places.split(count):
            yield self._windows(self._test, some)

    def _windows(self, data, places):
        windows = torch.stack([data[at:at + self._length + 1] for at in places.tolist()]).long()
        return windows[:, :-1], windows[:, 1:]
