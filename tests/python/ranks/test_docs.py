"""The snippets of docs/python.md run as they stand."""

import pathlib
import re

import pytest

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "python.md"
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.mark.parametrize("place", range(len(SNIPPETS)))
def test_snippet(place):
    scope = {}
    exec("import torch\nimport bluefog_cpp.torch as bf\nx = torch.ones(3)", scope)
    exec(compile(SNIPPETS[place], f"{PAGE.name}, snippet {place}", "exec"), scope)
