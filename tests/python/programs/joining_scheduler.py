"""Learning rate schedulers of ranks that join: `joining_scheduler.py BFRUN [CASE …]`."""

import os
import pathlib
import signal
import subprocess
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "support" / "python"))
import preloaded

DIES_IN = 12
STEPS_TOGETHER = 20
VICTIM = 1
RATE = 0.1


def steps_of(optimizer) -> int:
    return optimizer._distributed.core.step_count


def rank_of(case: str) -> None:
    """A rank that joins steps with the learning rate of the others from its first step on, where it
    has their scheduler's state; else they say so. Models are equal all the time then."""
    import torch

    import bluefog_cpp.torch as bf

    joins = os.environ.get("BLUEFOG_JOIN") == "1"
    bf.init()
    torch.manual_seed(1)
    model = torch.nn.Linear(20, 3)
    optimizer = bf.DistributedGradientAllreduceOptimizer(
        torch.optim.SGD(model.parameters(), lr=RATE), model)
    by_step = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda count: 0.9 ** count)
    mile_stones = torch.optim.lr_scheduler.MultiStepLR(optimizer, [5, 1000], gamma=0.5)
    every = 1 if case == "schedulers" else 4
    if case == "schedulers":
        bf.hand_to_newcomers(by_step)
        bf.hand_to_newcomers(mile_stones)
    dies_in = DIES_IN if int(os.environ["RANK"]) == VICTIM and not joins else None
    bf.enter()
    last = None
    generator = torch.Generator().manual_seed(int(os.environ["RANK"]))
    while last is None or steps_of(optimizer) < last:
        if steps_of(optimizer) == dies_in:
            os.kill(os.getpid(), signal.SIGKILL)
        if last is None and bf.membership().joined:
            last = steps_of(optimizer) + STEPS_TOGETHER
        time.sleep(0.01)
        optimizer.zero_grad()
        model(torch.randn(32, 20, generator=generator)).square().mean().backward()
        optimizer.step()
        used = optimizer.param_groups[0]["lr"]
        if last is not None and case == "schedulers":
            rates = bf.allgather(torch.tensor([used]).double())
            assert (rates == rates[0]).all() and 0 < used < RATE / 2, rates
        if steps_of(optimizer) % every == 0:
            by_step.step()
            mile_stones.step()
        if last is not None and case == "schedulers":
            counts = {by_step.last_epoch, mile_stones.last_epoch, steps_of(optimizer)}
            assert len(counts) == 1, counts
    values = model.weight.detach()
    others = bf.allgather(values[None])
    are_equal = all(torch.equal(other, values) for other in others)
    assert are_equal == (case == "schedulers"), "models differ" if not are_equal else "no drift"
    print(f"trained with {bf.size()}", flush=True)


def problem_of(case: str, job) -> str | None:
    if job.returncode != 0 or job.stdout.count("trained with 3") != 3:
        return "expected code 0, and three ranks at the end"
    is_said = "with a learning rate of" in job.stderr
    return None if is_said == (case == "forgotten") else (
        "expected a word on another learning rate where a scheduler was forgotten, and only there")


def main() -> None:
    with preloaded.Server() as server:
        for case in sys.argv[2:] or ("schedulers", "forgotten"):
            job = subprocess.run(
                [sys.argv[1], "-np", "3", "--min-np", "2", "--respawn", "1",
                 *server.command(__file__, "--rank", case)], capture_output=True, text=True,
                timeout=120, check=False, env={**server.environment, "BLUEFOG_TIMEOUT": "30"})
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
