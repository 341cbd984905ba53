"""Memory behind handles: tensors are let go when their calls are done, waited for or not."""

import time
import weakref

import numpy as np
import pytest
import torch

import bluefog_cpp
import bluefog_cpp.torch as bf


class Memory:
    """Memory of a tensor that tells whether somebody still keeps it."""

    def __init__(self, count=1000):
        array = np.ones(count, np.float32)
        self._array = weakref.ref(array)
        self.tensor = torch.from_numpy(array)

    def give(self):
        """The tensor, which the caller alone keeps from now on."""
        tensor, self.tensor = self.tensor, None
        return tensor

    def is_kept(self):
        return self._array() is not None


def poll_until_done(handle, poll=bf.poll):
    deadline = time.monotonic() + 20
    while not poll(handle) and time.monotonic() < deadline:
        time.sleep(0.001)
    assert poll(handle)


def start(call, memory):
    return call(memory.give())


@pytest.mark.parametrize("call", (
    bf.allreduce_nonblocking, bf.neighbor_allreduce_nonblocking, bf.allgather_nonblocking,
    bf.neighbor_allgather_nonblocking, lambda x: bf.broadcast_nonblocking(x, 0),
    lambda x: bf.pair_gossip_nonblocking(x, bf.rank() ^ 1)))
def test_inputs_are_let_go_when_the_call_is_done(call, rank, size):
    if call.__name__ == "<lambda>" and rank ^ 1 >= size:
        return
    memory = Memory()
    handle = start(call, memory)
    poll_until_done(handle)
    assert not memory.is_kept()
    assert (bf.wait(handle) == 1).all()


@pytest.fixture
def window(size):
    bf.win_create(torch.ones(1000), "w")
    yield "w"
    bf.barrier()
    bf.win_free("w")


@pytest.mark.parametrize("self_weight", (None, 0.5))
@pytest.mark.parametrize("call", (bf.win_put_nonblocking, bf.win_accumulate_nonblocking))
def test_tensors_for_windows_are_let_go_when_the_call_is_done(call, self_weight, window):
    memory = Memory()
    handle = start(lambda x: call(x, window, self_weight=self_weight), memory)
    poll_until_done(handle, bf.win_poll)
    assert not memory.is_kept()
    assert bf.win_wait(handle)
    with pytest.raises(bluefog_cpp.InvalidArgument):
        bf.win_wait(handle)


def test_tensors_for_windows_are_let_go_though_nobody_asks(window):
    memories = [Memory() for _ in range(50)]
    handles = [start(lambda x: bf.win_put_nonblocking(x, window), memory) for memory in memories]
    poll_until_done(handles[-1], bf.win_poll)  # calls of windows run in their order
    assert not any(memory.is_kept() for memory in memories)
    assert all(bf.win_wait(handle) for handle in handles)


def test_values_that_are_scaled_in_a_copy_come_back_without_a_wait(window):
    values = torch.ones(1000, 2)[:, 0]
    handle = bf.win_put_nonblocking(values, window, self_weight=0.5)
    poll_until_done(handle, bf.win_poll)
    assert values.unique().tolist() == [0.5]
    assert bf.win_wait(handle)


def test_memory_that_a_call_of_a_window_writes_does_not_move(window, size):
    model = torch.nn.Linear(1000, 1, bias=False)
    handle = bf.win_put_nonblocking(model.weight.data.reshape(1000), window, self_weight=0.5)
    poll_until_done(handle, bf.win_poll)
    bf.DistributedNeighborAllreduceOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model)
    assert bf.win_wait(handle)
