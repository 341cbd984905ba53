"""Against torch's own layer in float64 on the batches of all ranks, one after the other."""

import copy

import pytest
import torch

import bluefog_cpp
import bluefog_cpp.torch as bf
from conftest import needs

CHANNELS = 3
# A rounding of values up to 16 or so; sums of some more.
TOLERANCES = {torch.float64: 1e-12, torch.float32: 2e-5, torch.float16: 16 / 2048,
              torch.bfloat16: 16 / 256}


def rows_of(rank):
    return 0 if rank == 2 else rank + 2


def mine(everything, rank):
    start = sum(map(rows_of, range(rank)))
    return everything[start:start + rows_of(rank)].detach()


def values(size, *row):
    """The same on all ranks."""
    generator = torch.Generator().manual_seed(sum(row))
    return torch.randn(sum(map(rows_of, range(size))), *row, generator=generator).double() * 2 + 1


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("row", ((CHANNELS,), (CHANNELS, 5), (CHANNELS, 4, 2)))
def test_uneven_batches_are_as_one(dtype, row, rank, size):
    tolerance = TOLERANCES[dtype]
    everything = values(size, *row).to(dtype).double().requires_grad_()
    gradient = values(size, *row).flip(0).to(dtype).double()
    oracle = torch.nn.BatchNorm2d(CHANNELS).double()
    layer = bf.SyncBatchNorm(CHANNELS, dtype=dtype)
    with torch.no_grad():
        for module in (oracle, layer):
            module.weight.copy_(torch.tensor([2.0, -0.5, 1.0]))
            module.bias.copy_(torch.tensor([0.0, 3.0, 1.0]))
    expected = oracle(everything)
    expected.backward(gradient)

    x = mine(everything, rank).to(dtype).requires_grad_()
    y = layer(x)
    assert y.dtype == dtype
    y.backward(mine(gradient, rank).to(dtype))
    for found, wanted in ((y, mine(expected, rank)), (x.grad, mine(everything.grad, rank)),
                          (layer.running_mean, oracle.running_mean),
                          (layer.running_var, oracle.running_var)):
        assert torch.allclose(found.double(), wanted, rtol=0, atol=tolerance)
    for found, wanted in ((layer.weight.grad, oracle.weight.grad),
                          (layer.bias.grad, oracle.bias.grad)):
        assert found.dtype == dtype
        whole = bf.allreduce(found.double(), average=False)
        assert torch.allclose(whole, wanted, rtol=0, atol=10 * tolerance)
    assert layer.num_batches_tracked == 1


@pytest.fixture(autouse=True)
def any_shape(monkeypatch):
    """torch has a layer for each number of dimensions, which differ in this check alone."""
    monkeypatch.setattr(torch.nn.BatchNorm2d, "_check_input_dim", lambda *_: None)


def network():
    torch.manual_seed(3)
    return torch.nn.Sequential(
        torch.nn.Conv2d(2, 4, 3), torch.nn.BatchNorm2d(4, momentum=None), torch.nn.ReLU(),
        torch.nn.Sequential(torch.nn.Flatten(), torch.nn.BatchNorm1d(64, affine=False),
                            torch.nn.Linear(64, 3))).double()


def test_a_converted_model_trains_as_one_process_on_all_batches(rank, size):
    alone, ours = network(), bf.SyncBatchNorm.convert_sync_batchnorm(network())
    x = torch.randn(size, 4, 2, 6, 6, generator=torch.Generator().manual_seed(1)).double()
    steps = torch.optim.SGD(alone.parameters(), lr=0.1)
    own = bf.DistributedGradientAllreduceOptimizer(torch.optim.SGD(ours.parameters(), lr=0.1), ours)
    for _ in range(3):
        for model, optimizer, batch in ((alone, steps, x.flatten(0, 1)), (ours, own, x[rank])):
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
    for (name, wanted), found in zip(alone.state_dict().items(), ours.state_dict().values()):
        assert torch.allclose(found, wanted, rtol=0, atol=1e-10), name


def test_conversion():
    model = network()
    model[1].eval()
    parameters = dict(model.named_parameters())
    state = copy.deepcopy(model.state_dict())
    converted = bf.SyncBatchNorm.convert_sync_batchnorm(model)
    assert converted is model
    assert [type(converted[1]), type(converted[3][1])] == [bf.SyncBatchNorm] * 2
    assert not converted[1].training and converted[3][1].training
    assert converted[1].momentum is None and converted[3][1].weight is None
    assert all(parameters[name] is found for name, found in converted.named_parameters())
    assert list(state) == list(converted.state_dict())
    assert bf.SyncBatchNorm.convert_sync_batchnorm(converted)[1] is converted[1]
    one = bf.SyncBatchNorm.convert_sync_batchnorm(torch.nn.SyncBatchNorm(5, eps=0.5))
    assert type(one) is bf.SyncBatchNorm and one.eps == 0.5 and one.num_features == 5


def test_evaluation_is_local(rank):
    layer = bf.SyncBatchNorm(CHANNELS)
    layer(torch.randn(4, CHANNELS))
    layer.eval()
    if rank == 0:  # alone: a collective call would wait for the others
        x = torch.randn(1, CHANNELS, 2)
        assert layer(x).equal(torch.nn.functional.batch_norm(
            x, layer.running_mean, layer.running_var, layer.weight, layer.bias))


def test_without_running_statistics_evaluation_is_of_the_batches(rank, size):
    layer = bf.SyncBatchNorm(CHANNELS, track_running_stats=False).double().eval()
    everything = values(size, CHANNELS)
    expected = torch.nn.functional.batch_norm(everything, None, None, training=True)
    assert torch.allclose(layer(mine(everything, rank)), mine(expected, rank), rtol=0, atol=1e-12)


def test_wrong_input_on_one_rank(rank):
    needs(2)
    layer = bf.SyncBatchNorm(CHANNELS)
    kind = ValueError if rank == 0 else bluefog_cpp.PeerFailure
    with pytest.raises(kind, match=r"\[N, 3, \.\.\.\]"):
        layer(torch.randn(2, CHANNELS + (rank == 0)))
    bf.barrier()


def test_refusals(rank):
    with pytest.raises(bluefog_cpp.UnsupportedError, match="process_group: expected None"):
        bf.SyncBatchNorm(CHANNELS, process_group=1)
    with pytest.raises(bluefog_cpp.UnsupportedError, match="process_group: expected None"):
        bf.SyncBatchNorm.convert_sync_batchnorm(network(), process_group=1)
    x = torch.randn(4, CHANNELS, requires_grad=True)
    (gradient,) = torch.autograd.grad(bf.SyncBatchNorm(CHANNELS)(x).square().sum(), x,
                                      create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()
    bf.barrier()
    bf.shutdown()
    with pytest.raises(bluefog_cpp.NotInitialized):
        bf.SyncBatchNorm(CHANNELS)(x)
    bf.init()
