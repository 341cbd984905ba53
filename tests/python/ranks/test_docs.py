"""The snippets of pages of docs run as they stand."""

import pathlib
import re

import pytest

PAGES = pathlib.Path(__file__).resolve().parents[3] / "docs"
SNIPPETS = [(page, place, text) for page in ("python.md", "membership.md", "your_own_in_python.md")
            for place, text in enumerate(re.findall(r"```python\n(.*?)```",
                                                    (PAGES / page).read_text(), re.DOTALL))]


@pytest.mark.parametrize("page, place, text", SNIPPETS,
                         ids=[f"{page}-{place}" for page, place, _ in SNIPPETS])
def test_snippet(page, place, text):
    scope = {}
    exec("import torch\nimport bluefog_cpp.torch as bf\nx = torch.ones(3)", scope)
    exec(compile(text, f"{page}, snippet {place}", "exec"), scope)
