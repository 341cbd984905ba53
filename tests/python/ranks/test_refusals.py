"""A mistake in one rank's script is heard by the others in the same call, and ends nothing
else."""

import contextlib

import pytest
import torch
from torch._subclasses import FakeTensorMode

import bluefog_cpp
import bluefog_cpp.torch as bf
from bluefog_cpp import topology_util
from conftest import needs
from simulation import loss_of, model_of

pytestmark = pytest.mark.up_to_ranks(2)  # C++ refuses on more


@pytest.mark.parametrize("call", (
    lambda x: bf.allreduce(x), lambda x: bf.allreduce_(x), lambda x: bf.broadcast(x, 0),
    lambda x: bf.allgather(x), lambda x: bf.neighbor_allreduce(x),
    lambda x: bf.neighbor_allreduce_(x), lambda x: bf.neighbor_allgather(x)))
def test_something_that_is_no_tensor(call, rank):
    needs(2)
    with pytest.raises(TypeError if rank == 0 else bluefog_cpp.PeerFailure,
                       match="expected a torch.Tensor"):
        call([1.0] if rank == 0 else torch.ones(1))
    assert bf.allreduce(torch.ones(1)).item() == 1


def test_a_tensor_that_no_window_takes(rank):
    needs(2)
    wrong = torch.ones(3).to_sparse()
    with pytest.raises(bluefog_cpp.Error if rank == 0 else bluefog_cpp.PeerFailure, match="dense"):
        bf.win_create(wrong if rank == 0 else torch.ones(3), "refused")
    assert bf.get_current_created_window_names() == []
    assert bf.win_create(torch.ones(3), "taken") and bf.win_free("taken")


def fake_tensor():
    with FakeTensorMode():
        return torch.ones(3)


# The erring rank makes them, since some warn of themselves.
ODD = {
    "quantized": lambda: torch.quantize_per_tensor(torch.ones(3), 1.0, 0, torch.qint8),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "jagged": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)],
                                                 layout=torch.jagged),
    "sparse_coo": lambda: torch.ones(3).to_sparse(),
    "sparse_csr": lambda: torch.ones(2, 2).to_sparse_csr(),
    "complex64": lambda: torch.ones(3, dtype=torch.complex64),
    "meta": lambda: torch.ones(3, device="meta"),
    "mkldnn": lambda: torch.ones(3).to_mkldnn(),
    "float8_e4m3fn": lambda: torch.ones(3).to(torch.float8_e4m3fn),
    "uint16": lambda: torch.ones(3, dtype=torch.uint16),
    "FakeTensor": fake_tensor,
    "NoneType": lambda: None,
}
ODD_IN_WORDS = {"jagged": "nested"}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ODD)
def test_tensors_that_cannot_be_sent(kind, rank, size):
    """Refused in every call by the one rank, heard of by the others in the same one."""
    needs(2)
    alone = {"self_weight": 1.0, "src_machine_weights": {}, "dst_machine_weights": {}}
    calls = {
        "allreduce": bf.allreduce, "broadcast": lambda x: bf.broadcast(x, 0),
        "allgather": bf.allgather, "neighbor_allreduce": bf.neighbor_allreduce,
        "neighbor_allgather": bf.neighbor_allgather,
        "hierarchical_neighbor_allreduce": lambda x: bf.hierarchical_neighbor_allreduce(x, **alone),
        "win_create": lambda x: bf.win_create(x, "odd"),
        "broadcast_parameters": lambda x: bf.broadcast_parameters([("p", x)], 0),
        "allreduce_parameters": lambda x: bf.allreduce_parameters([("p", x)])}
    for name, in_place in (("allreduce", bf.allreduce_),
                           ("neighbor_allreduce", bf.neighbor_allreduce_),
                           ("broadcast", lambda x: bf.broadcast_(x, 0)), *calls.items()):
        with pytest.raises((bluefog_cpp.Error, TypeError) if rank == 0 else bluefog_cpp.PeerFailure,
                           match=(
                                   f"(?=.*rank 0).*{name}.*expected .*found "
                                   f".*{ODD_IN_WORDS.get(kind, kind)}")):
            in_place(ODD[kind]() if rank == 0 else torch.ones(3))
        assert bf.allreduce(torch.ones(1)).item() == 1
    if rank < 2:
        with pytest.raises((bluefog_cpp.Error, TypeError) if rank == 0 else bluefog_cpp.PeerFailure,
                           match="rank 0, pair_gossip: expected"):
            bf.pair_gossip(ODD[kind]() if rank == 0 else torch.ones(3), 1 - rank)
        assert bf.pair_gossip(torch.ones(1), 1 - rank).item() == 1
    bf.win_create(torch.ones(3), "w")
    for store in (bf.win_put, bf.win_accumulate):
        with pytest.raises((bluefog_cpp.Error, TypeError),
                           match=f"rank {rank}, win_.* 'w': expected"):
            store(ODD[kind](), "w")
    bf.barrier()
    bf.win_free()
    assert bf.get_current_created_window_names() == []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ("complex64", "meta", "sparse_coo", "FakeTensor", "nested"))
