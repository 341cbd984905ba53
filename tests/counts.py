"""What counts as a test, and what as passed, failed or skipped (docs/building.md, "Tests").

A launch is what CTest runs once: a program on so many ranks, or a script. A test function (file and
name, a parametrised one once) is counted once over all launches of all presets: failed if it failed
in one of them, skipped if it ran in none, passed otherwise. A script is one function.
"""

import collections
import dataclasses
import json
import re
import xml.etree.ElementTree as ElementTree

# How CTest says that a test ended with the exit code for "skipped". Whatever else it did not run,
# for a missing program or a fixture that failed, is a failure.
SKIP_CODE = "SKIP_RETURN_CODE="
# What a launch runs that only says why others cannot run here (cmake/BluefogTests.cmake).
SKIPS = 'echo "SKIPPED: $1"; exit 77'
# The label of tests that show what the product does on a stand-in, not on the thing itself.
STAND_IN = "stand_in"
# Lines that the report repeats of a launch that failed as a whole.
LAST_WORDS = 20


@dataclasses.dataclass
class Case:
    """The outcome of one test function in one launch."""

    function: str
    state: str
    text: str = ""


@dataclasses.dataclass
class Launch:
    preset: str
    name: str
    state: str
    cases: list = dataclasses.field(default_factory=list)
    on_stand_in: bool = False

    @property
    def rung(self):
        return self.name.split(".")[0]


@dataclasses.dataclass
class Expected:
    """A launch that CTest lists."""

    labels: tuple = ()
    has_cases: bool = False  # tests/run_ranks.py writes down what its cases did
    only_skips: bool = False  # bluefog_add_skipped_test has registered it


def failed_launch(preset, name, text):
    return Launch(preset, name, "failed", [Case(name, "failed", text)])


def expected_launches(listed):
    """Tests by name, from the words of `ctest --show-only=json-v1`."""
    expected = {}
    for test in json.loads(listed)["tests"]:
        properties = {found["name"]: found["value"] for found in test.get("properties", [])}
        command = test.get("command", [])
        has_cases = any(word.endswith("/run_ranks.py") for word in command)
        expected[test["name"]] = Expected(tuple(properties.get("LABELS", ())), has_cases,
                                          command[1:3] == ["-c", SKIPS])
    return expected


def launches_of(preset, junit, expected, ranks_folder, exit_code):
    """What CTest says in its file `junit` of the launches that were expected of it."""
    if not junit.exists():
        return [failed_launch(preset, "ctest", f"CTest wrote no results (exit code {exit_code})")]
    launches = [launch_of(preset, case, expected.get(case.get("name"), Expected()), ranks_folder)
                for case in ElementTree.parse(junit).getroot().iter("testcase")]
    found = {launch.name for launch in launches}
    launches += [failed_launch(preset, name, "CTest lists this launch, and has no result of it")
                 for name in expected if name not in found]
    if exit_code != 0 and all(launch.state != "failed" for launch in launches):
        launches.append(failed_launch(preset, "ctest", f"CTest ended with exit code {exit_code}, "
                                                       "and no launch failed"))
    return launches


def launch_of(preset, case, expected, ranks_folder):
    name = case.get("name")
    state, text = state_of(case)
    launch = Launch(preset, name, state, on_stand_in=STAND_IN in expected.labels)
    written = ranks_folder / f"{name}.json"
    if written.exists():
        launch.cases = [Case(**found) for found in json.loads(written.read_text()).values()]
    elif expected.has_cases and state == "passed":
        launch.state, text = "failed", "it passed, and wrote down no case"
    for found in launch.cases:
        if found.function == name and found.state == "failed":  # ranks ended before
            found.text = f"{found.text.strip()}\n{last_words(case)}"
    if not launch.cases or (launch.state == "failed" and
                            all(found.state != "failed" for found in launch.cases)):
        launch.cases.append(Case(name, launch.state, text))
    elif any(found.state == "failed" for found in launch.cases):
        launch.state = "failed"
    return launch


