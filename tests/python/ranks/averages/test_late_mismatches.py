"""A message that its receiver does not accept is heard of by its sender in a later call, which has
done its own work all the same."""

import re

import pytest
import torch

import bluefog_cpp
import bluefog_cpp.torch as bf
from bluefog_cpp import topology_util
from conftest import needs

pytestmark = pytest.mark.up_to_ranks(2)  # C++ refuses on more


def test_a_mismatch_that_is_heard_of_in_a_later_call(rank):
    """A message that nobody expects is met by the receiver's next call; its sender's call is
    over."""
    needs(2)
    x = torch.ones(2)

    def send():
        bf.neighbor_allreduce(x, self_weight=1.0, src_weights={},
                              dst_weights=[1] if rank == 0 else [],
                              enable_topo_check=False, name="lost")

    send()
    said = None
    for _ in range(20):
        before = None
        try:
            before = x
            bf.allreduce(x, name="later")
            before = None
            bf.barrier()
        except bluefog_cpp.MismatchError as error:
            said = error
            break
        except bluefog_cpp.PeerFailure:
            break
    if rank < 2:
        assert type(said) is bluefog_cpp.LateMismatchError
        assert re.search(
            rf"rank {rank}, call \d+, (allreduce|barrier).*heard of an earlier call only now: "
            r".*call 1.*lost", str(said)), said
        assert said.result is None if before is None else said.result.equal(before)


def of_several(x):
    """All results of a call of three pieces, in one tensor; the ranks' values differ."""
    tensors = [x * k + (bf.rank() if k > 1 else 0) for k in (1, 2, 3)]
    tensors = [torch.cat((tensor, tensor[:1].expand(140_000))) for tensor in tensors]
    mean = sum(range(bf.size())) / bf.size()
    try:
        results = bf.neighbor_allreduce_multi_(tensors)
    except bluefog_cpp.LateMismatchError as error:
        results = error.result
        error.result = torch.cat([results[0], results[1] - mean - 1, results[2] - mean - 2])
        raise
    return torch.cat([results[0], results[1] - mean - 1, results[2] - mean - 2])


@pytest.mark.parametrize("later", (
    lambda x: bf.neighbor_allreduce(x), lambda x: bf.neighbor_allreduce_(x),
    lambda x: bf.neighbor_allreduce_.prepare(x)(), of_several, lambda x: bf.allgather(x)[:2],
    lambda x: bf.wait(bf.allreduce_nonblocking(x)), lambda x: bf.neighbor_allgather(x)))
def test_the_result_of_a_call_that_hears_of_an_earlier_one(later, rank, size):
    """Rank 0 sends what rank 1 expects in no call; rank 1 tells it so when its own next call
    comes."""
    needs(2)
    bf.set_topology(topology_util.FullyConnectedGraph(size))
    x = torch.ones(2)
    bf.neighbor_allreduce(x, self_weight=1.0, src_weights={}, dst_weights=[1] if rank == 0 else [],
                          enable_topo_check=False, name="lost")
    results = []
    for _ in range(20):
        try:
            results.append(later(x.clone()))
        except bluefog_cpp.LateMismatchError as error:
            results.append(error.result)
            break
        except bluefog_cpp.Error:
            break
    assert all(result.numel() >= 2 and result.eq(1).all() for result in results)
    assert results or rank > 1
