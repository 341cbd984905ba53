"""The example of a pipeline, briefly, in the process of the test."""

import pathlib
import re
import runpy
import sys

import pytest
import torch.distributed as dist

EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples"
TINY = ("--images", 96, "--test-images", 40)
LINE = re.compile(r"^Epoch (\d): (\d) x (\d) stages, (\d+) of 6 layers frozen, \d+\.\d images/s, "
                  r"loss \d\.\d{4}, test accuracy \d+\.\d{2} %$", re.MULTILINE)


@pytest.fixture
def run(monkeypatch, capfd):
    """Runs the script in the default group of the test, and gives what it prints."""
    pytest.importorskip("yaml")
    monkeypatch.setattr(dist, "init_process_group", lambda *_: None)
    monkeypatch.setattr(dist, "destroy_process_group", lambda: None)
    monkeypatch.syspath_prepend(str(EXAMPLES))

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["pytorch_pipeline.py", *map(str, arguments)])
        runpy.run_path(str(EXAMPLES / "pytorch_pipeline.py"), run_name="__main__")
        return capfd.readouterr().out

    return call


def written(tmp_path, text):
    file = tmp_path / "run.yaml"
    file.write_text(text)
    return file


@pytest.mark.skipif(not pathlib.Path("/usr/share/datasets/fashion-mnist").exists(),
                    reason="dataset-fashion-mnist is not installed")
@pytest.mark.parametrize("text, shrinks", (
    ("alpha: 0.6\nby_gradients: false\n", True), ("freeze: false\nschedule: gpipe\n", False),
    ("alpha: 0.6\nby_gradients: false\nshrink: false\n", False)))
def test_lines(run, tmp_path, text, shrinks):
    printed = run(written(tmp_path, text + "layers: 2\nwidth: 16\nheads: 2\nepochs: 4\n"
                                           "batch_size: 24\n"), *TINY)
    if dist.get_rank():
        assert not LINE.search(printed)
        return
    lines = [[int(number) for number in line] for line in LINE.findall(printed)]
    assert [line[0] for line in lines] == [1, 2, 3, 4]
    size = dist.get_world_size()
    assert all(replicas * stages == size for _, replicas, stages, _ in lines)
    assert lines[0][1:] == [1, size, 0]
    assert (lines[-1][2] < size) == shrinks
    assert (lines[-1][3] > 0) == ("freeze: false" not in text)


@pytest.mark.parametrize("text, expected", (
    ("frieze: true\n", "expected keys of stages, schedule, "),
    ("alpha: deep\n", "expected a value of the type float for 'alpha', found 'deep'"),
    ("epochs: true\n", "expected a value of the type int for 'epochs', found True"),
    ("- a\n", "expected names with values, found ['a']"), ("a: [\n", "expected a YAML file"),
    (None, "expected a YAML file, found: ")))
def test_files_that_do_not_fit(run, tmp_path, text, expected):
    file = tmp_path / "none.yaml" if text is None else written(tmp_path, text)
    with pytest.raises(SystemExit) as ended:
        run(file, *TINY)
    assert expected in str(ended.value)
