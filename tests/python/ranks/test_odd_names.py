"""Names of parameters and buffers that UTF-8 cannot hold: they train, and errors escape them."""

import pytest
import torch

import bluefog_cpp
import bluefog_cpp.torch as bf

ODD = "weight\udc80"


class OddModel(torch.nn.Module):
    def __init__(self, value):
        super().__init__()
        self.register_parameter(ODD, torch.nn.Parameter(torch.full((3,), float(value))))
        self.register_buffer(f"count {ODD}", torch.full((2,), float(value)))

    def forward(self, x):
        return (getattr(self, ODD) * x).sum()


@pytest.mark.parametrize("wrap", (bf.DistributedAdaptThenCombineOptimizer,
                                  bf.DistributedGradientAllreduceOptimizer,
                                  bf.DistributedWinPutOptimizer, bf.DistributedPushSumOptimizer),
                         ids=lambda wrap: wrap.__name__)
def test_wrapped_models_train(wrap, rank):
    model = OddModel(1)
    optimizer = wrap(torch.optim.SGD(model.parameters(), lr=0.5), model)
    model(torch.ones(3)).backward()
    optimizer.step()
    optimizer.finish()
    assert getattr(model, ODD).equal(torch.full((3,), 0.5))
    bf.barrier()


def test_parameters_are_sent(rank, size):
    model = OddModel(rank)
    bf.broadcast_parameters(model.state_dict(), size - 1)
    assert getattr(model, ODD).equal(torch.full((3,), size - 1.0))
    bf.allreduce_parameters(model.state_dict())
    assert getattr(model, ODD).equal(torch.full((3,), size - 1.0))


def test_errors_have_them_escaped(rank):
    state = OddModel(1).state_dict()
    state[ODD] = state[ODD].to_sparse()
    with pytest.raises(bluefog_cpp.UnsupportedError) as refused:
        bf.broadcast_parameters(state, 0)
    assert "'weight\\udc80'" in str(refused.value)
