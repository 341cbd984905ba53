"""The files in which the example scripts keep their state: changed, cut off, without a checksum, on
a full disk."""

import pathlib

import pytest
import torch

EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples"

STATE = {"epochs_done": 3, "model": {"weight": torch.arange(500.0)}}
PLACES = 40


@pytest.fixture
def checksums(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    from helpers import checksums
    return checksums


def test_what_was_saved_is_loaded(checksums, tmp_path):
    file = tmp_path / "state.pt"
    checksums.save(STATE, file)
    for state in (checksums.load(file), torch.load(file)):
        assert state["epochs_done"] == 3
        assert torch.equal(state["model"]["weight"], STATE["model"]["weight"])


def test_a_changed_bit_is_found_wherever_it_is(checksums, tmp_path):
    file = tmp_path / "state.pt"
    checksums.save(STATE, file)
    whole = file.read_bytes()
    last = 8 * len(whole) - 1
    for bit in (place * last // (PLACES - 1) for place in range(PLACES)):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        file.write_bytes(changed)
        with pytest.raises(ValueError) as refused:
            checksums.load(file)
        assert str(file) in str(refused.value)


def test_a_file_of_torch_save_alone_is_loaded(checksums, tmp_path):
    torch.save(STATE, tmp_path / "state.pt")
    assert checksums.load(tmp_path / "state.pt")["epochs_done"] == 3


@pytest.mark.parametrize("content", (b"", b"no archive", b"PK\3\4 cut off"), ids=str)
def test_other_files_are_named(checksums, tmp_path, content):
    file = tmp_path / "state.pt"
    file.write_bytes(content)
    with pytest.raises(ValueError, match="expected a file of torch.save") as refused:
        checksums.load(file)
    assert str(file) in str(refused.value)


def test_a_full_disk_is_named(checksums):
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        checksums.save(STATE, pathlib.Path("/dev/full"))
