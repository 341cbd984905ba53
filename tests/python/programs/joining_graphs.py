"""Graphs of ranks that join and have set none, as the others have: `joining_graphs.py BFRUN`."""

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


def training() -> None:
    os.environ["BLUEFOG_NODES_PER_MACHINE"] = "1"
    import torch

    import bluefog_cpp.torch as bf

    joins, number = os.environ.get("BLUEFOG_JOIN") == "1", int(os.environ["RANK"])
    if joins:
        bf.init()
    else:
        bf.init(lambda size: bf.RingGraph(size, connect_style=1), is_weighted=True)
        bf.set_machine_topology(bf.RingGraph(bf.machine_size(), connect_style=2), is_weighted=True)
    optimizers = []
    for way in ("neighbor_allreduce", "hierarchical_neighbor_allreduce"):
        model = torch.nn.Linear(4, 1)
        optimizers.append((model, bf.DistributedAdaptThenCombineOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1), model,
            communication_type=bf.CommunicationType[way])))
    bf.enter()
    steps, last = 0, STEPS_TOGETHER if joins else None
    while last is None or steps < last:
        if steps == DIES_IN and number == VICTIM and not joins:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.01)
        had_joined = bool(bf.membership().joined)
        for model, optimizer in optimizers:
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
        steps += 1
        if not joins and bf.membership().joined and not had_joined:
            last = steps + STEPS_TOGETHER
    own = torch.zeros(3, 3, dtype=torch.float64)
    for source, reader, weight in bf.load_topology().edges.data("weight"):
        own[source, reader] = weight
    everybody = bf.allgather(own[None])
    assert all(torch.equal(each, own) for each in everybody), everybody
    assert (own > 0).sum() == 6 and (own > 0).sum(0).tolist() == [2, 2, 2], own  # a ring
    machines = bf.load_machine_topology()
    assert machines is not None and machines.number_of_nodes() == 3
    averaged = bf.hierarchical_neighbor_allreduce(torch.tensor([2.0 ** bf.rank()]))
    assert 1 <= averaged.item() <= 4
    print(f"trained with {bf.size()}", flush=True)


def check(bfrun: str) -> None:
    with preloaded.Server() as server:
        job = subprocess.run([bfrun, "-np", "3", "--min-np", "2", "--respawn", "1",
                              *server.command(__file__, "--rank")],
                             capture_output=True, text=True, timeout=120, check=False,
                             env={**server.environment, "BLUEFOG_TIMEOUT": "30"})
    if job.returncode != 0 or job.stdout.count("trained with 3") != 3:
        sys.exit(f"expected code 0, and three ranks at the end, found code {job.returncode}\n"
                 f"{job.stdout}\n{job.stderr}")


if __name__ == "__main__":
    if sys.argv[1] == "--rank":
        training()
    else:
        check(sys.argv[1])
