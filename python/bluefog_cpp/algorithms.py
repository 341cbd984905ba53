"""The registered algorithms, as tables made from their rows.

    python -m bluefog_cpp.algorithms                prints the tables
    python -m bluefog_cpp.algorithms --write PAGE…  writes those that a page has marks of into it
    python -m bluefog_cpp.algorithms --load FILE    with those that the file registers

`load` takes in the algorithms of a file.
"""

import argparse
import importlib.util
import os
import pathlib
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Union

from bluefog_cpp._extension import core
from bluefog_cpp.errors import InvalidArgument


def load(path: Union[str, "os.PathLike[str]"]) -> list[str]:
    """Loads a shared object and calls its `bluefog_register_algorithms`
    (docs/your_own_algorithm.md), or runs a file of Python, `….py`, which registers its classes
    (docs/your_own_in_python.md). Returns the names of the algorithms that it registers. All ranks,
    before the first optimizer that uses them. A file that is loaded already is not loaded again,
    and the result is the same.

    Raises InvalidArgument, with the file's name, where it cannot be loaded, raises an error, has no
    such function or registers an algorithm that is refused, such as one whose name is taken.
    """
    if os.fspath(path).endswith(".py"):
        return _run(pathlib.Path(path))
    return core.load_algorithms(os.fspath(path))


_loaded: dict[pathlib.Path, list[str]] = {}


def _run(path: pathlib.Path) -> list[str]:
    file = path.resolve()
    if file not in _loaded:
        before = {row.name for row in core.algorithms()}
        name = f"bluefog_cpp_loaded_{len(_loaded)}_{file.stem}"
        try:
            spec = importlib.util.spec_from_file_location(name, file)
            assert spec is not None and spec.loader is not None  # it ends in .py
            sys.modules[name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(sys.modules[name])
        except Exception as error:
            sys.modules.pop(name, None)
            raise InvalidArgument(f"load_algorithms, '{path}': expected a file that runs, "
                                  f"found {type(error).__name__}: {error}") from error
        _loaded[file] = [row.name for row in core.algorithms() if row.name not in before]
    return _loaded[file]


def _table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [head, ["---"] * len(head), *([_in_cell(words) for words in line] for line in lines)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _in_cell(words: str) -> str:
    return " ".join(words.split()).replace("|", r"\|")


def _names(row: core.AlgorithmRow) -> str:
    return ", ".join(f"`{name}`" for name in (row.name, *row.aliases))


def _memory(row: core.AlgorithmRow) -> str:
    copies = [str(row.copies)] if row.copies else []
    if row.copies_per_source:
        copies.append(f"{row.copies_per_source} for each neighbour heard")
    words = ", and ".join(copies) or "none"
    return f"{words}; {row.memory_note}" if row.memory_note else words


def _mixing(row: core.AlgorithmRow) -> str:
    if row.mixing_note:
        return row.mixing_note
    if row.stochastic == "averages":
        return "rows sum to 1 (`row_sums`); columns that sum to 1 keep the mean"
    if not row.stochastic:
        return "any"
    sums = "rows" if row.is_symmetric else row.stochastic
    words = ["symmetric"] if row.is_symmetric else []
    words += ["weights ≥ 0", f"{sums} sum to 1"]
    words += ["no empty row"] if row.stochastic == "columns" else []
    if row.eigenvalues_above:
        words.append(f"eigenvalues above {row.eigenvalues_above.replace('-', '−')}")
    return ", ".join(words)


def _shown(value: object) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def _name_list(rows: list[core.AlgorithmRow]) -> str:
    return ", ".join(f"`{row.name}`" + "".join(f" (`{name}`)" for name in row.aliases)
                     for row in rows)


def _closure_list(rows: list[core.AlgorithmRow]) -> str:
    return ", ".join(f"`{row.name}`" for row in rows if row.allows_reevaluation)


def _algorithm_table(rows: list[core.AlgorithmRow]) -> str:
    return _table(("name", "update", "what it does", "overlaps with",
                   "memory in copies of the model", "carried from step to step", "source"),
                  ((_names(row), f"`{row.equation}`", row.description, row.overlap, _memory(row),
                    row.carried, row.source) for row in rows))


def _mixing_table(rows: list[core.AlgorithmRow]) -> str:
    return _table(("algorithm", "`W`", "may change", "local steps in between"),
                  ((f"`{row.name}`", _mixing(row), "no" if row.is_fixed else "yes",
                    "no" if row.needs_every_step else "yes") for row in rows))


def _option_table(rows: list[core.AlgorithmRow]) -> str:
    readers: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        for option in row.options:
            words = (f"`{option.name}`", _shown(option.default), option.meaning)
            readers.setdefault(words, []).append(f"`{row.name}`")
    return _table(("option", "default", "meaning", "read by"),
                  ((*words, ", ".join(names)) for words, names in readers.items()))


TABLES: dict[str, Callable[[list[core.AlgorithmRow]], str]] = {
    "algorithms": _algorithm_table, "mixing": _mixing_table, "options": _option_table}
# Lists stand inside a line, also of a table.
LISTS: dict[str, Callable[[list[core.AlgorithmRow]], str]] = {
    "names": _name_list, "of closures": _closure_list}
END = "<!-- end of rows -->"


def _made(name: str) -> str:
    if name in LISTS:
        return LISTS[name](core.algorithms())
    if name in TABLES:
        return f"\n{TABLES[name](core.algorithms())}\n"
    raise ValueError(f"expected the rows of {', '.join((*TABLES, *LISTS))}, found '{name}'")


def with_tables(page: str) -> str:
    """The page, with the tables and lists of today's rows between its marks.

    Raises ValueError where it has no marks, or a begin without its end.
    """
    begins = re.findall("<!-- rows: (.*?) -->", page)
    if not begins:
        raise ValueError(f"expected marks such as '<!-- rows: algorithms -->' and '{END}' after "
                         "it, found none")
    if len(begins) != page.count(END):
        raise ValueError(f"expected '{END}' after each begin, found {len(begins)} begins and "
                         f"{page.count(END)} ends")
    return re.sub(f"(<!-- rows: (.*?) -->).*?{END}",
                  lambda part: f"{part[1]}{_made(part[2])}{END}", page, flags=re.DOTALL)


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bluefog_cpp.algorithms",
                                     description="Tables of the registered algorithms.")
    parser.add_argument("--write", type=pathlib.Path, nargs="+", metavar="PAGE",
                        help="into these pages, in place")
    parser.add_argument("--load", action="append", default=[], metavar="FILE",
                        help="with the algorithms that it registers: Python or a shared object")
    args = parser.parse_args()
    for file in args.load:
        try:
            load(file)
        except InvalidArgument as error:
            parser.error(f"--load: {error}")
    pages = args.write
    if pages is None:
        print("\n\n".join(table(core.algorithms()) for table in TABLES.values()))
        return
    for page in pages:
        try:
            page.write_text(with_tables(page.read_text(encoding="utf-8")), encoding="utf-8")
        except (OSError, ValueError) as error:
            parser.error(f"--write {page}: {error}")


if __name__ == "__main__":
    _main()
