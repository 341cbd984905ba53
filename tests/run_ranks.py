"""Runs one GoogleTest program, or pytest, on its ranks and judges each case.

Every rank writes its own result file. A case passed when it passed on every
rank that ran it, failed when any rank failed it or never finished it, and
skipped when ranks skipped it and none failed. The merged cases go to
RESULTS/NAME.json, which tests/run_suites.py counts one by one.

Exit code: 0, or 1 for failures, or 77 when every case was skipped.
"""

import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

WRAPPER = pathlib.Path(__file__).with_name("rank_wrapper.sh")


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


def read_rank(path):
    """Yields (case, state, text) of one rank's result file."""
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        # pytest has the whole story in the text, and knows errors outside the case itself.
        failures = [found.text or found.get("message", "")
                    for kind in ("failure", "error") for found in case.findall(kind)]
        skipped = case.find("skipped")
        if failures:
            yield name, "failed", "\n".join(failures)
        elif skipped is not None:
            yield name, "skipped", skipped.get("message", "").strip()
        elif case.get("status", "run") == "run":
            yield name, "passed", ""


def merge(folder, ranks):
    """Cases by name, each with its worst state; ranks without a result file."""
    order = {"passed": 0, "skipped": 1, "failed": 2}
    cases, missing = {}, []
    for rank in range(ranks):
        path = folder / f"rank{rank}.xml"
        if not path.exists():
            missing.append(rank)
            continue
        for name, state, text in read_rank(path):
            case = cases.setdefault(name, {"state": state, "text": ""})
            if order[state] > order[case["state"]]:
                case["state"] = state
            if text:
                case["text"] += f"rank {rank}: {text}\n"
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
    if code is None:
        problems.append(f"the launch did not end within {args.timeout:.0f} s")
    elif code != 0 and not any(case["state"] == "failed" for case in cases.values()):
        problems.append(f"the launcher ended with exit code {code}")
    if problems:
        cases["launch"] = {"state": "failed", "text": "\n".join(problems)}
    (args.results / f"{args.name}.json").write_text(json.dumps(cases, indent=1))

    for name, case in cases.items():
        if case["state"] != "passed":
            print(f"{case['state'].upper()}: {name}\n{case['text']}")
    states = [case["state"] for case in cases.values()]
    print(", ".join(f"{states.count(state)} {state}" for state in ("passed", "failed", "skipped")))
    if "failed" in states:
        return 1
    return 0 if "passed" in states else 77


if __name__ == "__main__":
    sys.exit(main())