@pytest.mark.parametrize("wrap",
                         (bf.DistributedAdaptThenCombineOptimizer, bf.DistributedWinPutOptimizer,
                          bf.DistributedGradientAllreduceOptimizer))
def test_parameters_that_cannot_be_sent(kind, wrap, rank):
    needs(2)
    model = torch.nn.Linear(3, 1, bias=False)
    if rank == 0:
        model.weight = torch.nn.Parameter(ODD[kind]())
    plain = torch.optim.SGD([model.weight], lr=0.1)
    with pytest.raises(bluefog_cpp.Error if rank == 0 else bluefog_cpp.PeerFailure,
                       match="(?=.*rank 0).*'weight'.*expected .*, found"):
        wrap(plain, model)
    assert bf.allreduce(torch.ones(1)).item() == 1


@pytest.mark.parametrize("wrong, said", (
    ({"self_weight": 0.5}, "together"),
    ({"self_weight": "a", "pair_weight": 1.0}, "self_weight: expected a number"),
    ({"self_weight": 1.0, "pair_weight": float("nan")}, "finite"), ({"name": 3}, "name")))
def test_a_refused_gossip_is_heard_by_its_partner(wrong, said, rank):
    needs(2)
    if rank < 2:
        for _ in range(2):
            with pytest.raises((ValueError, TypeError) if rank == 0 else bluefog_cpp.PeerFailure,
                               match=f"rank 0, pair_gossip: .*{said}"):
                bf.pair_gossip(torch.ones(1), 1 - rank, **(wrong if rank == 0 else {}))
        assert bf.pair_gossip(torch.full((1,), float(rank)), 1 - rank).item() == 0.5
        for target in (rank, -1, bf.size(), 0.5, "1", True, None):
            with pytest.raises(ValueError,
                               match=f"rank {rank}, pair_gossip: target_rank: expected"):
                bf.pair_gossip(torch.ones(1), target)


@pytest.mark.parametrize("wrong", ({"name": 3}, {"root_rank": 0.5}, {"root_rank": None}))
def test_arguments_of_other_kinds(wrong, rank):
    needs(2)
    with pytest.raises((ValueError, TypeError) if rank == 0 else bluefog_cpp.PeerFailure,
                       match="rank 0, broadcast: (name|root_rank): expected"):
        bf.broadcast(torch.ones(1),
                     **({"root_rank": 0, **wrong} if rank == 0 else {"root_rank": 0}))
    assert bf.allreduce(torch.ones(1)).item() == 1


