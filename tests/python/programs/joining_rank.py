"""Ranks that train on when one of them is killed, and take in the process that is started in its
place: `joining_rank.py BFRUN [CASE …]`."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "support" / "python"))
import preloaded

DIES_IN = 12
STEPS_TOGETHER = 20
"""Steps that the ranks make after a process has joined."""
VICTIM = 2
OTHERS = {
    "other": "0.weight, of [64, 20], found optimizer 0: parameter 0 of group 0, 0.weight, of "
             "[5, 20] on rank 3",
    "order": "0.weight, of [64, 20], found optimizer 0: parameter 0 of group 0, 2.bias, of [3] on "
             "rank 3",
    "sampler": "shuffled by seed 1, found sampler 0: an ElasticSampler of 50 samples, shuffled by "
               "seed 2 on rank 3"}
"""The words of a process that has made something else than the others, by case."""


def end_here() -> None:
    print(f"killed at {time.monotonic():.6f}", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def register_own(bf) -> None:
    """An algorithm of a program's own over a schedule of its own, which begin anew together."""

    @bf.register_schedule
    class Everybody(bf.Schedule):
        name = "own-full"

        def graph(self, step):
            return bf.FullyConnectedGraph(self.size)

    @bf.register_algorithm
    class Own(bf.Algorithm):
        name = "own"
        scalars = {"rounds": 0.0}

        def step(self, round, buckets):
            assert self.size == bf.size() == len(round.src_weights) + 1
            self.scalars["rounds"] += 1
            for bucket in buckets:
                self.local_step(bucket)
                self.average(bucket)


class Run:
    """A model, with a buffer of its own, and its optimizer."""

    def __init__(self, bf, torch, name: str, width: int = 64, is_reversed: bool = False):
        self.bf, self.torch = bf, torch
        self.model = torch.nn.Sequential(torch.nn.Linear(20, width), torch.nn.BatchNorm1d(width),
                                         torch.nn.Linear(width, 3))
        parameters = list(self.model.parameters())[::-1 if is_reversed else 1]
        plain = torch.optim.SGD(parameters, lr=0.1, momentum=0.5)
        self.optimizer = self.wrap(plain, name)
        self.truth = torch.randn(20, 3, generator=torch.Generator().manual_seed(7))
        self.losses: list[float] = []

    def wrap(self, plain, name: str):
        bf, model = self.bf, self.model
        if name == "gradients":
            return bf.DistributedGradientAllreduceOptimizer(plain, model)
        if name == "awc":
            return bf.DistributedAdaptWithCombineOptimizer(plain, model)
        if name == "put":
            return bf.DistributedWinPutOptimizer(plain, model)
        if name == "in_backward":
            return bf.DecentralizedOptimizer(plain, model, "adapt_then_combine",
                                             schedule="one-peer-exponential",
                                             step_in_backward=True)
        if name == "own":
            register_own(bf)
            return bf.DecentralizedOptimizer(plain, model, "own", schedule="own-full")
        if name in ("gradient_tracking", "local_sgd"):
            return bf.DecentralizedOptimizer(plain, model, name)
        return bf.DistributedAdaptThenCombineOptimizer(plain, model)

    def step(self, data) -> None:
        self.optimizer.zero_grad()
        loss = self.torch.nn.functional.mse_loss(self.model(data), data @ self.truth)
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.item())

    @property
    def steps(self) -> int:
        return self.optimizer._distributed.core.step_count


def flat(torch, tensors):
    return torch.cat([each.detach().reshape(-1).double() for each in tensors])


def check_entry(bf, torch, runs: list[Run]) -> None:
    """Looks at all ranks in their first moment together."""
    for run in runs:
        values = flat(torch, run.model.parameters())
        assert torch.equal(bf.broadcast(values, 0), values), "models differ"
        assert values.abs().max() > 0
        steps = bf.allgather(torch.tensor([float(run.steps)]))
        assert (steps == steps[0]).all(), steps
        if "rounds" in (carried := dict(run.optimizer._distributed.core.carried())):
            assert carried["rounds"] == 0.0, carried
        # The new rank has the buffers and the momentum of one of the others.
        states = run.optimizer.state_dict()["state"]
        own = torch.cat([flat(torch, [*run.model.buffers()]),
                         flat(torch, [each["momentum_buffer"] for each in states.values()])])
        everybody = bf.allgather(own.unsqueeze(0))
        assert any(torch.equal(everybody[-1], each) for each in everybody[:-1]), "a state of nobody"


