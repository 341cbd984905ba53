"""The backend without a launcher: its registration, its creation from torch's own objects, and
ranks whose process ends."""

import pathlib
import signal
import subprocess
import sys
import threading
from datetime import timedelta

import torch
import torch.distributed as dist

import bluefog_cpp.torch  # noqa: F401  registers the backend
from bluefog_cpp import _c10d, _c10d_backend

PROGRAM = str(pathlib.Path(__file__).resolve().parents[2] / "programs/dying_rank_of_a_group.py")


def test_torchs_store_goes_in_and_a_backend_comes_out():
    backends = [None, None]
    store = dist.HashStore()

    def join(rank):
        backends[rank] = _c10d.create(dist.PrefixStore("group", store), rank, 2,
                                      timedelta(seconds=20), "g", [0, 1])
    threads = [threading.Thread(target=join, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tensors = [torch.full((3,), float(rank)) for rank in range(2)]
    works = [backend.allreduce([tensor]) for backend, tensor in zip(backends, tensors)]
    for backend, work, tensor in zip(backends, works, tensors):
        assert isinstance(backend, torch._C._distributed_c10d.Backend)
        assert backend.name() == "bluefog" and (backend.size() == 2)
        work.wait()
        assert tensor.tolist() == [1, 1, 1]
    for backend in backends:
        backend.shutdown()


def test_registration_is_lazy_and_may_be_repeated():
    _c10d_backend.register()
    assert dist.Backend.BLUEFOG == "bluefog"
    loaded = subprocess.run(
        [sys.executable, "-c",
         ("import sys, bluefog_cpp._c10d_backend as b, torch.distributed as d; b.register(); "
          "print(d.Backend.BLUEFOG, 'bluefog_cpp._c10d' in sys.modules)")],
        capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == ["bluefog", "False"]


def test_one_rank_alone(tmp_path):
    dist.init_process_group("bluefog", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        x = torch.ones(3)
        dist.all_reduce(x)
        dist.broadcast(x, 0)
        gathered = [torch.empty(3)]
        dist.all_gather(gathered, x)
        dist.barrier()
        assert gathered[0].tolist() == [1, 1, 1]
    finally:
        dist.destroy_process_group()


def test_a_rank_that_is_killed(tmp_path):
    """The others get an error that names it, in a call that waits and in a future, and end."""
    ranks = [subprocess.Popen([sys.executable, PROGRAM, str(tmp_path / "store"), str(rank)],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
             for rank in range(3)]
    outputs = [rank.communicate(timeout=100)[0] for rank in ranks]
    assert ranks[2].returncode == -signal.SIGKILL
    for rank, output in zip(ranks[:2], outputs):
        assert rank.returncode == 0, output
        assert "work: rank" in output and "future: " in output, output
        assert output.count("rank 2") >= 2, output
