"""A rank that is stopped is late first, then left out, and hears of it: `stopped_rank.py BFRUN`.

Once by BLUEFOG_TIMEOUT, and by BLUEFOG_HEARTBEAT in averages for which ranks wait and over windows.
"""

import os
import pathlib
import signal
import subprocess
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "support" / "python"))
import preloaded

STOP_STEP = 10
STEPS = 30
BOUND = 3
HEARTBEAT_S = 1


def train() -> None:
    """One rank of the job, over windows whose values may be BOUND rounds old."""
    import torch

    import bluefog_cpp.torch as bf

    bf.init()
    launch_rank = bf.rank()
    torch.manual_seed(1)
    model = torch.nn.Linear(20, 3)
    bf.broadcast_parameters(model.state_dict(), 0)
    optimizer = bf.DecentralizedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.01), model, "win_put", schedule="full",
        numbers={"grace_s": 0.02, "staleness_bound": BOUND})
    processes = bf.allgather(torch.tensor([os.getpid()])).tolist()
    late = []
    bf.on_shrink(lambda: print(f"rank {launch_rank}: {late[-1]}", flush=True))
    for step in range(STEPS):
        if launch_rank == 1 and step == STOP_STEP:
            os.kill(os.getpid(), signal.SIGSTOP)
        optimizer.zero_grad()
        model(torch.randn(8, 20)).square().mean().backward()
        optimizer.step()
        late.append([each for each in optimizer.late_ranks() if each.rank == 1])
        if launch_rank != 1 and step < STOP_STEP:
            bf.barrier()  # nobody waits otherwise
        elif launch_rank == 1:
            bf.barrier()
    optimizer.finish()
    assert bf.size() == 2 and bf.membership().lost[0].rank == 1, bf.membership()
    assert not optimizer.late_ranks() or optimizer.late_ranks()[0].rank != launch_rank
    bf.barrier()
    if launch_rank == 0:
        os.kill(processes[1], signal.SIGCONT)
    print(f"rank {launch_rank}: trained", flush=True)


def train_with_heartbeat(algorithm: str) -> None:
    """One rank of the job. A rank that computes for longer is not stopped."""
    import time

    import torch

    import bluefog_cpp.torch as bf

    bf.init()
    launch_rank = bf.rank()
    model = torch.nn.Linear(20, 3)
    optimizer = bf.DecentralizedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.01), model, algorithm)
    processes = bf.allgather(torch.tensor([os.getpid()])).tolist()
    step = 0
    while step < STEPS or not bf.membership().lost:  # over windows nobody waits
        if launch_rank == 1 and step == STOP_STEP:
            os.kill(os.getpid(), signal.SIGSTOP)
        if launch_rank == 2 and step == STOP_STEP // 2:
            end = time.monotonic() + 3 * HEARTBEAT_S
            while time.monotonic() < end:  # with the lock of Python
                pass
        optimizer.zero_grad()
        model(torch.randn(8, 20)).square().mean().backward()
        optimizer.step()
        step += 1
        time.sleep(0.01 if algorithm == "win_put" else 0)
    lost = bf.membership().lost
    assert bf.size() == 2 and [each.rank for each in lost] == [1], lost
    assert "has shown no sign of life for 1 s (BLUEFOG_HEARTBEAT" in lost[0].cause, lost
    bf.barrier()
    if launch_rank == 0:
        os.kill(processes[1], signal.SIGCONT)
    print(f"rank {launch_rank}: trained", flush=True)


def run_rank(case: str) -> None:
    from bluefog_cpp import StateError

    try:
        if case == "timeout":
            train()
        else:
            train_with_heartbeat("win_put" if case == "windows" else "adapt_then_combine")
    except StateError as error:
        print(f"left out: {error}", flush=True)
        sys.exit(3)


def check(bfrun: str) -> None:
    late = f"rank 0: [LateRank(rank=1, rounds={BOUND}, rounds_without=0, oldest={BOUND})]"
    cases = {"timeout": ({"BLUEFOG_TIMEOUT": "3"}, (late,)),
             **{case: ({"BLUEFOG_TIMEOUT": "600", "BLUEFOG_HEARTBEAT": str(HEARTBEAT_S)}, ())
                for case in ("heartbeat", "windows")}}
    with preloaded.Server() as server:
        for case, (settings, own_words) in cases.items():
            job = subprocess.run(
                [bfrun, "-np", "3", "--min-np", "2", *server.command(__file__, "--rank", case)],
                capture_output=True, text=True, timeout=120, check=False,
                env={**server.environment, **settings})
            words = ("rank 0: trained", "rank 2: trained", "gone on without this one", *own_words)
            missing = [each for each in words if each not in job.stdout]
            if job.returncode != 0 or missing:
                sys.exit(f"{case}: exit code {job.returncode}, expected {missing}\n{job.stdout}\n"
                         f"{job.stderr}")
            print(f"{case}: passed", flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "--rank":
        run_rank(sys.argv[2])
    else:
        check(sys.argv[1])