def training(case: str) -> None:
    """One rank of a job."""
    import torch

    import bluefog_cpp.torch as bf
    from bluefog_cpp import topology_util

    joins = os.environ.get("BLUEFOG_JOIN") == "1"
    bf.init()
    if joins:
        assert (bf.rank(), bf.size()) == (0, 1)
    torch.manual_seed(3 if joins else 1)
    names = {"many": ("atc", "awc", "gradients", "in_backward", "gradient_tracking", "local_sgd",
                      "own"),
             "put": ("put",)}.get(case, ("atc",))
    runs = [Run(bf, torch, name, 5 if joins and case == "other" else 64,
                joins and case == "order") for name in names]
    if case == "sampler":
        sampler = bf.ElasticSampler(range(50), seed=2 if joins else 1)
        assert len(sampler) > 0
    dies_in = DIES_IN if int(os.environ["RANK"]) == VICTIM and not joins else None
    met = []
    bf.on_shrink(lambda: met.append(bf.membership().epoch))
    if joins and case == "dies":
        runs[0].optimizer._distributed.move_to = lambda *_: end_here()
    ring = bf.RingGraph(4, connect_style=2)
    if case in OTHERS and not joins:
        bf.set_topology(ring, is_weighted=True)
    entered = time.monotonic()
    members = bf.enter()
    if not joins:
        assert members == bf.membership() and bf.size() == 4
    last = None
    generator = torch.Generator().manual_seed(int(os.environ["RANK"]))
    longest = 0.0
    step = 0
    while last is None or step < last:
        data = torch.randn(32, 20, generator=generator)
        if step == dies_in:
            end_here()
        epoch = bf.membership().epoch
        if last is None and (bf.membership().joined if case not in OTHERS else epoch > 2):
            if case not in ("put", *OTHERS, "dies"):  # other numbers of steps, or nobody has joined
                check_entry(bf, torch, runs)
            last = (step if case == "put" else runs[0].steps) + STEPS_TOGETHER
            step = last - STEPS_TOGETHER
        time.sleep(0.01)
        before = time.monotonic()
        for run in runs:
            run.step(data)
        longest = max(longest, time.monotonic() - before)
        step += 1
    for run in runs:
        run.optimizer.finish()
        assert joins or min(run.losses[-5:]) < run.losses[0], run.losses
    if case in OTHERS:  # who could not join has changed nothing
        left = topology_util.to_mixing_matrix(ring).without([VICTIM]).among([0, 1, 3])
        assert set(bf.load_topology().edges) == {(i, j) for i, j, _ in left.edges}
    members = bf.membership()
    assert met == sorted(set(met)) and met[-1] == members.epoch, (met, members)
    print(f"rank {members.ranks[bf.rank()]}: size {bf.size()}, ranks {members.ranks}, lost "
          f"{[each.rank for each in members.lost]}, joined "
          f"{[each.rank for each in members.joined]}, longest {longest * 1000:.0f} ms, waited "
          f"{time.monotonic() - entered:.2f} s", flush=True)


