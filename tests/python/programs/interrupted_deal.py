"""A rank is killed in the very meeting that takes a process in, when some ranks have dealt the
samples anew and others have not, or before all have: `interrupted_deal.py BFRUN [CASE …]`."""

import copy
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "support" / "python"))
import preloaded

FIRST_VICTIM, SECOND_VICTIM = 2, 1
DIES_IN = 12
SAMPLES = 803
CASES = ("dealt", "early")


def interrupt(bf, sampler, rank: int) -> None:
    """Rank 1 ends when it has dealt anew; rank 0 is as if it had heard of that before it had."""
    from bluefog_cpp.errors import RankLostError
    from bluefog_cpp.torch._runtime import current

    deal_anew = sampler.deal_anew

    def dies(is_new) -> None:
        deal_anew(is_new)
        if any(is_new):
            time.sleep(0.2)  # the others' calls have ended
            os.kill(os.getpid(), signal.SIGKILL)

    def has_not_dealt(is_new) -> None:
        before = copy.copy(sampler._deals)
        deal_anew(is_new)
        if any(is_new):
            sampler._deals = before
            context = current().context
            while not context.is_gone(SECOND_VICTIM):
                time.sleep(0.001)
            print("interrupted", flush=True)
            raise RankLostError(f"rank {rank}, shrink: as if rank {SECOND_VICTIM} had ended before")

    sampler.deal_anew = {0: has_not_dealt, SECOND_VICTIM: dies}.get(rank, deal_anew)


def end_early(bf, optimizer) -> None:
    move = optimizer._distributed.move_to

    def dies_in_the_meeting(*arguments):
        if bf.membership().joined:
            os.kill(os.getpid(), signal.SIGKILL)
        return move(*arguments)

    optimizer._distributed.move_to = dies_in_the_meeting


def training(case: str) -> None:
    import torch

    import bluefog_cpp.torch as bf

    joins, number = os.environ.get("BLUEFOG_JOIN") == "1", int(os.environ["RANK"])
    if joins:
        bf.init()
    else:
        bf.init(bf.RingGraph)
    model = torch.nn.Linear(20, 1)
    optimizer = bf.DistributedAdaptThenCombineOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model)
    data = [(torch.full((20,), float(i)), i) for i in range(SAMPLES)]
    # Without epochs: each pass is one more than the last. It is dealt before the other one.
    checked = bf.ElasticSampler(range(90), shuffle=False)
    sampler = bf.ElasticSampler(data, seed=3)
    loader = torch.utils.data.DataLoader(data, batch_size=5, sampler=sampler)
    if case == "dealt" and not joins:
        interrupt(bf, sampler, number)
    elif number == SECOND_VICTIM and not joins:
        end_early(bf, optimizer)
    bf.enter()
    step, epoch, last = 0, sampler.epoch, 1000
    while epoch <= last:
        sampler.set_epoch(epoch)
        seen = torch.zeros(SAMPLES)
        for inputs, numbers in loader:
            if step == DIES_IN and number == FIRST_VICTIM and not joins:
                os.kill(os.getpid(), signal.SIGKILL)
            # Where the newcomer comes behind the others' last draws, samples are missed.
            awaits_newcomer = step > DIES_IN and not joins and not bf.membership().joined
            time.sleep(0.1 if awaits_newcomer else 0.002)
            seen[numbers] += 1
            optimizer.zero_grad()
            model(inputs / SAMPLES).square().mean().backward()
            optimizer.step()
            step += 1
        steps = bf.survive(lambda: bf.allgather(torch.tensor(
            [float(optimizer._distributed.core.step_count)])))
        assert (steps == steps[0]).all(), (epoch, steps)
        everybody = bf.survive(lambda own=seen: bf.allreduce(own, average=False))
        assert (everybody > 0).all(), (epoch, (everybody == 0).sum())
        assert everybody.sum() < SAMPLES + 30, (epoch, everybody.sum())
        own_pass = torch.tensor([len(list(checked))])
        passes = bf.survive(lambda own=own_pass: bf.allgather(own))
        assert (passes == passes[0]).all() and passes[0] > 0, (epoch, passes)
        if bf.membership().joined:
            last = min(last, epoch + 2)
        epoch += 1
    members = bf.membership()
    print(f"rank {number}: ranks {members.ranks}, lost {[each.rank for each in members.lost]}",
          flush=True)


def check(bfrun: str, server: preloaded.Server, case: str) -> None:
    job = subprocess.run([bfrun, "-np", "4", "--min-np", "2", "--respawn", "1",
                          *server.command(__file__, "--rank", case)],
                         capture_output=True, text=True, timeout=120, check=False,
                         env=server.environment)
    ends = re.findall(r"ranks \[[\d, ]+\], lost \[[\d, ]+\]", job.stdout)
    expected = 3 * ["ranks [0, 3, 4], lost [2, 1]"]
    was_interrupted = "interrupted" in job.stdout or case != "dealt"
    if job.returncode != 0 or ends != expected or not was_interrupted:
        sys.exit(f"{case}: expected {expected} after an interrupted meeting, found {ends}, exit "
                 f"code {job.returncode}\n{job.stdout}\n{job.stderr}")
    print(f"{case}: passed", flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "--rank":
        training(sys.argv[2])
    else:
        with preloaded.Server() as started:
            for name in sys.argv[2:] or CASES:
                check(sys.argv[1], started, name)
