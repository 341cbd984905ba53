"""Runs train_language on a small text and checks what it prints.

    train_language_test.py --bfrun PATH --program PATH CASE
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

LINE = re.compile(
    r"^Step (?P<step>\d+)/(?P<steps>\d+): training loss (?P<training>\d+\.\d{3}), test loss "
    r"(?P<test>\d+\.\d{3}) \((?P<bits>\d+\.\d{3}) bits a byte\), consensus distance "
    r"(?P<distance>\d\.\d{2}e[-+]\d\d), \d+ tokens/s(, \d+\.\d{3} MB a step between hosts)?$",
    re.MULTILINE)
WORDS = b"the mean of all ranks is what neighbours agree on, step by step. "
TINY = ("--batch-size", "4", "--width", "16", "--layers", "1")


class Runner:
    def __init__(self, bfrun, program, folder):
        self.bfrun, self.program, self.folder = bfrun, program, folder
        self.data = folder / "text"
        self.data.write_bytes(WORDS * 80)

    def run(self, *options, ranks=2):
        usual = [word for name, value in (("--warmup-steps", "2"), ("--heads", "2"),
                                          ("--length", "16")) if name not in options
                 for word in (name, value)]
        command = [self.bfrun, "-np", str(ranks), self.program, "--data", self.data, *TINY, *usual,
                   *options]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                              timeout=240, check=False)
        print("$", *command, f"\n{done.stdout}{done.stderr}(exit code {done.returncode})",
              flush=True)
        return done

    def lines(self, *options, ranks=2):
        """What a run that must succeed says of each report."""
        done = self.run(*options, ranks=ranks)
        check(done.returncode == 0, "exit code 0", done.returncode)
        found = [match.groupdict() for match in LINE.finditer(done.stdout)]
        check(done.stdout.count("Step ") == len(found), "lines of the known form", done.stdout)
        return found


def check(holds, expected, found):
    if not holds:
        sys.exit(f"FAILED: expected {expected}, found {found!r}")


def learns(runner):
    """Each way once; the text has few bytes, which some steps suffice to learn."""
    for words in ((), ("--dtype", "bfloat16"), ("--optimizer", "accum_adamw"),
                  ("--algorithm", "gradient_allreduce"),
                  ("--algorithm", "diloco", "--local-steps", "5"),
                  ("--algorithm", "choco", "--schedule", "ring", "--compression", "int8"),
                  ("--algorithm", "gossip-diloco", "--local-steps", "5", "--schedule", "ring",
                   "--compression", "int8", "--option", "outer-momentum=0.5")):
        found = runner.lines("--steps", "40", "--report-every", "20", "--lr", "0.01", *words)
        check([line["step"] for line in found] == ["20", "40"], "two reports", found)
        last = float(found[-1]["test"])
        check(last < 4.2, "a loss well below that of the start, 5.545", found)
        check(abs(float(found[-1]["bits"]) - last / 0.6931472) < 2e-3, "bits of the loss", found)
    check(float(runner.lines("--steps", "2")[-1]["distance"]) == 0.0,
          "two ranks that average exactly", found)
    check(float(runner.lines("--steps", "2", "--algorithm", "none")[-1]["distance"]) > 0.0,
          "ranks that differ", found)


def resumes(runner):
    for words in ((), ("--algorithm", "gossip_diloco", "--local-steps", "2", "--optimizer",
                       "accum_adamw")):
        state = ("--checkpoint", runner.folder / "state", "--report-every", "3", *words)
        # The rate depends on the step alone while it rises.
        constant = ("--warmup-steps", "1000")
        whole = runner.lines("--steps", "9", *state, *constant)
        runner.lines("--steps", "6", *state, *constant)
        rest = runner.lines("--steps", "9", "--resume", *state, *constant)
        check(rest == whole[-1:], f"{whole[-1:]}, as without the break", rest)
        done = runner.run("--steps", "9", "--resume", *state, *constant)
        check(done.returncode == 0 and not LINE.search(done.stdout), "nothing left to do", done)


def errors(runner):
    for words, expected in (
            (("--heads", "3"), "--heads: expected a divisor of the width, 16, found 3"),
            (("--algorithm", "diloko"), "did you mean diloco?"),
            (("--algorithm", "dmsgd"), "--algorithm: expected one without momentum of its own"),
            (("--algorithm", "diloco", "--option", "outer_momentum=2"), "outer_momentum"),
            (("--compression", "int4"), "found 'compression=int4'"),
            (("--algorithm", "choco", "--compression", "int5"), "int5"),
            (("--data", "/none/such"), "--data: expected files that can be read, found /none/such"),
            (("--length", "3000"), "--data: expected more than 3000 bytes for each of 2 ranks"),
            (("--dtype", "float8"), "bfloat16"), (("--resume",), "--checkpoint"),
            (("--checkpoint", "/none/such/x"), "expected a folder that exists")):
        done = runner.run("--steps", "1", *words)
        check(0 < done.returncode < 128, "an error", done.returncode)
        check(expected in done.stderr, expected, done.stderr)


CASES = {"learns": learns, "resumes": resumes, "errors": errors}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bfrun", type=pathlib.Path, required=True)
    parser.add_argument("--program", type=pathlib.Path, required=True)
    parser.add_argument("case", choices=CASES)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        CASES[args.case](Runner(args.bfrun, args.program, pathlib.Path(folder)))


if __name__ == "__main__":
    main()
