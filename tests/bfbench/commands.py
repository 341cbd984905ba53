"""Commands of bfbench, run here, and what they leave behind."""

import json
import os

from bfbench.__main__ import main

BUILD = os.environ["BFBENCH_BUILD"]


def run(tmp_path, command, *words):
    """Records, names of charts and the page of a command that succeeds."""
    file, folder = tmp_path / "records.json", tmp_path / "report"
    assert main([command, "--build", BUILD, "--json", str(file), "--report", str(folder),
                 "--starts", "1", *words]) == 0
    charts = sorted(path.name for path in folder.glob("*.png"))
    page = (folder / "report.html").read_text()
    assert page.count("data:image/png;base64,") == len(charts)
    return json.loads(file.read_text()), charts, page


def not_run(found, **wanted):
    (reason,) = [item["not_run"] for item in found["not_run"]
                 if all(item.get(name) == value for name, value in wanted.items())]
    return reason


def left_behind(tmp_path, code, *words):
    """The records of a command that ends with `code`."""
    file = tmp_path / "left.json"
    assert main([*words, "--build", BUILD, "--json", str(file), "--report", str(tmp_path / "left")]
                ) == code
    assert (tmp_path / "left" / "report.html").exists()
    return json.loads(file.read_text())
