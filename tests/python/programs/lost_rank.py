"""Ranks that train on when one of them is killed: `lost_rank.py BFRUN`."""

import os
import re
import signal
import subprocess
import sys
import time

KILL_STEP = 12
STEPS = 40


def training(case: str) -> None:
    """One rank of a job."""
    import torch

    import bluefog_cpp.torch as bf

    bf.init()
    launch_rank, size = bf.rank(), bf.size()
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.Tanh(), torch.nn.Linear(64, 3))
    bf.broadcast_parameters(model.state_dict(), 0)
    kinds = {
        "atc": lambda o: bf.DistributedAdaptThenCombineOptimizer(o, model),
        "awc": lambda o: bf.DistributedAdaptWithCombineOptimizer(o, model),
        "in_backward": lambda o: bf.DecentralizedOptimizer(
            o, model, "adapt_then_combine", schedule="one-peer-exponential", step_in_backward=True),
        "gradients": lambda o: bf.DistributedGradientAllreduceOptimizer(o, model),
        "tracking": lambda o: bf.DecentralizedOptimizer(o, model, "gradient_tracking"),
        "rank_zero": lambda o: bf.DistributedAdaptThenCombineOptimizer(o, model),
        "two": lambda o: bf.DistributedAdaptThenCombineOptimizer(o, model),
        "metrics": lambda o: bf.DistributedAdaptThenCombineOptimizer(o, model),
        "sampler": lambda o: bf.DistributedAdaptThenCombineOptimizer(o, model),
        "amid": lambda o: bf.DistributedGradientAllreduceOptimizer(o, model),
    }
    if case == "tracking":
        bf.set_topology(bf.RingGraph(size), is_weighted=True)
    optimizer = kinds[case](torch.optim.Adam(model.parameters(), lr=0.01) if case == "gradients"
                            else torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5))
    victims = {"rank_zero": {0: KILL_STEP}, "two": {3: KILL_STEP, 0: KILL_STEP + 9}}
    dies_in = victims.get(case, {2: KILL_STEP}).get(launch_rank)

    def end_here() -> None:
        if os.fork() == 0:  # a data-loader worker, say, that outlives its parent
            time.sleep(3)
            os._exit(0)
        print(f"killed at {time.monotonic():.6f}", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

    shrunk = []
    bf.on_shrink(lambda: shrunk.append(bf.membership()))
    generator = torch.Generator().manual_seed(launch_rank)
    truth = torch.randn(20, 3, generator=torch.Generator().manual_seed(7))
    if case == "sampler":
        return sample(bf, torch, model, optimizer, end_here if launch_rank == 2 else lambda: None)
    first_loss = loss = None
    longest, ended = 0.0, 0.0
    for step in range(STEPS):
        data = torch.randn(32, 20, generator=generator)
        before = time.monotonic()
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(data), data @ truth)
        if step == dies_in and case == "amid":
            # In the middle of the calls of one step.
            next(model.parameters()).register_hook(lambda _: end_here())
        elif step == dies_in:
            end_here()
        loss.backward()
        optimizer.step()
        now = time.monotonic()
        if shrunk and not ended:
            ended = now
        longest = max(longest, now - before)
        first_loss = loss.item() if first_loss is None else first_loss
        if case == "metrics" and step % 3 == 0:
            mean = bf.survive(lambda: bf.allreduce(torch.tensor([1.0, float(bf.size())])))
            assert mean[0] == 1.0 and mean[1] == bf.size(), mean
    optimizer.finish()
    flat = torch.cat([each.detach().reshape(-1) for each in model.parameters()])
    spread = (bf.allreduce(flat) - flat).abs().max().item()
    assert loss.item() < 0.7 * first_loss, (loss, first_loss)
    assert bf.size() == len(bf.membership().ranks) and bf.membership().ranks[bf.rank()] == \
        launch_rank, bf.membership()
    assert len(shrunk) == bf.membership().epoch, shrunk
    lost = sorted(each.rank for each in bf.membership().lost)
    print(f"rank {launch_rank}: size {bf.size()}, lost {lost}, spread {spread:.3g}, "
          f"next step at {ended:.6f}, longest {longest * 1000:.1f} ms", flush=True)


def sample(bf, torch, model, optimizer, end_here) -> None:
    """All samples of each epoch, and as many of them on each rank, whoever is lost."""
    data = [(torch.full((20,), float(i)), i) for i in range(203)]
    sampler = bf.ElasticSampler(data, seed=3)
    loader = torch.utils.data.DataLoader(data, batch_size=5, sampler=sampler, num_workers=2)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        seen = torch.zeros(len(data))
        batches = 0
        for inputs, numbers in loader:
            if epoch == 1 and batches == 4:
                end_here()
            seen[numbers] += 1
            batches += 1
            optimizer.zero_grad()
            model(inputs / 203).square().mean().backward()
            optimizer.step()
        counts = bf.survive(lambda own=float(batches): bf.allgather(torch.tensor([own])))
        assert (counts == batches).all(), counts
        everybody = bf.survive(lambda own=seen: bf.allreduce(own, average=False))
        assert everybody.min() >= 1, (epoch, everybody)
        assert everybody.sum() <= 203 + 5 * bf.size() + 5, everybody.sum()
    print(f"rank {bf.membership().ranks[bf.rank()]}: size {bf.size()}, lost [2], spread 0, "
          f"next step at {time.monotonic():.6f}, longest 0 ms", flush=True)


def check(bfrun: str, case: str, lost: list[int], most_spread: float) -> None:
    """Runs a job, and looks at what its survivors say."""
    words = [bfrun, "-np", "4", "--min-np", "2", sys.executable, __file__, "--rank", case]
    job = subprocess.run(words, capture_output=True, text=True, timeout=120)
    said = re.findall(r"rank (\d): size (\d), lost (\[.*?\]), spread (\S+), "
                      r"next step at (\S+), longest (\S+) ms", job.stdout)
    expected = [rank for rank in range(4) if rank not in lost]
    problem = None
    if job.returncode != 0:
        problem = f"exit code {job.returncode}"
    elif sorted(int(rank) for rank, *_ in said) != expected:
        problem = f"expected ranks {expected} at the end"
    elif any(int(size) != len(expected) or eval(gone) != sorted(lost)
             for _, size, gone, *_ in said):
        problem = "expected the same group on all ranks"
    elif any(float(spread) > most_spread for _, _, _, spread, *_ in said):
        problem = f"expected models that differ by at most {most_spread}"
    if problem:
        sys.exit(f"{case}: {problem}\n{job.stdout}\n{job.stderr}")
    killed = [float(at) for at in re.findall(r"killed at (\S+)", job.stdout)]
    after = max(float(each[4]) for each in said) - min(killed)
    print(f"{case}: passed; the next step of all had ended {after * 1000:.0f} ms after the kill")


if __name__ == "__main__":
    if sys.argv[1] == "--rank":
        training(sys.argv[2])
    else:
        check(sys.argv[1], "atc", [2], 0.5)
        check(sys.argv[1], "awc", [2], 0.5)
        check(sys.argv[1], "in_backward", [2], 0.5)
        check(sys.argv[1], "gradients", [2], 0.0)
        check(sys.argv[1], "amid", [2], 0.0)
        check(sys.argv[1], "tracking", [2], 0.5)
        check(sys.argv[1], "rank_zero", [0], 0.5)
        check(sys.argv[1], "two", [0, 3], 0.5)
        check(sys.argv[1], "metrics", [2], 0.5)
        check(sys.argv[1], "sampler", [2], 0.5)
