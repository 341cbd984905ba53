import json
import os
import signal
import threading
import time

import networkx as nx
import pytest
import torch

import bluefog_cpp
import bluefog_cpp.torch as bf
from bluefog_cpp import topology_util
from bluefog_cpp.util import env
from conftest import needs
from simulation import flat, loss_of, model_of


def test_queries(rank, size):
    assert 0 <= rank < size == bf.size()
    assert bf.local_size() == size and bf.local_rank() == rank
    assert bf.machine_size() == 1 and bf.machine_rank() == 0
    assert bf.is_homogeneous() and not bf.nccl_built() and bf.mpi_threads_supported()
    assert size == int(os.environ.get("WORLD_SIZE", "1"))


def test_queries_before_init_are_value_errors():
    bf.shutdown()
    for query in (bf.size, bf.rank, bf.local_size, bf.local_rank, bf.machine_size,
                  bf.machine_rank, bf.is_homogeneous, bf.load_topology, bf.barrier):
        with pytest.raises(ValueError, match="init"):
            query()
        with pytest.raises(RuntimeError):
            query()


def test_init_after_shutdown(size):
    for _ in range(3):
        bf.shutdown()
        bf.shutdown()
        bf.init()
        assert bf.allreduce(torch.ones(2), average=False).tolist() == [size, size]


WRAPS = (bf.DistributedAdaptThenCombineOptimizer, bf.DistributedAdaptWithCombineOptimizer,
         bf.DistributedGradientAllreduceOptimizer, bf.DistributedWinPutOptimizer,
         bf.DecentralizedOptimizer)


@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("again", ("plain", "wrapped"))
def test_an_optimizer_that_shutdown_has_ended(wrap, again, rank):
    model = model_of(0)
    plain = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    ended = wrap(plain, model)
    loss_of(model, rank).backward()
    ended.step()
    momentum = [state["momentum_buffer"].clone() for state in ended.state_dict()["state"].values()]
    bf.barrier()
    bf.shutdown()
    bf.init()
    for call in (ended.step, lambda: ended.refuse_step("none")):
        with pytest.raises(bluefog_cpp.StateError, match=f"rank {rank}, SGD of .*shutdown.*wrap"):
            call()
    wrapped = wrap(plain if again == "plain" else ended, model)
    assert type(wrapped).__bases__[1] is torch.optim.SGD
    kept = [state["momentum_buffer"] for state in wrapped.state_dict()["state"].values()]
    assert len(kept) == len(momentum) > 0 and all(a.equal(b) for a, b in zip(kept, momentum))
    wrapped.zero_grad()
    loss_of(model, rank, 1).backward()
    before = flat(model).clone()
    wrapped.step()
    assert not flat(model).equal(before)
    bf.barrier()


def test_init_twice_resets_the_topology(size):
    bf.set_topology(topology_util.StarGraph(size))
    bf.init()
    assert topology_util.IsTopologyEquivalent(bf.load_topology(),
                                              topology_util.ExponentialGraph(size))
    bf.init(topology_util.RingGraph, is_weighted=True)
    assert topology_util.IsTopologyEquivalent(bf.load_topology(), topology_util.RingGraph(size))
    assert bf.is_topo_weighted()
    bf.set_machine_topology(topology_util.RingGraph(1))
    bf.init()
    assert not bf.is_topo_weighted() and bf.load_machine_topology() is None
    assert topology_util.IsTopologyEquivalent(bf.load_topology(),
                                              topology_util.ExponentialGraph(size))


def test_init_again_that_fails_changes_nothing(rank, size):
    bf.set_topology(topology_util.StarGraph(size), is_weighted=True)
    for wrong in (lambda size: 1 // 0, lambda size: None,
                  lambda size: topology_util.RingGraph(size + 1)):
        with pytest.raises((ZeroDivisionError, TypeError)):
            bf.init(wrong)
    bf.win_create(torch.ones(2), "w")
    bf.init(topology_util.StarGraph, is_weighted=True)
    with pytest.raises(bluefog_cpp.StateError, match=f"rank {rank}, init: expected no window .* w"):
        bf.init()
    assert topology_util.IsTopologyEquivalent(bf.load_topology(), topology_util.StarGraph(size))
    assert bf.is_topo_weighted()
    bf.barrier()
    bf.win_free()
    bf.init()