def state_of(case):
    """(state, text) of one of CTest's results."""
    if case.get("status") == "run":
        return "passed", ""
    if case.get("status") == "fail":
        failure = case.find("failure")
        message = failure.get("message", "") if failure is not None else ""
        return "failed", f"{message} {last_words(case)}".strip()
    skipped = case.find("skipped")
    message = skipped.get("message", "") if skipped is not None else ""
    if case.get("status") == "notrun" and message.startswith(SKIP_CODE):
        said = re.search(r"SKIPPED: (.*)", case.findtext("system-out", ""))
        if said:
            return "skipped", said.group(1).strip()
        return "failed", f"it skipped without a line 'SKIPPED: reason' ({message})"
    return "failed", f"CTest did not run it: {message or case.get('status')}"


def last_words(case):
    """What a launch that failed has said last."""
    lines = [line for line in case.findtext("system-out", "").splitlines() if line.strip()]
    said = "\n".join(lines[-LAST_WORDS:]) if lines else "it said nothing"
    return f"after {float(case.get('time', 0)):.0f} s; its last words:\n{said}"


def missing_rungs(preset, launches, rungs):
    """A failure for each rung of which this preset ran nothing."""
    ran = {launch.rung for launch in launches}
    return [failed_launch(preset, rung, "this rung ran no test") for rung in sorted(rungs - ran)]


@dataclasses.dataclass
class Function:
    """A test function over all launches."""

    said: list = dataclasses.field(default_factory=list)  # (launch, case)

    @property
    def state(self):
        states = {case.state for _, case in self.said}
        # A function that all launches have too few or too many ranks for never ran.
        order = ("failed", "passed", "skipped")
        return next((state for state in order if state in states), "failed")

    @property
    def on_stand_in(self):
        return all(launch.on_stand_in for launch, _ in self.said)

    def reasons(self):
        """By what was said: the launches that said it, each once over its cases."""
        never_ran = all(case.state == "elsewhere" for _, case in self.said)
        reasons: dict = collections.defaultdict(dict)
        for launch, case in self.said:
            if case.state == self.state or never_ran:
                text = case.text if case.state == "failed" else without_ranks(case.text)
                text = f"ran on no number of ranks: {text}" if never_ran else text
                reasons[text.strip()][f"{launch.preset} {launch.name}"] = None
        return {text: list(where) for text, where in reasons.items()}


def without_ranks(text):
    """What ranks said, each thing once and without saying which rank said it."""
    lines = [re.sub(r"^rank \d+: ", "", line) for line in text.splitlines()]
    return "\n".join(dict.fromkeys(line for line in lines if line.strip()))


def functions_of(launches):
    functions = collections.defaultdict(Function)
    for launch in launches:
        for case in launch.cases:
            functions[case.function].said.append((launch, case))
    return functions


def total_of(functions):
    counts = collections.Counter(function.state for function in functions)
    return f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped"


def list_of(functions, state):
    """A line for each reason of each function in this state."""
    for name, function in functions.items():
        if function.state == state:
            for text, where in function.reasons().items():
                words = f": {text}".replace("\n", "\n    ") if text else ""
                yield f"{state}: {name} ({', '.join(where)}){words}"


def report(launches):
    """The lines that say what happened; the last one is the total."""
    functions = functions_of(launches)
    rungs = collections.Counter(launch.rung for launch in launches)
    states = collections.Counter(launch.state for launch in launches)
    lines = [*list_of(functions, "skipped"), *list_of(functions, "failed"),
             "launches: " + ", ".join(f"{rung} {count}" for rung, count in rungs.items()) +
             f", of them {states['failed']} failed, {states['skipped']} skipped"]
    stand_ins = [function for function in functions.values() if function.on_stand_in]
    if stand_ins:
        product = [function for function in functions.values() if not function.on_stand_in]
        lines += [f"tests of the product: {total_of(product)}",
                  f"tests on a stand-in alone: {total_of(stand_ins)}"]
    return [*lines, total_of(functions.values())]