CHANGES = {
    "resize": lambda x: x.resize_(1 << 20),
    "shrink": lambda x: x.resize_(2),
    "storage": lambda x: x.untyped_storage().resize_(1 << 20),
    "no storage": lambda x: x.untyped_storage().resize_(0),
    "set": lambda x: x.set_(torch.zeros(3)),
    "data": lambda x: setattr(x, "data", torch.zeros(3)),
    "shared": lambda x: x.share_memory_(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_peers_of_a_window_whose_tensor_has_other_memory(change, rank, size):
    """The memory that the window stands on stays as it was, until it is freed."""
    needs(2)
    bf.set_topology(topology_util.FullyConnectedGraph(size))
    x = torch.full((1 << 18,), float(rank + 1))
    assert bf.win_create(x, "w")
    bf.barrier()
    if rank == 0:
        CHANGES[change](x)
    taken = [torch.full((1 << 18,), -1.0) for _ in range(8)]  # the memory that is free now
    bf.barrier()
    if rank == 0:
        with pytest.raises(bluefog_cpp.StateError, match="rank 0, window 'w'.*memory"):
            bf.win_get("w")
    else:
        assert bf.win_get("w")
        assert bf.win_update("w", 0.0, {0: 1.0}, clone=True).eq(1.0).all()
    bf.barrier()
    assert bf.win_free() and len(taken) == 8


def test_memory_of_a_window_goes_with_the_last_that_uses_it(rank):
    x = torch.full((1 << 18,), float(rank))
    for name in ("a", "b"):
        assert bf.win_create(x, name)
    place = x.data_ptr()
    bf.barrier()
    assert bf.win_free() and x.data_ptr() == place and x.eq(float(rank)).all()
    x.resize_(1 << 19)
    assert x[:1 << 18].eq(float(rank)).all()


@pytest.mark.parametrize("change", CHANGES)
def test_a_window_whose_tensor_has_other_memory(change, rank):
    x = torch.ones(3)
    bf.win_create(x, "moved")
    CHANGES[change](x)
    for call in (lambda: bf.win_update("moved"), lambda: bf.win_put(x, "moved"),
                 lambda: bf.win_get("moved"), lambda: bf.win_update_then_collect("moved")):
        with pytest.raises(bluefog_cpp.StateError, match=f"rank {rank}, window 'moved'.*memory"):
            call()
    bf.barrier()
    assert bf.win_free("moved")


def test_a_negative_view_is_read_as_what_it_shows(rank, size):
    x = torch.tensor([1 + 2j]).conj().imag
    assert x.is_neg()
    assert bf.neighbor_allreduce(x).item() == -2 and bf.allreduce(x).item() == -2
    assert bf.allgather(x).tolist() == [-2] * size
    assert bf.neighbor_allreduce_(torch._neg_view(torch.ones(2))).tolist() == [-1, -1]


def test_wrapping_again(rank):
    model = model_of(0)
    optimizer = None
    old = []
    for wrap in (bf.DistributedAdaptThenCombineOptimizer, bf.DistributedAdaptWithCombineOptimizer,
                 bf.DistributedGradientAllreduceOptimizer, bf.DecentralizedOptimizer):
        optimizer = wrap(torch.optim.SGD(model.parameters(), lr=0.1), model)
        loss_of(model, rank).backward()
        optimizer.step()
        optimizer.zero_grad()
        old.append(optimizer)
    for ended in old[:-1]:
        with pytest.raises(bluefog_cpp.StateError, match="wrapped again"):
            ended.step()
    optimizer.step()
    bf.barrier()


IN_PLACE = {"allreduce": bf.allreduce_, "broadcast": lambda x: bf.broadcast_(x, 0),
            "neighbor_allreduce": bf.neighbor_allreduce_,
            "nonblocking": lambda x: bf.wait(bf.neighbor_allreduce_nonblocking_(x))}


@pytest.mark.parametrize("call", IN_PLACE)
def test_shared_elements_are_not_written_to(call, rank):
    needs(2)
    overlapping = torch.arange(4.0).as_strided((3, 2), (1, 1))
    for x in (torch.ones(1, 2).expand(3, 2), overlapping):
        before = x.clone()
        with pytest.raises(bluefog_cpp.InvalidArgument if rank == 0 else bluefog_cpp.PeerFailure,
                           match="rank 0, .*elements have memory of their own.*found one of shape"):
            IN_PLACE[call](x if rank == 0 else torch.ones(3, 2))
        assert x.equal(before) and bf.allreduce(torch.ones(1)).item() == 1
    interleaved = torch.zeros(11).as_strided((3, 3), (2, 3))  # which share none
    assert IN_PLACE[call](interleaved).eq(0).all()
    assert bf.allreduce(overlapping).equal(overlapping)  # what is only read may share


def test_shared_elements_of_puts_and_parameters(rank):
    shared = torch.ones(1).expand(3)
    bf.win_create(torch.ones(3), "w")
    assert bf.win_put(shared, "w") and bf.win_accumulate(shared, "w")
    for put in (bf.win_put, bf.win_accumulate):
        with pytest.raises(ValueError, match=f"rank {rank}, win_.* 'w': .*memory of their own"):
            put(shared, "w", self_weight=0.5)
    with pytest.raises(ValueError,
                       match=f"rank {rank}, broadcast_parameters: 'p': .*memory of their own"):
        bf.broadcast_parameters([("p", shared)], 0)
    bf.barrier()


@pytest.mark.parametrize("slip,said", (
    (lambda: bf.allreduce(torch.ones(1), average="x"),
     "average: expected True or False, found 'x'"),
    (lambda: bf.neighbor_allreduce(torch.ones(1), enable_topo_check="x"),
     "enable_topo_check: expected"),
    (lambda: bf.neighbor_allreduce(torch.ones(1), self_weight=True, src_weights={1: .5}),
     "self_weight"),
    (lambda: bf.neighbor_allreduce(torch.ones(1), self_weight="0.5", src_weights={1: .5}),
     "self_weight"),
    (lambda: bf.neighbor_allreduce(torch.ones(1), self_weight=.5, src_weights=[1]), "src_weights"),
    (lambda: bf.neighbor_allreduce(torch.ones(1), self_weight=.5, src_weights={1.7: .5}),
     "src_weights"),
    (lambda: bf.neighbor_allreduce(torch.ones(1), self_weight=.5, src_weights={"1": .5}),
     "src_weights"),
    (lambda: bf.neighbor_allreduce(torch.ones(1), self_weight=.5, src_weights={1: .5},
                                   dst_weights="1"),
     "dst_weights"),
    (lambda: bf.neighbor_allgather(torch.ones(1), src_ranks=[1.9], dst_ranks=[1]), "src_ranks")))
def test_arguments_of_other_types(slip, said, rank):
    needs(2)
    with pytest.raises(bluefog_cpp.InvalidArgument if rank == 0 else bluefog_cpp.Error, match=said):
        if rank == 0:
            slip()
        else:
            bf.allreduce(torch.ones(1))
    assert bf.allreduce(torch.ones(1)).item() == 1


@pytest.mark.parametrize("steps,optimizer", ((0, "sgd"), (1, None)))
def test_a_rank_that_cannot_wrap(steps, optimizer, rank):
    needs(2)
    model = model_of(0)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(bluefog_cpp.Error, match="rank 0, DistributedAdaptThenCombineOptimizer: "):
        bf.DistributedAdaptThenCombineOptimizer(
            sgd if optimizer or rank != 0 else None, model,
            num_steps_per_communication=steps if rank == 0 else 1)
    assert bf.allreduce(torch.ones(1)).item() == 1


def test_a_window_that_one_rank_alone_has(rank):
    needs(2)
    bf.win_create(torch.ones(1), "one")
    with pytest.raises(bluefog_cpp.PeerFailure,
                       match="a window 'two' exists already") if rank else (
                               contextlib.nullcontext()):
        bf.win_create(torch.ones(1), "two") if rank else _create_again()
    bf.win_free("one")
    assert bf.allreduce(torch.ones(1)).item() == 1


def _create_again():
    runtime = bluefog_cpp.torch._runtime.current()
    runtime.windows["two"] = runtime.windows["one"]
    assert not bf.win_create(torch.ones(1), "two")
    del runtime.windows["two"]


def test_graphs_without_an_end(size):
    model = model_of(0)
    endless = topology_util.GetDynamicOnePeerSendRecvRanks(topology_util.ExponentialGraph(size), 0)
    with pytest.raises(ValueError, match="schedule: expected"):
        bf.DecentralizedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model,
                                  schedule=endless)
    with pytest.raises(ValueError, match="step_in_backward: expected True or False, found 'no'"):
        bf.DecentralizedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model,
                                  step_in_backward="no")


def test_ranks_from_a_generator(rank, size):
    needs(2)
    assert bf.InferSourceFromDestinationRanks(r for r in [(rank + 1) % size]) == [(rank - 1) % size]