def test_a_topology_function_that_fails_leaves_nothing_behind():
    bf.shutdown()
    with pytest.raises(ZeroDivisionError):
        bf.init(lambda size: 1 // 0)
    assert not bf.is_initialized()
    bf.init()


def test_neighbors(rank, size):
    bf.set_topology(topology_util.RingGraph(size, connect_style=2))
    others = size > 1
    assert bf.out_neighbor_ranks() == ([(rank + 1) % size] if others else [])
    assert bf.in_neighbor_ranks() == ([(rank - 1) % size] if others else [])
    assert not bf.is_topo_weighted()
    assert bf.set_topology(topology_util.RingGraph(size, connect_style=2))


def test_the_loaded_topology_is_a_copy(size):
    bf.load_topology().add_node(size)
    assert bf.load_topology().number_of_nodes() == size


def test_wrong_topologies_are_type_errors(size):
    for wrong in (nx.Graph(), topology_util.RingGraph(size + 1), [[1]], "ring"):
        with pytest.raises(TypeError):
            bf.set_topology(wrong)
        with pytest.raises(TypeError):
            bf.set_machine_topology(wrong if wrong != [[1]] else 3)
    assert bf.load_topology().number_of_nodes() == size
    with pytest.raises(ValueError):
        bf.set_machine_topology(None)


def test_machine_topology():
    assert bf.load_machine_topology() is None and bf.in_neighbor_machine_ranks() is None
    assert bf.set_machine_topology(topology_util.RingGraph(1), is_weighted=True)
    assert bf.is_machine_topo_weighted()
    assert bf.in_neighbor_machine_ranks() == bf.out_neighbor_machine_ranks() == []


def test_virtual_machines(rank, size):
    bf.shutdown()
    per_machine = 2 if size % 2 == 0 else 1
    with env(BLUEFOG_NODES_PER_MACHINE=str(per_machine)):
        bf.init()
    assert bf.machine_size() == size // per_machine and bf.machine_rank() == rank // per_machine
    assert bf.local_size() == per_machine and bf.local_rank() == rank % per_machine


def test_compatibility_calls():
    bf.suspend()
    bf.resume()
    bf.set_skip_negotiate_stage(True)
    assert bf.get_skip_negotiate_stage()
    assert not bf.timeline_start_activity("x", "COMPUTE")
    with bf.timeline_context("x", "COMPUTE"):
        pass


def test_timeline(tmp_path, rank):
    bf.shutdown()
    with env(BLUEFOG_TIMELINE=f"{tmp_path}/t"):
        bf.init()
    with bf.timeline_context("weights", "MY_COMPUTATION"):
        bf.neighbor_allreduce(torch.ones(1), name="weights")
    bf.shutdown()
    assert "MY_COMPUTATION" in (tmp_path / f"t{rank}.json").read_text()


def test_spans_reach_the_file_in_time(rank, tmp_path):
    """While nothing else happens. One of several in time shows the pace, however busy the
    machine."""
    bf.shutdown()
    with env(BLUEFOG_TIMELINE=f"{tmp_path}/t"):
        bf.init()
    file = tmp_path / f"t{rank}.json"
    least = 60.0
    for number in range(50):
        begun = time.perf_counter()
        with bf.timeline_context("row", f"span {number}"):
            pass
        while f"span {number}" not in file.read_text():
            assert time.perf_counter() - begun < 30
        least = min(least, time.perf_counter() - begun)
        if least < 0.1:
            break
    assert least < 0.1


def test_activities_are_in_the_rows_of_their_tensors(tmp_path, rank):
    bf.shutdown()
    with env(BLUEFOG_TIMELINE=f"{tmp_path}/t"):
        bf.init()
    assert bf.timeline_start_activity("a", "OUTER")
    with bf.timeline_context("b", "OTHER"):
        assert bf.timeline_start_activity("a", "INNER")
        bf.allreduce(torch.ones(1), name="c")
        assert bf.timeline_end_activity("a")
    assert bf.timeline_end_activity("a")
    with pytest.raises(bluefog_cpp.StateError, match="tensor 'a'"):
        bf.timeline_end_activity("a")
    bf.shutdown()
    events = json.loads((tmp_path / f"t{rank}.json").read_text())
    rows = {event["tid"]: event["args"]["name"].partition(" (")[0] for event in events
            if event.get("name") == "thread_name"}
    spans = {name: [(event["ph"], event.get("name")) for event in events
                    if event["ph"] in "BE" and rows[event["tid"]] == name] for name in "ab"}
    assert spans == {"a": [("B", "OUTER"), ("B", "INNER"), ("E", None), ("E", None)],
                     "b": [("B", "OTHER"), ("E", None)]}
    assert "c" in rows.values()
    bf.init()


@pytest.mark.parametrize("is_written", (False, True))
def test_ends_of_activities_that_were_not_started(is_written, tmp_path, rank):
    bf.shutdown()
    with env(BLUEFOG_TIMELINE=f"{tmp_path}/t" if is_written else None):
        bf.init()
    bf.timeline_start_activity("weights", "COMPUTE")
    with pytest.raises(bluefog_cpp.StateError,
                       match=f"rank {rank}, .*tensor 'wieghts', found none .*'weights'"):
        bf.timeline_end_activity("wieghts")
    assert bf.timeline_end_activity("weights") is is_written
    with pytest.raises(bluefog_cpp.StateError, match="tensor 'weights', found none .*none"):
        bf.timeline_end_activity("weights")


def test_a_forked_child_is_no_rank():
    child = os.fork()
    if child == 0:
        code = 1
        try:
            bf.rank()
        except ValueError as error:
            code = 0 if "forked" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    bf.barrier()


def test_data_loader_workers(rank):
    loader = torch.utils.data.DataLoader(list(range(8)), batch_size=4, num_workers=1)
    for batch in loader:
        assert bf.broadcast(batch, 0).equal(batch)


def test_interrupts_end_a_wait(rank):
    needs(2)
    if rank == 0:
        timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
        timer.start()
        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            bf.neighbor_allreduce(torch.ones(4))
        assert time.monotonic() - start < 3
    else:
        time.sleep(1.0)


def test_a_wait_leaves_the_lock_to_other_threads(rank):
    needs(2)
    count = 0
    if rank == 0:
        done = threading.Event()

        def counting():
            nonlocal count
            while not done.wait(0.005):
                count += 1

        thread = threading.Thread(target=counting)
        thread.start()
        bf.barrier()
        done.set()
        thread.join()
        assert count >= 5
    else:
        time.sleep(0.3)
        bf.barrier()


def test_peers_of_a_rank_that_leaves_hear_of_it(rank, size):
    needs(2)
    if rank == size - 1:
        bf.shutdown()
    else:
        with pytest.raises(bluefog_cpp.PeerFailure) as raised:
            bf.barrier()
        assert raised.value.rank in range(size) and isinstance(raised.value, RuntimeError)


def test_a_peer_that_does_not_come_is_a_timeout_error(rank):
    needs(2)
    bf.shutdown()
    with env(BLUEFOG_TIMEOUT="1"):
        bf.init()
    if rank == 0:
        with pytest.raises(TimeoutError, match="rank") as raised:
            bf.allreduce(torch.ones(1), name="late")
        assert isinstance(raised.value, bluefog_cpp.TimeoutError) and "late" in str(raised.value)
    else:
        time.sleep(1.6)


def short_waits():
    bf.shutdown()
    with env(BLUEFOG_TIMEOUT="1"):
        bf.init()


def test_ranks_find_back_after_a_call_that_one_left_out(rank, size):
    needs(2)
    short_waits()
    if rank != 1:  # whose cell fails before it communicates
        with pytest.raises(bluefog_cpp.Error, match=r"resync\(\)"):
            bf.allreduce(torch.ones(3))
    bf.resync()
    assert bf.allgather(torch.tensor([rank])).tolist() == list(range(size))


def test_ranks_do_not_find_back_across_a_call_in_place(rank):
    needs(2)
    short_waits()
    bf.barrier()
    if rank == 0:
        x = torch.ones(3)
        bf.neighbor_allreduce_(x, self_weight=0.5, src_weights={}, dst_weights=[],
                               enable_topo_check=False)
    with pytest.raises(bluefog_cpp.StateError, match=(
            "rank 0 has changed its own, in whole or in part, in call 2, neighbor_allreduce.*, "
            "which rank 1 has not made to its end")):
        bf.resync()
    bf.shutdown()
    bf.init()
    bf.barrier()


def test_malformed_settings_are_value_errors():
    bf.shutdown()
    with env(BLUEFOG_TIMEOUT="soon"), pytest.raises(ValueError, match="BLUEFOG_TIMEOUT"):
        bf.init()
