"""How long training stands still when a rank is killed: with `bfrun --min-np`, where the others go
on, and under torchrun, which starts all ranks again. One line of figures for each.

    python benchmarks/lost_rank_benchmark.py --bfrun build/release/tools/bfrun/bfrun --kills 20

With --rejoin: how long it takes until a process that bfrun has started in its place (--respawn)
trains with the others, and how long these stand still for it. A table, of one job.

With --hosts 4: the ranks are on so many hosts, which are network namespaces of this machine (as
root), and bfrun starts them there (--host-discovery); without torchrun.
"""

import argparse
import itertools
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any, NamedTuple

HOSTS_FOLDER = pathlib.Path(__file__).resolve().parents[1] / "tests/hosts"
RANKS = 4
KILL_STEP = 30
STEPS = 60
VICTIM = 2


def made() -> tuple[Any, Any, Any]:
    """A small convolutional network, its optimizer, and a loader with a worker, which makes data.
    """
    import torch

    import bluefog_cpp.torch as bf

    class Images(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
        def __len__(self) -> int:
            return 100 * RANKS * STEPS

        def __getitem__(self, place: int) -> tuple[torch.Tensor, int]:
            return torch.full((1, 28, 28), float(place % 10)), place % 10

    bf.init()
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 16, 3), torch.nn.ReLU(), torch.nn.Flatten(),
                                torch.nn.Linear(16 * 26 * 26, 10))
    bf.broadcast_parameters(model.state_dict(), 0)
    optimizer = bf.DistributedAdaptThenCombineOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.01), model)
    loader = torch.utils.data.DataLoader(Images(), batch_size=8, num_workers=1,
                                         sampler=bf.ElasticSampler(Images()))
    return model, optimizer, loader


def step_of(model: Any, optimizer: Any, images: Any, labels: Any) -> tuple[float, float]:
    """Seconds in the optimizer's step, and when it ended."""
    import torch

    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(images), labels).backward()
    begin = time.monotonic()
    optimizer.step()
    end = time.monotonic()
    return end - begin, end


def end_here() -> None:
    say(f"killed at {time.monotonic():.6f}")
    os.kill(os.getpid(), signal.SIGKILL)


def train() -> None:
    """One rank of a job."""
    model, optimizer, loader = made()
    is_again = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
    for step, (images, labels) in enumerate(loader):
        if step == STEPS:
            break
        if os.environ["RANK"] == str(VICTIM) and step == KILL_STEP and not is_again:
            end_here()
        took, end = step_of(model, optimizer, images, labels)
        say(f"step {step} took {took:.6f} until {end:.6f}")


def train_with_newcomers(kills: int) -> None:
    """One rank of a job, in which the last process that has joined is killed after some steps."""
    begin = time.monotonic()
    model, optimizer, loader = made()
    import bluefog_cpp.torch as bf

    ready = time.monotonic()
    bf.enter()
    joins = bool(bf.membership().joined)
    if joins:
        say(f"joined {bf.membership().epoch} after {ready - begin:.6f} and "
            f"{time.monotonic() - ready:.6f}")
    group, since = -1, 0
    for epoch in itertools.count(loader.sampler.epoch):
        loader.sampler.set_epoch(epoch)
        for images, labels in loader:
            took, end = step_of(model, optimizer, images, labels)
            members = bf.membership()
            if members.epoch != group:
                # The others have met at the end of the step before a new rank's first one.
                group, since = members.epoch, int(joins and group == -1)
                say(f"rank {os.environ['RANK']} in {group} took {took:.6f} until {end:.6f}")
            since += 1
            if len(members.lost) > kills:
                sys.exit("expected all ranks to end in the same step")
            if since < KILL_STEP or bf.size() < RANKS:
                continue
            if len(members.lost) == kills:
                return  # on all ranks in the same step
            if os.environ["RANK"] == str(VICTIM):
                end_here()


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


class Rejoin(NamedTuple):
    """Seconds of one kill."""

    next_step: float
    """To the end of the others' next step."""
    made: float
    """From the new process's first line to bf.enter."""
    waited: float
    """In bf.enter."""
    meeting: float
    """The longest step of the others at whose end they took it in."""
    full: float
    """From the kill to the end of the first step of all."""


