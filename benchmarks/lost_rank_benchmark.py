"""How long training stands still when a rank is killed: with `bfrun --min-np`, where the others go
on, and under torchrun, which starts all ranks again. One line of figures for each.

    python benchmarks/lost_rank_benchmark.py --bfrun build/release/tools/bfrun/bfrun --kills 20
"""

import argparse
import os
import re
import signal
import statistics
import subprocess
import sys
import time

RANKS = 4
KILL_STEP = 30
STEPS = 60


def train() -> None:
    """One rank of a job: a small convolutional network, data made by a loader with a worker."""
    import torch

    import bluefog_cpp.torch as bf

    class Images(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
        def __len__(self) -> int:
            return 100 * RANKS * STEPS

        def __getitem__(self, place: int) -> tuple[torch.Tensor, int]:
            return torch.full((1, 28, 28), float(place % 10)), place % 10

    bf.init()
    rank = bf.rank()
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 16, 3), torch.nn.ReLU(), torch.nn.Flatten(),
                                torch.nn.Linear(16 * 26 * 26, 10))
    bf.broadcast_parameters(model.state_dict(), 0)
    optimizer = bf.DistributedAdaptThenCombineOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.01), model)
    loader = torch.utils.data.DataLoader(Images(), batch_size=8, num_workers=1,
                                         sampler=bf.ElasticSampler(Images()))
    is_again = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
    for step, (images, labels) in enumerate(loader):
        if step == STEPS:
            break
        if rank == 2 and step == KILL_STEP and not is_again:
            say(f"killed at {time.monotonic():.6f}")
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        begin = time.monotonic()
        optimizer.step()
        say(f"step {step} took {time.monotonic() - begin:.6f} until {time.monotonic():.6f}")


def say(line: str) -> None:
    """A line that no other rank's is mixed into, buffered or not."""
    os.write(1, f"{line}\n".encode())


def standstill(words: list[str]) -> tuple[float, float]:
    """From the kill to the first step that all have ended after it, and a step's median, in s."""
    job = subprocess.run([*words, __file__, "--train"], capture_output=True, text=True,
                         check=False)
    killed = re.search(r"killed at (\S+)", job.stdout)
    if job.returncode != 0 or killed is None:
        sys.exit(f"{' '.join(words)} ended with {job.returncode}\n{job.stdout}\n{job.stderr}")
    steps = [(int(step), float(took), float(until)) for step, took, until in re.findall(
        r"step (\d+) took (\S+) until (\S+)", job.stdout)]
    ends: dict[int, list[float]] = {}
    for step, _, until in steps:
        if until > float(killed[1]):
            ends.setdefault(step, []).append(until)
    whole = min(max(each) for each in ends.values() if len(each) >= RANKS - 1)
    return whole - float(killed[1]), statistics.median(took for _, took, _ in steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bfrun", default="bfrun")
    parser.add_argument("--kills", type=int, default=20, help="jobs of each kind")
    parser.add_argument("--train", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.train:
        train()
        return
    kinds = {
        "bfrun --min-np, the others go on": [arguments.bfrun, "-np", str(RANKS), "--min-np", "2",
                                             sys.executable],
        "torchrun --max-restarts, all start again": [
            sys.executable, "-m", "torch.distributed.run", "--standalone",
            f"--nproc-per-node={RANKS}", "--max-restarts=1"],
    }
    print(f"{RANKS} ranks, one of which is killed in step {KILL_STEP}; {arguments.kills} times")
    for kind, words in kinds.items():
        found = [standstill(words) for _ in range(arguments.kills)]
        times = sorted(time_ for time_, _ in found)
        print(f"{kind}: {1000 * statistics.median(times):.0f} ms from the kill to the end of the "
              f"next step of all (median; {1000 * times[0]:.0f} to {1000 * times[-1]:.0f}), an "
              f"average's step {1000 * statistics.median(step for _, step in found):.1f} ms",
              flush=True)


if __name__ == "__main__":
    main()
