"""A rank that is stopped is late first, then left out, and hears of it: `stopped_rank.py BFRUN`."""

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


def run_rank() -> None:
    from bluefog_cpp import StateError

    try:
        train()
    except StateError as error:
        print(f"left out: {error}", flush=True)
        sys.exit(3)


def check(bfrun: str) -> None:
    with preloaded.Server() as server:
        job = subprocess.run(
            [bfrun, "-np", "3", "--min-np", "2", *server.command(__file__, "--rank")],
            capture_output=True, text=True, timeout=120, check=False,
            env={**server.environment, "BLUEFOG_TIMEOUT": "3"})
    words = ("rank 0: trained", "rank 2: trained", "gone on without this one",
             f"rank 0: [LateRank(rank=1, rounds={BOUND}, rounds_without=0, oldest={BOUND})]")
    missing = [each for each in words if each not in job.stdout]
    if job.returncode != 0 or missing:
        sys.exit(f"exit code {job.returncode}, expected {missing}\n{job.stdout}\n{job.stderr}")
    print("passed")


if __name__ == "__main__":
    if sys.argv[1] == "--rank":
        run_rank()
    else:
        check(sys.argv[1])
