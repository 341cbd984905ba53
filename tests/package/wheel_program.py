"""One of the ranks that tests/package/wheel_test.py starts with an installed wheel.

wheel_program.py train RANKS   trains, and prints what this process has mapped of the machine's
wheel_program.py store         hands a store of torch to the backend, two ranks in this process
wheel_program.py join          joins the ranks that the environment names
"""

import datetime
import pathlib
import sys
import threading


def train(ranks):
    import torch

    import bluefog_cpp.torch as bf

    bf.init()
    assert bf.size() == ranks, (bf.size(), ranks)
    torch.manual_seed(1 + bf.rank())  # each rank has data, and first weights, of its own
    model = torch.nn.Linear(10, 1)
    bf.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = bf.DistributedAdaptThenCombineOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.05), model)
    losses = []
    for _ in range(50):
        x = torch.randn(32, 10)
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    optimizer.finish()
    assert losses[-1] < losses[0] / 10, losses
    weights = [model.weight.detach().flatten(), bf.allreduce(model.weight.detach()).flatten()]
    assert torch.allclose(*weights, atol=0.05), weights
    print("trained", flush=True)
    print_libraries()
    bf.shutdown()


def print_libraries():
    """The shared objects of this process, one a line."""
    lines = pathlib.Path("/proc/self/maps").read_text().splitlines()
    files = sorted({line.split(maxsplit=5)[5] for line in lines if ".so" in line})
    print("\n".join(f"mapped {file}" for file in files), flush=True)


def hand_over_a_store():
    import torch
    import torch.distributed as dist

    from bluefog_cpp import _c10d

    backends, store = [None, None], dist.HashStore()

    def join(rank):
        backends[rank] = _c10d.create(dist.PrefixStore("group", store), rank, 2,
                                      datetime.timedelta(seconds=20), "g", [0, 1])

    threads = [threading.Thread(target=join, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tensors = [torch.full((3,), float(rank)) for rank in range(2)]
    works = [backend.allreduce([tensor]) for backend, tensor in zip(backends, tensors)]
    for backend, work, tensor in zip(backends, works, tensors):
        assert isinstance(backend, torch._C._distributed_c10d.Backend)
        work.wait()
        assert tensor.tolist() == [1, 1, 1], tensor
    for backend in backends:
        backend.shutdown()
    print("a backend came out")


def join():
    import bluefog_cpp.torch as bf

    bf.init()
    print("joined", bf.size())


if __name__ == "__main__":
    if sys.argv[1] == "train":
        train(int(sys.argv[2]))
    else:
        {"store": hand_over_a_store, "join": join}[sys.argv[1]]()