def meeting() -> None:
    """A rank is killed in the very meeting that takes a process in: that one counts for nothing in
    the mean all the same, and has the others' steps."""
    import torch

    import bluefog_cpp.torch as bf

    joins = os.environ.get("BLUEFOG_JOIN") == "1"
    bf.init()
    assert bf.waits_to_join() == joins
    model = torch.nn.Linear(4, 1, dtype=torch.bfloat16)
    torch.nn.init.constant_(model.weight, 1000.0 if joins else 10.1)
    optimizer = bf.DistributedAdaptThenCombineOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.0), model)
    move = optimizer._distributed.move_to

    def dies_in_the_meeting(*arguments):
        if bf.membership().joined:
            end_here()
        return move(*arguments)

    if os.environ["RANK"] == "1" and not joins:
        optimizer._distributed.move_to = dies_in_the_meeting
    if joins:
        try:
            optimizer.step()
            raise AssertionError("expected a StateError of a step before enter()")
        except bluefog_error("StateError"):
            pass
    bf.enter()
    steps = optimizer._distributed.core.step_count
    last = steps + STEPS_TOGETHER if joins else None
    while last is None or steps < last:
        if steps == DIES_IN and os.environ["RANK"] == str(VICTIM) and not joins:
            end_here()
        model(torch.ones(2, 4, dtype=torch.bfloat16)).sum().backward()
        optimizer.step()
        steps = optimizer._distributed.core.step_count
        if last is None and bf.membership().joined:
            last = steps + STEPS_TOGETHER
        time.sleep(0.01)
    assert (model.weight == torch.tensor(10.1).bfloat16()).all(), model.weight
    counts = bf.allgather(torch.tensor([float(steps)]))
    assert (counts == counts[0]).all(), counts
    say_members(bf)
    bf.shutdown()
    try:
        bf.init()
        raise AssertionError("expected a StateError of ranks that have changed")
    except bluefog_error("StateError"):
        pass


def bluefog_error(name: str) -> type[Exception]:
    import bluefog_cpp

    return getattr(bluefog_cpp, name)


def say_members(bf) -> None:
    members = bf.membership()
    print(f"rank {members.ranks[bf.rank()]}: size {bf.size()}, ranks {members.ranks}, lost "
          f"{[each.rank for each in members.lost]}, joined "
          f"{[each.rank for each in members.joined]}, longest 0 ms, waited 0 s", flush=True)


def sampling(steps_a_batch: int) -> None:
    """A process that joins in the middle of an epoch takes its share of what is left, and all draw
    as many batches, although loaders ask for some ahead. One optimizer may step several times for
    each batch, and a batch may have none."""
    import torch

    import bluefog_cpp.torch as bf

    joins = os.environ.get("BLUEFOG_JOIN") == "1"
    bf.init()
    model = torch.nn.Linear(20, 1)
    optimizer = bf.DistributedAdaptThenCombineOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model)
    data = [(torch.full((20,), float(i)), i) for i in range(4003)]
    other = torch.nn.Linear(20, 1)
    often = bf.DistributedAdaptThenCombineOptimizer(
        torch.optim.SGD(other.parameters(), lr=0.1), other) if steps_a_batch > 1 else None
    sampler = bf.ElasticSampler(data, seed=3)
    loader = torch.utils.data.DataLoader(data, batch_size=5, sampler=sampler, num_workers=1)
    bf.enter()
    step = 0
    epoch = sampler.epoch
    while epoch < 60:
        sampler.set_epoch(epoch)
        had_joined = bool(bf.membership().joined) and not (joins and step == 0)
        seen = torch.zeros(len(data))
        for inputs, numbers in loader:
            if step == DIES_IN and int(os.environ["RANK"]) == VICTIM and not joins:
                end_here()
            seen[numbers] += 1
            if epoch == 0 and not joins and seen.sum() == 25:
                continue
            for _ in range(steps_a_batch if often else 0):
                other(inputs / 4003).square().mean().backward()
                often.step()
            optimizer.zero_grad()
            model(inputs / 4003).square().mean().backward()
            optimizer.step()
            step += 1
        steps = bf.survive(lambda: bf.allgather(torch.tensor(
            [float(optimizer._distributed.core.step_count)])))
        assert (steps == steps[0]).all(), steps
        everybody = bf.survive(lambda own=seen: bf.allreduce(own, average=False))
        # Samples that the lost rank had drawn count for nobody here.
        assert (everybody > 0).all() or epoch == 0, (epoch, (everybody == 0).sum())
        if had_joined:
            break
        epoch += 1
    say_members(bf)


