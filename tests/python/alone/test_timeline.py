"""Timelines of programs that end or begin again as they like."""

import json
import os
import subprocess
import sys

BEGIN = """
import os, torch, bluefog_cpp.torch as bf
bf.init()
bf.allreduce(torch.ones(4), name="first")
"""


def calls_of(tmp_path, program):
    """The rows of the calls in the timeline that the program leaves, in order."""
    subprocess.run([sys.executable, "-c", BEGIN + program], check=True,
                   env={**os.environ, "BLUEFOG_TIMELINE": f"{tmp_path}/run"})
    events = json.loads((tmp_path / "run0.json").read_text())
    rows = {event["tid"]: event["args"]["name"] for event in events
            if event.get("name") == "thread_name"}
    return [rows[event["tid"]] for event in events if event.get("name") == "ALLREDUCE"]


def test_calls_that_have_ended_are_there_after_an_exit_without_an_end(tmp_path):
    assert calls_of(tmp_path, "os._exit(0)") == ["first"]


def test_a_second_init_goes_on(tmp_path):
    assert calls_of(tmp_path, """
bf.shutdown()
bf.init()
bf.allreduce(torch.ones(4), name="first")
bf.allreduce(torch.ones(4), name="second")
os._exit(0)
""") == ["first", "first", "second"]
