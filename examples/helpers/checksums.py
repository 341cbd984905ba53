"""Files of torch.save with a checksum behind them, as the C++ library's checkpoints have one."""

import os
import zlib

import torch

KEY = "checksum"
BEGIN = b"\nbluefog_cpp crc32 "
LINE_BYTES = len(BEGIN) + 8 + 1


def _line(checksum):
    return BEGIN + b"%08x\n" % checksum


class _Counted:
    """A file for torch.save, with the checksum of what has been written."""

    def __init__(self, file):
        self._file, self.checksum = file, 0

    def write(self, data):
        self.checksum = zlib.crc32(data, self.checksum)
        return self._file.write(data)

    def flush(self):
        self._file.flush()


def save(state, path):
    """Writes the dictionary `state`; torch.load reads the file too.

    raises OSError, with the file's name, where it cannot be written
    """
    try:
        with open(path, "wb") as file:
            counted = _Counted(file)
            torch.save({**state, KEY: "crc32"}, counted)
            file.write(_line(counted.checksum))
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def load(path):
    """Reads what `save` wrote, or a file of torch.save without a checksum.

    raises ValueError naming the file where its bytes are not those that were written
    """
    with open(path, "rb") as file:
        left = max(0, os.fstat(file.fileno()).st_size - LINE_BYTES)
        checksum = 0
        while left and (block := file.read(min(left, 1 << 20))):
            checksum, left = zlib.crc32(block, checksum), left - len(block)
        line = file.read()
    has_line = line.startswith(BEGIN)
    if has_line and line != _line(checksum):
        raise ValueError(f"{path}: expected the bytes that were written, found others: "
                         "the checksum is another one")
    try:
        state = torch.load(path)
    except OSError:
        raise
    except Exception as error:  # of the archive's reader or of the unpickler: torch names no class
        raise ValueError(f"{path}: expected a file of torch.save, found: {error}") from error
    if not has_line and KEY in state:
        raise ValueError(f"{path}: expected the checksum that it was written with, found none")
    return state
