"""CUDA devices, as far as a machine without one tells."""

import pytest
import torch

import bluefog_cpp
import bluefog_cpp.torch as bf
from bluefog_cpp.torch import _devices

without_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")


@without_gpu
def test_use_device_says_what_is_missing(rank):
    with pytest.raises(bluefog_cpp.UnsupportedError,
                       match=rf"^rank {rank}, use_device: expected a (torch|GPU)"):
        bf.use_device()
    assert not bf.nccl_built()
    assert bf.allreduce(torch.ones(2)).tolist() == [1, 1]


def test_what_is_missing_follows_torch(monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", None)
    assert "built with CUDA" in _devices.what_is_missing()
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "expected a GPU, found none" in _devices.what_is_missing()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert _devices.what_is_missing() == ""


def test_a_device_that_is_no_gpu(monkeypatch, rank):
    monkeypatch.setattr(_devices, "what_is_missing", lambda: "")
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    assert [_devices._index_of(rank, device) for device in (None, 1, "cuda:2", "cuda")] == [3, 1, 2,
                                                                                            3]
    with pytest.raises(bluefog_cpp.InvalidArgument,
                       match="device: expected a CUDA device.*found 'cpu'"):
        bf.use_device("cpu")
    bf.barrier()


class OnAGpu:
    """As much of a tensor as is looked at."""
    is_cuda = True
    device = torch.device("cuda", 1)


class SomeContext:
    def __init__(self, device=None):
        self.device = device
        self.taken = []

    def use_device(self, index):
        self.taken.append(index)


def test_the_device_of_the_first_tensor_on_one_is_taken():
    context = SomeContext()
    _devices.take_device_of(context, [torch.ones(1), OnAGpu(), OnAGpu()])
    assert context.taken == [1]
    _devices.take_device_of(context, [torch.ones(1)])
    assert context.taken == [1]
    context = SomeContext(device=0)
    _devices.take_device_of(context, [OnAGpu()])
    assert context.taken == []


def test_calls_that_no_cuda_graph_repeats_are_refused(monkeypatch, rank):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    capturing = [True]
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing[0])
    values = torch.full((3,), float(rank))
    calls = {"neighbor_allreduce": lambda: bf.neighbor_allreduce(values),
             "allreduce": lambda: bf.allreduce_(values),
             "broadcast": lambda: bf.broadcast_nonblocking_(values, 0),
             "allgather": lambda: bf.allgather(values)}
    for call, make in calls.items():
        with pytest.raises(bluefog_cpp.UnsupportedError,
                           match=rf"^rank {rank}, {call}: torch captures a CUDA graph.*found one "
                                 r"on the CPU$"):
            make()
    bf.barrier()
    capturing[0] = False
    assert values.tolist() == [rank] * 3
    bf.broadcast_(values, 0)
    assert values.tolist() == [0] * 3


def test_errors_carry_the_librarys_code():
    for error in (bluefog_cpp.CudaError, bluefog_cpp.NcclError):
        assert issubclass(error, bluefog_cpp.TransportError) and error("text", 700).code == 700
