"""Joining and leaving where there is nobody to join or to go on."""

import os
import subprocess
import sys

import pytest

import bluefog_cpp
import bluefog_cpp.torch as bf


@pytest.mark.parametrize(("variables", "statement"), [
    ({"BLUEFOG_JOIN": "1"}, "bf.init()"), ({}, "bf.init(join=True)")])
def test_a_process_alone_has_nobody_to_join(variables, statement):
    done = subprocess.run([sys.executable, "-c", f"import bluefog_cpp.torch as bf; {statement}"],
                          env={**os.environ, **variables}, capture_output=True, text=True,
                          check=False, timeout=60)
    assert done.returncode == 1
    assert ("InvalidArgument: rank 0, Context::create: BLUEFOG_JOIN=1: expected ranks that met in "
            in done.stderr)
    assert "found a start by 'single'" in done.stderr


def test_one_that_is_there_enters_at_once():
    bf.init(join=False)
    try:
        assert not bf.waits_to_join()
        assert bf.enter() == bf.membership() == bf.Membership(0, [0], [], [])
        with pytest.raises(bluefog_cpp.StateError, match="leave: .*found BLUEFOG_ON_FAILURE=raise"):
            bf.leave()
        assert not bf.has_left()
    finally:
        bf.shutdown()
