"""Ranks whose script fails, and the others, who train on: `failing_script.py BFRUN [CASE …]`."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "support" / "python"))
import preloaded

FAILS_IN = 3
STEPS = 40
REASON = "ValueError: a bad batch"
VICTIMS = {"first": 0, "gradients": 1}
"""The rank that fails, by case; else 2."""


class Run:
    """A model of its own values, which steps change by averages alone, and its optimizer."""

    def __init__(self, bf, torch, name: str, rank: int):
        self.bf, self.torch, self.name = bf, torch, name
        self.model = torch.nn.Linear(3, 1)
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.fill_(2.0 ** rank)
        plain = torch.optim.SGD(self.model.parameters(), lr=0.0)
        if name == "awc":
            self.optimizer = bf.DistributedAdaptWithCombineOptimizer(plain, self.model)
        elif name == "put":
            self.optimizer = bf.DistributedWinPutOptimizer(plain, self.model)
        elif name == "tracking":
            self.optimizer = bf.DecentralizedOptimizer(plain, self.model, "gradient_tracking")
        elif name == "passes":
            self.optimizer = bf.DistributedAdaptThenCombineOptimizer(
                plain, self.model, num_steps_per_communication=2)
        elif name == "gradients":
            self.optimizer = bf.DistributedGradientAllreduceOptimizer(plain, self.model)
        else:
            self.optimizer = bf.DistributedAdaptThenCombineOptimizer(plain, self.model)

    def backward(self) -> None:
        self.model(self.torch.ones(2, 3)).mean().backward()

    def step(self) -> None:
        self.optimizer.zero_grad()
        for _ in range(2 if self.name == "passes" else 1):
            self.backward()
        self.optimizer.step()


def fail(case: str, bf, torch, runs: list[Run]) -> None:
    if case == "not_finite":
        with torch.no_grad():
            next(runs[0].model.parameters())[0, 1] = float("nan")
    if case == "caught":
        assert bf.give_up(REASON)
        assert bf.has_left() and bf.give_up(REASON)
        sys.exit(3)
    if case == "peers":
        raise bf_errors().PeerFailure(REASON)
    if case == "in_step":  # the wrapped optimizer's own part of a step
        runs[0].optimizer.param_groups[0]["lr"] = Unusable()
        runs[0].step()
    if case == "in_closure":
        runs[0].optimizer.step(raise_it)
    if case == "backward":  # the first gradients are there, and may be under way
        next(runs[0].model.parameters()).register_hook(raise_it)
        runs[0].step()
    raise_it()


class Unusable:
    def __float__(self):
        raise_it()

    __neg__ = __mul__ = __rmul__ = __lt__ = __eq__ = __float__


def bf_errors():
    from bluefog_cpp import errors

    return errors


def raise_it(_=None) -> None:
    raise ValueError("a bad batch")


def rank_of(case: str) -> None:
    import torch

    import bluefog_cpp.torch as bf

    bf.init()
    own, size = bf.rank(), bf.size()
    names = {"many": ("atc", "awc", "tracking", "put"), "passes": ("passes",),
             "gradients": ("gradients",)}.get(case, ("atc",))
    runs = [Run(bf, torch, name, own) for name in names]
    places = pathlib.Path(os.environ["READY"])
    (places / str(own)).touch()
    # Where ranks have taken steps they have no values of their own any more.
    fails_in = {"many": FAILS_IN, "destinations": 1}.get(case, 0)
    for step in range(STEPS):
        for place, run in enumerate(runs):
            if step == fails_in and place == len(runs) // 2 and (
                    case == "all" or own == VICTIMS.get(case, 2)):
                # A loss within a constructor is raised there.
                while len(list(places.iterdir())) < size:
                    time.sleep(0.01)
                fail(case, bf, torch, runs)
            if case == "otherwise" and step == 4:
                run.optimizer.communication_type = bf.CommunicationType.allreduce
            if case == "elsewhere" and step == 1:
                mean = bf.survive(lambda: bf.allreduce(torch.ones(1)))
                assert mean == 1.0, mean
            if case == "destinations":
                run.optimizer.dst_weights = {(bf.rank() + 1) % bf.size(): 1.0}
                run.optimizer.src_weights = {(bf.rank() - 1) % bf.size(): 0.5}
                run.optimizer.self_weight = 0.5
            run.step()
    for run in runs:
        run.optimizer.finish()
    members = bf.membership()
    steps = {run.optimizer._distributed.core.step_count for run in runs if run.name != "put"}
    assert steps <= {STEPS, 2 * STEPS}, steps
    assert [each.rank for each in members.lost] == [VICTIMS.get(case, 2)], members
    assert REASON in members.lost[0].cause or case == "peers", members
    means = [round(bf.allreduce(next(run.model.parameters())[0, 1]).item(), 3) for run in runs
             if run.name != "put"]
    print(f"rank {members.ranks[bf.rank()]} of {bf.size()} and {size}: means {means}", flush=True)


WHOLE = (1 + 2 + 4 + 8) / 4
"""The mean of the four ranks' values."""
LOST = ("not_finite", "destinations", "peers", "elsewhere", "otherwise", "in_step", "in_closure")
"""Cases in which the rank cannot leave in good order."""


def problem_of(case: str, job) -> str | None:
    found = [eval(each) for each in re.findall(r"means (\[.*?\])", job.stdout)]
    code = 3 if case == "caught" else 1
    victim = VICTIMS.get(case, 2)
    if case == "all":
        return None if job.returncode == 1 and not found else "expected code 1, and no rank left"
    if job.returncode != 0 or len(found) != 3:
        return "expected code 0, and three ranks at the end"
    if not re.search(rf"rank {victim} on .* exited with code {code}", job.stderr):
        return f"expected that rank {victim} has failed with code {code}"
    if case != "peers" and "it has left, as its program could not go on: " + REASON \
            not in job.stderr:
        return "expected a line with the reason"
    is_lost = case in LOST
    keeps_mean = not is_lost and case != "gradients"  # these take the values of one
    if any(not 1 <= mean <= 8 or (mean != WHOLE and keeps_mean) for each in found
           for mean in each):
        return "expected the mean of all ranks' values"
    if case != "peers" and is_lost != ("is lost to the others" in job.stderr):
        return f"expected that it leaves {'at once' if is_lost else 'in good order'}"
    return None


CASES = ("raises", "first", "many", "passes", "gradients", "backward", "caught", "not_finite",
         "destinations", "elsewhere", "otherwise", "in_step", "in_closure", "peers", "all")


def main() -> None:
    with preloaded.Server() as server:
        for case in sys.argv[2:] or CASES:
            with tempfile.TemporaryDirectory() as ready:
                job = subprocess.run(
                    [sys.argv[1], "-np", "4", "--min-np", "2",
                     *server.command(__file__, "--rank", case)], capture_output=True, text=True,
                    timeout=120, check=False,
                    env={**os.environ, **server.environment, "READY": ready})
            problem = problem_of(case, job)
            if problem:
                sys.exit(f"{case}: {problem}; found code {job.returncode}\n"
                         f"{job.stdout}\n{job.stderr}")
            print(f"{case}: passed", flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "--rank":
        rank_of(sys.argv[2])
    else:
        main()