def launcher(bfrun: str, hosts: int, folder: str) -> list[str]:
    """bfrun with the ranks on this machine, or on so many hosts of netns.sh."""
    words = [bfrun, "-np", str(RANKS), "--min-np", "2"]
    if hosts == 0:
        return words
    slots = [RANKS // hosts + (host < RANKS % hosts) for host in range(hosts)]
    discovery = pathlib.Path(folder) / "discover"
    lines = "".join(f"echo bfhost{host + 1}:{count}\n" for host, count in enumerate(slots))
    discovery.write_text(f"#!/bin/sh\n{lines}")
    discovery.chmod(0o755)
    return [str(HOSTS_FOLDER / "netns.sh"), "-n", str(hosts), "--", *words, "--host-discovery",
            str(discovery), "--remote-shell", str(HOSTS_FOLDER / "netns_agent.sh")]


def rejoins(words: list[str], kills: int) -> list[Rejoin]:
    words = [*words, "--respawn", str(kills), sys.executable, __file__, "--train", "--rejoin",
             "--kills", str(kills)]
    job = subprocess.run(words, capture_output=True, text=True, check=False)
    killed = [float(at) for at in re.findall(r"killed at (\S+)", job.stdout)]
    joined = {int(group): (float(ready), float(waited)) for group, ready, waited in re.findall(
        r"joined (\d+) after (\S+) and (\S+)", job.stdout)}
    first: dict[int, dict[int, tuple[float, float]]] = {}
    """How long the first step in each group took each rank, and when it ended."""
    for rank, group, took, until in re.findall(r"rank (\d+) in (\d+) took (\S+) until (\S+)",
                                               job.stdout):
        first.setdefault(int(group), {})[int(rank)] = float(took), float(until)
    if job.returncode != 0 or len(killed) != kills or sorted(joined) != list(
            range(2, 2 * kills + 1, 2)):
        sys.exit(f"{' '.join(words)} ended with {job.returncode}, {len(killed)} kills and the new "
                 f"groups {sorted(joined)}\n{job.stdout[-4000:]}\n{job.stderr[-4000:]}")
    found = []
    for at, (group, times) in zip(killed, sorted(joined.items())):
        others = [took for rank, (took, _) in first[group].items() if rank != VICTIM]
        found.append(Rejoin(max(until for _, until in first[group - 1].values()) - at, *times,
                            max(others), first[group][VICTIM][1] - at))
    return found


def print_rejoins(found: list[Rejoin]) -> None:
    rows = {
        "SIGKILL to the end of the others' next step": [each.next_step for each in found],
        "new process: first line to bf.enter": [each.made for each in found],
        "new process: wait in bf.enter": [each.waited for each in found],
        "new process: first line to being taken in": [each.made + each.waited for each in found],
        "longest step of the others at the meeting": [each.meeting for each in found],
        "SIGKILL to the end of the first step of all": [each.full for each in found],
    }
    print(f"{RANKS} ranks, one of which is killed and started again; {len(found)} times; ms\n"
          f"{'':45} {'median':>8} {'least':>8} {'most':>8}")
    for name, times in rows.items():
        print(f"{name:45}" + "".join(f" {1000 * value:8.0f}" for value in (
            statistics.median(times), min(times), max(times))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bfrun", default="bfrun")
    parser.add_argument("--kills", type=int, default=20, help="jobs of each kind")
    parser.add_argument("--rejoin", action="store_true",
                        help="kills in one job, whose ranks are started again, in place of both")
    parser.add_argument("--hosts", type=int, default=0, choices=(0, 2, 3, 4),
                        help="that the ranks are on; 0: this machine")
    parser.add_argument("--train", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.train and arguments.rejoin:
        train_with_newcomers(arguments.kills)
        return
    if arguments.train:
        train()
        return
    with tempfile.TemporaryDirectory(prefix="lost_rank_") as folder:
        words = launcher(arguments.bfrun, arguments.hosts, folder)
        if arguments.rejoin:
            print_rejoins(rejoins(words, arguments.kills))
        else:
            print_standstills(words, arguments.hosts, arguments.kills)


def print_standstills(bfrun: list[str], hosts: int, kills: int) -> None:
    kinds = {"bfrun --min-np, the others go on": [*bfrun, sys.executable]}
    if hosts == 0:
        kinds["torchrun --max-restarts, all start again"] = [
            sys.executable, "-m", "torch.distributed.run", "--standalone",
            f"--nproc-per-node={RANKS}", "--max-restarts=1"]
    place = "" if hosts == 0 else f" on {hosts} hosts"
    print(f"{RANKS} ranks{place}, one of which is killed in step {KILL_STEP}; {kills} times")
    for kind, words in kinds.items():
        found = [standstill(words) for _ in range(kills)]
        times = sorted(time_ for time_, _ in found)
        print(f"{kind}: {1000 * statistics.median(times):.0f} ms from the kill to the end of the "
              f"next step of all (median; {1000 * times[0]:.0f} to {1000 * times[-1]:.0f}), an "
              f"average's step {1000 * statistics.median(step for _, step in found):.1f} ms",
              flush=True)


if __name__ == "__main__":
    main()
