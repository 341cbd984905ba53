"""Ranks that train on when one of them is killed: `lost_rank.py BFRUN [CASE …]`."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "support" / "python"))
sys.path.append(str(pathlib.Path(__file__).resolve().parent))
import preloaded
from runs_that_lose_ranks import OWN_GROUPS, Run

KILL_STEP = 12
STEPS = 40
VICTIMS = {"many": {2: KILL_STEP}, "windows": {1: KILL_STEP}, "amid": {2: KILL_STEP},
           "two": {3: KILL_STEP, 0: KILL_STEP + 9}, "moving": {3: KILL_STEP},
           "callback": {3: KILL_STEP}, "late": {3: 9}, "put": {1: KILL_STEP},
           "hosts": {1: KILL_STEP}}
"""The ranks that are killed by themselves, and in which step."""
WINDOWS = ("put", "get", "win_put", "async_push_sum")


def end_here() -> None:
    """Kills this process, which has a child that outlives it: a data-loader worker, say."""
    if os.fork() == 0:
        time.sleep(3)
        os._exit(0)
    print(f"killed at {time.monotonic():.6f}", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def training(case: str) -> None:
    """One rank of a job."""
    import torch

    import bluefog_cpp.torch as bf

    if case == "hosts":  # each rank is a host: windows go over TCP
        os.environ["BLUEFOG_HOST_ID"] = f"host-{os.environ['RANK']}"
    bf.init()
    launch_rank, size = bf.rank(), bf.size()
    prepared = bf.neighbor_allreduce_.prepare(torch.ones(2))
    torch.manual_seed(1)
    # The kernel frees this before it says that the process has ended.
    ballast = torch.ones(2**27) if case == "windows" and launch_rank == 1 else None  # noqa: F841
    if case in ("many", "put"):  # on a ring, rank 3 hears of the end of rank 1 from others alone
        bf.set_topology(bf.RingGraph(size), is_weighted=True)
    names = {"many": ("atc", "awc", "in_backward", "gradients", "tracking", "everybody", "closure",
                      "own"),
             "windows": WINDOWS, "hosts": WINDOWS}.get(case, (case,))
    runs = [Run(bf, torch, name) for name in names]
    dies_in = VICTIMS[case].get(launch_rank)
    shrunk = []

    def on_shrink() -> None:
        if case == "callback":  # a second rank is lost while the first one's loss is mended
            if launch_rank == 1:
                end_here()
            bf.allreduce(torch.ones(1))
        if case == "late" and launch_rank == 1:
            end_here()
        shrunk.append(bf.membership())

    bf.on_shrink(on_shrink)
    if case == "moving" and launch_rank == 1:
        runs[0].optimizer._distributed.move_to = lambda *_: end_here()
    generator = torch.Generator().manual_seed(launch_rank)
    longest, ended = 0.0, 0.0
    for step in range(STEPS):
        data = torch.randn(32, 20, generator=generator)
        if step == dies_in and case == "amid":
            # In the middle of the calls of one step.
            next(runs[0].model.parameters()).register_hook(lambda _: end_here())
        elif step == dies_in:
            end_here()
        if case == "late" and step == (5 if launch_rank == 2 else 9):
            # Rank 2 waits here for the others, which are four steps ahead.
            bf.survive(lambda: bf.allreduce(torch.ones(1)))
        if case == "put":
            time.sleep(0.02)  # nobody waits for the others
        for run in runs:
            before = time.monotonic()
            run.step(data)
            now = time.monotonic()
            if shrunk and not ended:
                ended = now
            longest = max(longest, now - before)
        if case in ("many", "windows", "hosts") and step % 3 == 0:
            mean = bf.survive(lambda: bf.allreduce(torch.tensor([1.0, float(bf.size())])))
            assert mean[0] == 1.0 and mean[1] == bf.size(), mean
    for run in runs:
        run.finish()
        check_own(bf, run)
    counts = bf.allgather(torch.tensor([float(run.optimizer._distributed.core.step_count)
                                        for run in runs]))
    assert (counts == STEPS).all(), counts
    for loss in bf.membership().lost:
        assert (loss.step >= 0) == (case not in ("windows", "hosts", "put")), loss
        assert loss.step < STEPS and 0 < time.time() - loss.time < 600, loss
    if case in ("many", "windows", "hosts", "amid", "two"):
        assert len(shrunk) == bf.membership().epoch, shrunk
    if shrunk:
        check_prepared(prepared)
    report(bf, ended, longest)


def check_prepared(call) -> None:
    """It was prepared for ranks that are not there any more."""
    from bluefog_cpp import StateError

    try:
        call()
    except StateError as error:
        assert "found those that are left; prepare it again" in str(error), error
    else:
        raise AssertionError("a call of ranks that are lost was made")


def check_own(bf, run: Run) -> None:
    """Each group has an object of its own, which has begun anew."""
    if run.name == "own":
        carried = dict(run.optimizer._distributed.core.carried())
        assert 1 <= carried["rounds"] <= STEPS - KILL_STEP, carried["rounds"]
        assert OWN_GROUPS == [4, 3], OWN_GROUPS


def report(bf, ended: float, longest: float) -> None:
    members = bf.membership()
    assert bf.size() == len(members.ranks), members
    lost = sorted(each.rank for each in members.lost)
    print(f"rank {members.ranks[bf.rank()]}: size {bf.size()}, lost {lost}, next step at "
          f"{ended:.6f}, longest {longest * 1000:.1f} ms", flush=True)


def sampling() -> None:
    """All samples of each epoch, and as many of them on each rank, whoever is lost. At the end of
    an epoch loaders ask no more, and what the lost rank had not drawn is missed."""
    import torch

    import bluefog_cpp.torch as bf

    bf.init()
    launch_rank = bf.rank()
    model = torch.nn.Linear(20, 1)
    optimizer = bf.DistributedAdaptThenCombineOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model)
    data = [(torch.full((20,), float(i)), i) for i in range(203)]
    sampler = bf.ElasticSampler(data, seed=3)
    loader = torch.utils.data.DataLoader(data, batch_size=5, sampler=sampler, num_workers=1)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        seen = torch.zeros(len(data))
        batches = 0
        for inputs, numbers in loader:
            if (epoch, batches, launch_rank) in ((0, 4, 2), (1, 12, 3)):
                end_here()
            seen[numbers] += 1
            batches += 1
            optimizer.zero_grad()
            model(inputs / 203).square().mean().backward()
            optimizer.step()
        counts = bf.survive(lambda own=float(batches): bf.allgather(torch.tensor([own])))
        assert (counts == batches).all(), counts
        everybody = bf.survive(lambda own=seen: bf.allreduce(own, average=False))
        missed = int((everybody == 0).sum())
        share = -(-203 // 3)  # of rank 3, which may have drawn most of it
        assert missed == 0 or (epoch == 1 and missed <= share), (epoch, everybody)
    report(bf, time.monotonic(), 0)


def nobody() -> None:
    """Optimizers that average over nobody hear of a loss all the same; the slower rank's steps are
    its own, and none is passed over."""
    import torch

    import bluefog_cpp.torch as bf

    bf.init()
    launch_rank = bf.rank()
    model, other = torch.nn.Linear(4, 1), torch.nn.Linear(4, 1)
    empty = bf.DistributedAdaptThenCombineOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model,
        communication_type=bf.CommunicationType.empty)
    none = bf.DecentralizedOptimizer(torch.optim.SGD(other.parameters(), lr=0.1), other, "none")
    for optimizer, trained in ((empty, model), (none, other)):
        lost_before = len(bf.membership().lost)
        for step in range(1000):
            if launch_rank == 1 + lost_before and step == 5:
                end_here()
            trained(torch.ones(2, 4)).sum().backward()
            optimizer.step()
            time.sleep(0.004 * (1 + launch_rank))
            if len(bf.membership().lost) > lost_before:
                break
        assert len(bf.membership().lost) == lost_before + 1, bf.membership()
        if optimizer is none:
            assert not optimizer.passes_over
            assert optimizer._distributed.core.step_count == step + 1
        # The others meet before the next one is lost.
        bf.survive(bf.barrier)
    report(bf, time.monotonic(), 0)


def machines() -> None:
    """A machine is lost as a whole: the graph of machines goes on without it."""
    os.environ["BLUEFOG_NODES_PER_MACHINE"] = "1"
    import torch

    import bluefog_cpp.torch as bf
    from bluefog_cpp import topology_util

    bf.init()
    launch_rank = bf.rank()
    ring = topology_util.RingGraph(4, connect_style=2)
    bf.set_machine_topology(ring, is_weighted=True)
    model = torch.nn.Linear(4, 1)
    optimizer = bf.DistributedAdaptThenCombineOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model,
        communication_type=bf.CommunicationType.hierarchical_neighbor_allreduce)
    for step in range(STEPS):
        if step == KILL_STEP and launch_rank == 1:
            end_here()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    left = topology_util.to_mixing_matrix(ring).without([1]).among([0, 2, 3])
    expected = sum(weight * 2.0 ** source for source, reader, weight in
                   topology_util.from_mixing_matrix(left).edges.data("weight")
                   if reader == bf.rank())
    averaged = bf.hierarchical_neighbor_allreduce(torch.tensor([2.0 ** bf.rank()]))
    assert abs(averaged.item() - expected) < 1e-6, (averaged, expected)
    report(bf, time.monotonic(), 0)


def uneven() -> None:
    """A machine loses a part of its ranks: the graph of machines keeps the mean of all."""
    os.environ["BLUEFOG_NODES_PER_MACHINE"] = "2"
    import torch

    import bluefog_cpp.torch as bf

    bf.init()
    launch_rank = bf.rank()
    bf.set_machine_topology(bf.RingGraph(2))
    while bf.size() == 4:
        if launch_rank == 1:
            end_here()
        bf.survive(bf.barrier)
    averaged = bf.hierarchical_neighbor_allreduce(torch.tensor([2.0 ** bf.rank()]).double())
    assert abs(averaged.item() - 7 / 3) < 1e-12, averaged  # w_ij was 1/4, and is 1/3
    report(bf, time.monotonic(), 0)


def last_part() -> None:
    """A rank is killed when others have ended the last part of the program and left: whoever has
    not yet has the result of all, too."""
    import torch

    import bluefog_cpp.torch as bf
    from bluefog_cpp._extension import core

    bf.init()
    launch_rank, meet = bf.rank(), core.barrier

    def meets_again(context):
        core.barrier = meet
        meet(context)
        while True:  # until it hears of the loss
            meet(context)

    if launch_rank == 1:
        core.barrier = meets_again
    calls = []
    mean = bf.survive(lambda: calls.append(bf.size()) or bf.allreduce(torch.tensor(
        [float(launch_rank)]), average=False))
    assert mean.item() == 6 and calls == [4], (mean, calls)
    if launch_rank == 2:
        end_here()
    if launch_rank == 1:
        report(bf, time.monotonic(), 0)


def check(bfrun: str, server: preloaded.Server, case: str, lost: list[int]) -> None:
    """Runs a job, and looks at what its survivors say."""
    words = [bfrun, "-np", "4", "--min-np", "2", *server.command(__file__, "--rank", case)]
    job = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False,
                         env=server.environment)
    said = re.findall(r"rank (\d): size (\d), lost (\[.*?\]), next step at (\S+), longest (\S+) ms",
                      job.stdout)
    expected = [rank for rank in range(4) if rank not in lost]
    problem = None
    if job.returncode != 0:
        problem = f"exit code {job.returncode}"
    elif sorted(int(rank) for rank, *_ in said) != expected:
        problem = f"expected ranks {expected} at the end"
    elif any(int(size) != len(expected) or gone != str(lost) for _, size, gone, *_ in said):
        problem = "expected the same group on all ranks"
    if problem:
        sys.exit(f"{case}: {problem}\n{job.stdout}\n{job.stderr}")
    killed = [float(at) for at in re.findall(r"killed at (\S+)", job.stdout)]
    after = max(float(each[3]) for each in said) - min(killed)
    print(f"{case}: passed; the step that was interrupted had ended {after * 1000:.0f} ms after "
          "the kill", flush=True)


OTHERS = {"sampling": sampling, "nobody": nobody, "machines": machines, "uneven": uneven,
          "last_part": last_part}


if __name__ == "__main__":
    if sys.argv[1] != "--rank":
        with preloaded.Server() as started:
            for name, gone in (("many", [2]), ("windows", [1]), ("hosts", [1]), ("put", [1]),
                               ("amid", [2]), ("two", [0, 3]), ("moving", [1, 3]),
                               ("callback", [1, 3]), ("late", [1, 3]), ("sampling", [2, 3]),
                               ("nobody", [1, 2]), ("machines", [1]), ("uneven", [1])):
                if name in (sys.argv[2:] or [name]):
                    check(sys.argv[1], started, name, gone)
            if "last_part" in (sys.argv[2:] or ["last_part"]):
                check(sys.argv[1], started, "last_part", [0, 2, 3])
    elif sys.argv[2] in OTHERS:
        OTHERS[sys.argv[2]]()
    else:
        training(sys.argv[2])
