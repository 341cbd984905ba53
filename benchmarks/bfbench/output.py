"""Places where results go: the terminal, a file of records, a folder with a report."""

import json

from rich.console import Console

from bfbench.records import count_text
from bfbench.versions import text_of

WIDTH_OF_FILES = 175


def console():
    found = Console(highlight=False)
    return found if found.is_terminal else Console(width=WIDTH_OF_FILES, highlight=False)


def show(args, about, tables, not_run, records, write_report):
    """Writes what `args` asks for, and prints what was found, whichever of the two fails."""
    heads = {name: text_of(value) for name, value in about.items()}
    try:
        if args.json:
            args.json.write_text(json.dumps(
                {"versions": about, "records": records, "not_run": not_run}, indent=1) + "\n")
        if args.report:
            write_report(args.report, heads, records, not_run)
    finally:
        print_all(heads, tables, not_run)
    if args.report:
        console().print(f"report: {args.report / 'report.html'}", markup=False)


def print_all(heads, tables, not_run):
    screen = console()
    for name, text in heads.items():
        screen.print(f"{name}: {text}", markup=False)
    for table in tables:
        screen.print(table)
    for item in not_run:
        what = " ".join(str(item[name]) for name in ("peer", "op", "algorithm", "topology")
                        if name in item)
        ranks = f" at {count_text(item['ranks'], 'rank')}" if "ranks" in item else ""
        screen.print(f"not run: {what}{ranks}: {item['not_run']}", markup=False)