def leaving() -> None:
    """A rank leaves as others would have it: no step is lost, and its share of the mean stays."""
    import torch

    import bluefog_cpp.torch as bf

    bf.init()
    own = bf.rank()
    torch.manual_seed(own)
    runs = [Run(bf, torch, name) for name in ("awc", "atc")]
    generator = torch.Generator().manual_seed(own)
    size = bf.size()
    sums = []
    signal.signal(signal.SIGTERM, lambda *_: bf.leave())
    for step in range(60):
        if own == VICTIM and step == DIES_IN:
            os.kill(os.getpid(), signal.SIGTERM)
        for run in runs:
            run.step(torch.randn(32, 20, generator=generator))
        if bf.has_left() or bf.size() < size:
            size = 0 if bf.has_left() else bf.size()
            sums = [flat(torch, run.model.parameters()).sum().item() for run in runs]
        if bf.has_left():
            os.kill(os.getpid(), signal.SIGTERM)  # once more
            break
    if not bf.has_left():
        assert runs[0].steps == runs[1].steps == 60, [run.steps for run in runs]
        assert bf.membership().ranks == [0, 1, 3] and bf.rank() < bf.size() == 3
    print(f"sums {sums}", flush=True)


def check_leaving(bfrun: str, server: preloaded.Server) -> None:
    job = subprocess.run(
        [bfrun, "-np", "4", "--min-np", "2", *server.command(__file__, "--rank", "leaving")],
        capture_output=True, text=True, timeout=120, check=False, env=server.environment)
    sums = [eval(each) for each in re.findall(r"sums (\[.*?\])", job.stdout)]
    are_equal = len(sums) == 4 and all(
        len(each) == 2 and all(abs(a - b) < 1e-4 for a, b in zip(each, sums[0])) for each in sums)
    if job.returncode != 0 or not are_equal or "Error" in job.stderr:
        sys.exit(f"leaving: expected four equal sums, found {sums}, exit code {job.returncode}\n"
                 f"{job.stdout}\n{job.stderr}")
    print("leaving: passed", flush=True)


def check(bfrun: str, server: preloaded.Server, case: str) -> None:
    """Runs a job, and looks at what its ranks say."""
    job = subprocess.run([bfrun, "-np", "4", "--min-np", "2", "--respawn", "1",
                          *server.command(__file__, "--rank", case)],
                         capture_output=True, text=True, timeout=120, check=False,
                         env=server.environment)
    said = re.findall(r"rank (\d): size (\d), ranks (\[.*?\]), lost (\[.*?\]), joined (\[.*?\]), "
                      r"longest (\d+) ms, waited (\S+) s", job.stdout)
    ranks, lost, joined = {**dict.fromkeys((*OTHERS, "dies"), ("[0, 1, 3]", "[2, 4]", "[4]")),
                           "meeting": ("[0, 3, 4]", "[2, 1]", "[4]")}.get(
        case, ("[0, 1, 3, 4]", "[2]", "[4]"))
    problem = None
    if job.returncode != 0:
        problem = f"exit code {job.returncode}"
    elif sorted(int(each[0]) for each in said) != eval(ranks):
        problem = f"expected ranks {ranks} at the end"
    elif any(each[2:5] != (ranks, lost, joined) for each in said):
        problem = f"expected ranks {ranks}, lost {lost}, joined {joined} on all ranks"
    elif OTHERS.get(case, "") not in job.stderr:
        problem = f"expected an error of the process that was to join, {OTHERS[case]}"
    elif "without a call of enter" in job.stderr:
        problem = "expected no word on a missing enter(), which every process has called"
    if problem:
        sys.exit(f"{case}: {problem}\n{job.stdout}\n{job.stderr}")
    print(f"{case}: passed; the longest step took {max(int(each[5]) for each in said)} ms",
          flush=True)


if __name__ == "__main__":
    if sys.argv[1] != "--rank":
        with preloaded.Server() as started:
            for name in ("many", "put", "sampling", "sampling_often", *OTHERS, "dies",
                         "meeting"):
                if name in (sys.argv[2:] or [name]):
                    check(sys.argv[1], started, name)
            if "leaving" in (sys.argv[2:] or ["leaving"]):
                check_leaving(sys.argv[1], started)
    elif sys.argv[2].startswith("sampling"):
        sampling(3 if sys.argv[2] == "sampling_often" else 1)
    elif sys.argv[2] == "meeting":
        meeting()
    elif sys.argv[2] == "leaving":
        leaving()
    else:
        training(sys.argv[2])
