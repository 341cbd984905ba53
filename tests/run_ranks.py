"""Runs one GoogleTest program, or pytest, on its ranks and judges each case.

Every rank writes its own result file. A case failed when any rank failed it or
never finished it, was skipped when every rank skipped it, and passed otherwise.
A case that says that it needs another number of ranks (the property
OTHER_RANKS) is "elsewhere", and counts where it can run. The merged cases go to
RESULTS/NAME.json with the test function of each, which tests/counts.py counts.

Exit code: 0, or 1 for failures, or 77 when no case ran and some were skipped.
A launch with cases for other numbers of ranks alone fails: nothing should
register it.
"""

import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

WRAPPER = pathlib.Path(__file__).with_name("rank_wrapper.sh")
# Properties of a case that can never run on this number of ranks, and of one that ran:
# tests/support/other_ranks.hpp and tests/python/ranks/conftest.py.
OTHER_RANKS = "other_ranks"
RAN = "ran_on_ranks"


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--results", type=pathlib.Path, required=True)
    parser.add_argument("--launcher", help="bfrun, or mpirun; without one, a single process")
    parser.add_argument("--launcher-args", default="", help="further options of the launcher")
    parser.add_argument("--timeout", type=float, default=280, help="seconds for the whole launch")
    parser.add_argument("command", nargs="+")
    return parser.parse_args()


def launch_command(args, folder):
    if not args.launcher:
        return [str(WRAPPER), str(folder), *args.command]
    command = [args.launcher, "-np", str(args.ranks)]
    if pathlib.Path(args.launcher).name == "mpirun":
        command += ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
    return command + args.launcher_args.split() + [str(WRAPPER), str(folder)] + args.command


def run_launch(command, timeout):
    """The launcher's exit code; None when it had to be ended, with its ranks."""
    with subprocess.Popen(command) as process:
        try:
            return process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
        return None


def function_of(case):
    """The test function behind a case: all values and types of a parametrised one are one."""
    suite, name = case.get("classname", ""), case.get("name", "")
    file = case.get("file")
    if not file:  # pytest, whose classname is the file's
        return f"{suite}.{name.partition('[')[0]}"
    if case.get("type_param") is not None:
        suite = suite.rpartition("/")[0]
    function = f"{suite.rpartition('/')[2]}.{name.partition('/')[0]}"
    # Compilers may write it down from another folder, or for another clone.
    return f"tests/{file.rpartition('/tests/')[2]}:{function}"


def state_of(case):
    """(state, text) of one rank's case; None for one that a filter left out."""
    # pytest has the whole story in the text, and knows errors outside the case itself.
    failures = [found.text or found.get("message", "")
                for kind in ("failure", "error") for found in case.findall(kind)]
    if failures:
        return "failed", "\n".join(failures)
    properties = {found.get("name") for found in case.iter("property")}
    skipped = case.find("skipped")
    another_body_ran = OTHER_RANKS in properties and RAN in properties
    if skipped is not None and not another_body_ran:
        state = "elsewhere" if OTHER_RANKS in properties else "skipped"
        # GoogleTest says in the first line where.
        return state, re.sub(r"^\S+:\d+\n", "", skipped.get("message", "")).strip()
    if case.get("status", "run") == "run":
        return "passed", ""
    if "DISABLED_" in case.get("classname", "") + case.get("name", ""):
        return "failed", "it is disabled, and would be counted nowhere"
    return None


def read_rank(path):
    """Yields (case, function, state, text) of one rank's result file."""
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        found = state_of(case)
        if found:
            yield f"{case.get('classname')}.{case.get('name')}", function_of(case), *found


def merge(folder, ranks):
    """Cases by name, each with its state over all ranks; ranks without a result file."""
    order = {"elsewhere": 0, "skipped": 1, "passed": 2, "failed": 3}
    cases, missing, reported = {}, [], {}
    for rank in range(ranks):
        path = folder / f"rank{rank}.xml"
        if not path.exists():
            missing.append(rank)
            continue
        reported[rank] = set()
        for name, function, state, text in read_rank(path):
            reported[rank].add(name)
            case = cases.setdefault(name, {"function": function, "state": state, "text": ""})
            if order[state] > order[case["state"]]:
                case["state"] = state
            if text:
                case["text"] += f"rank {rank}: {text}\n"
    for name, case in cases.items():
        for rank, names in reported.items():
            if name not in names:
                case["state"] = "failed"
                case["text"] += f"rank {rank}: it has results of other cases, and none of this\n"
    return cases, missing


def main():
    args = parse_arguments()
    folder = args.results / args.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = launch_command(args, folder)
    print("+", " ".join(command), flush=True)
    code = run_launch(command, args.timeout)

    cases, missing = merge(folder, args.ranks)
    problems = [f"rank {rank} wrote no results: it ended before its tests did" for rank in missing]
    if not cases:
        problems.append("no test case ran")
    elif all(case["state"] == "elsewhere" for case in cases.values()):
        problems.append(f"every case needs another number of ranks than {args.ranks}")
    if code is None:
        problems.append(f"the launch did not end within {args.timeout:.0f} s")
    elif code != 0 and not any(case["state"] == "failed" for case in cases.values()):
        problems.append(f"the launcher ended with exit code {code}")
    if problems:
        cases["launch"] = {"function": args.name, "state": "failed", "text": "\n".join(problems)}
    (args.results / f"{args.name}.json").write_text(json.dumps(cases, indent=1))

    for name, case in cases.items():
        if case["state"] in ("failed", "skipped"):
            print(f"{case['state'].upper()}: {name}\n{case['text']}")
    states = [case["state"] for case in cases.values()]
    print(", ".join(f"{states.count(state)} {state}" for state in ("passed", "failed", "skipped")))
    if "failed" in states:
        return 1
    return 0 if "passed" in states else 77


if __name__ == "__main__":
    sys.exit(main())
