"""Programs that stand on torch.distributed, unchanged: their values beside those over gloo."""

import copy

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

STEPS = 3


def model(norm=torch.nn.LayerNorm):
    """With a batch norm it has buffers, and a bias before them whose gradient is rounding alone."""
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(16, 64), norm(64), torch.nn.ReLU(),
                               torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))


def batch(rank, step):
    made = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(12, 16, generator=made), torch.randn(12, 8, generator=made)


def train(net, optimizer, rank):
    losses = []
    for step in range(STEPS):
        x, y = batch(rank, step)
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def expect_close(pair):
    # Gloo adds in another order.
    torch.testing.assert_close(*pair, rtol=1e-5, atol=1e-6)


HOOKS = {"none": None, "allreduce": default_hooks.allreduce_hook,
         "fp16": default_hooks.fp16_compress_hook, "bf16": default_hooks.bf16_compress_hook}


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("static_graph", [False, True])
def test_ddp(both, rank, hook, static_graph):
    def run(group):
        net = DistributedDataParallel(model(torch.nn.BatchNorm1d), process_group=group,
                                      static_graph=static_graph, bucket_cap_mb=0.01)
        if HOOKS[hook] is not None:
            net.register_comm_hook(group, HOOKS[hook])
        losses = train(net, torch.optim.SGD(net.parameters(), 0.1, momentum=0.9), rank)
        return losses, [p.detach() for p in net.parameters()]
    ours, theirs = both(run)
    if hook in ("none", "allreduce"):
        expect_close((ours, theirs))
    else:  # sums of halves are rounded in another order
        torch.testing.assert_close(ours, theirs, rtol=2e-2, atol=2e-3)


def test_ddp_has_its_buckets_in_shared_memory(bluefog, rank, size):
    backend = bluefog._get_backend(torch.device("cpu"))
    assert backend.supports_tensor_alloc(torch.device("cpu"))
    shared = backend.allocate_tensor(300_000, dtype=torch.float32, device=torch.device("cpu"))
    assert shared.eq(0).all()
    shared.fill_(rank)
    dist.all_reduce(shared)
    assert shared.eq(sum(range(size))).all()
    part = shared[1000:200_000]  # other ranks have it elsewhere in memory that is not shared
    part = part if rank else part.clone()
    dist.all_reduce(part)
    assert part.eq(size * sum(range(size))).all()


def test_ddp_join_and_no_sync(both, rank, size):
    """Ranks with different numbers of batches, and steps without communication."""
    def run(group):
        net = DistributedDataParallel(model(), process_group=group)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        with net.join():
            for step in range(2 + rank):
                x, y = batch(rank, step)
                torch.nn.functional.mse_loss(net(x), y).backward()
                optimizer.step()
                optimizer.zero_grad()
        with net.no_sync():
            net(batch(rank, 0)[0]).sum().backward()
        net(batch(rank, 1)[0]).sum().backward()
        return [p.grad for p in net.parameters()], [p.detach() for p in net.parameters()]
    expect_close(both(run))


def test_zero_redundancy_optimizer(both, rank):
    def run(group):
        net = DistributedDataParallel(model(), process_group=group)
        optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.Adam, lr=0.01,
                                            process_group=group)
        losses = train(net, optimizer, rank)
        optimizer.consolidate_state_dict(to=0)
        state = optimizer.state_dict()["state"] if rank == 0 else {}
        return losses, [p.detach() for p in net.parameters()], [
            one["exp_avg"] for _, one in sorted(state.items())]
    expect_close(both(run))


def test_fully_shard(both, rank):
    def run(group):
        net = model()
        mesh = DeviceMesh.from_group(group, "cpu")
        for layer in net:
            if isinstance(layer, torch.nn.Linear):
                fully_shard(layer, mesh=mesh)
        fully_shard(net, mesh=mesh)
        losses = train(net, torch.optim.Adam(net.parameters(), 0.01), rank)
        norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        return losses, norm.full_tensor(), [p.full_tensor().detach() for p in net.parameters()]
    expect_close(both(run))


def test_dtensor(both, size):
    def run(group):
        mesh = DeviceMesh.from_group(group, "cpu")
        torch.manual_seed(5)
        a, b = torch.randn(4 * size, 6), torch.randn(6, 3 * size + 1)
        rows = distribute_tensor(a, mesh, [Shard(0)])
        columns = distribute_tensor(b, mesh, [Shard(1)])
        inner = distribute_tensor(a, mesh, [Shard(1)]) @ distribute_tensor(b, mesh, [Shard(0)])
        again = rows.redistribute(mesh, [Shard(1)])
        partial = DTensor.from_local(torch.ones(5), mesh, [Partial()])
        return [(rows @ columns).full_tensor(), inner.full_tensor(), again.to_local(),
                inner.redistribute(mesh, [Shard(0)]).to_local(),
                partial.redistribute(mesh, [Replicate()]).to_local(), rows.sum().full_tensor(),
                rows.max().full_tensor()]
    expect_close(both(run))


def test_checkpoints(bluefog, rank, size, tmp_path_factory):
    """Distributed checkpoints, saved and loaded by all ranks."""
    folder = [str(tmp_path_factory.mktemp("checkpoint"))]
    dist.broadcast_object_list(folder, 0)
    mesh = DeviceMesh.from_group(bluefog, "cpu")
    torch.manual_seed(11)
    whole = torch.randn(4 * size + 1, 3)

    def state(value):
        return {"sharded": distribute_tensor(value, mesh, [Shard(0)]), "same": value[0].clone(),
                "step": 17}
    dcp.save(state(whole), checkpoint_id=folder[0], process_group=bluefog)
    loaded = state(torch.zeros_like(whole))
    dcp.load(loaded, checkpoint_id=folder[0], process_group=bluefog)
    assert loaded["sharded"].full_tensor().equal(whole) and loaded["same"].equal(whole[0])
    future = dcp.async_save(state(whole), checkpoint_id=folder[0] + "/later",
                            process_group=dist.new_group())
    future.result()
    dist.barrier()


@pytest.mark.parametrize("schedule", [ScheduleGPipe, Schedule1F1B])
def test_pipelining(both, rank, size, schedule):
    def run(group):
        torch.manual_seed(13)
        layers = [torch.nn.Sequential(torch.nn.Linear(10, 10), torch.nn.Tanh())
                  for _ in range(size)]
        stage = PipelineStage(copy.deepcopy(layers[rank]), rank, size, torch.device("cpu"),
                              group=group)
        pipe = schedule(stage, n_microbatches=2 * size, loss_fn=torch.nn.functional.mse_loss)
        x, y = torch.randn(8 * size, 10), torch.randn(8 * size, 10)
        losses = []
        for _ in range(2):
            if rank == 0:
                pipe.step(x)
            elif rank == size - 1:
                pipe.step(target=y, losses=losses)
            else:
                pipe.step()
        return losses, [p.grad for p in stage.submod.parameters()]
    expect_close(both(run))
