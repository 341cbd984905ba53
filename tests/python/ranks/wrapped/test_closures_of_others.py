"""Optimizers that are not torch's and call the closure themselves; models without values yet."""

import pytest
import torch

import bluefog_cpp
import bluefog_cpp.torch as bf
from simulation import assign, flat, loss_of, mixing, model_of

RATE, RHO = 0.1, 0.05


class SharpnessAware(torch.optim.Optimizer):
    """A step uphill, the gradient there by the closure, and SGD's step from where it began."""

    def __init__(self, params, lr=RATE):
        super().__init__(params, {})
        self.inner = torch.optim.SGD(self.param_groups, lr=lr)
        self.param_groups = self.inner.param_groups

    @torch.no_grad()
    def step(self, closure=None):
        assert closure is not None, "expected a closure"
        parameters = [p for group in self.param_groups for p in group["params"]
                      if p.grad is not None]
        norm = torch.stack([p.grad.norm() for p in parameters]).norm()
        before = [p.data.clone() for p in parameters]
        for parameter in parameters:
            parameter.add_(RHO / norm * parameter.grad)
        self.zero_grad()
        with torch.enable_grad():
            loss = closure()
        for parameter, value in zip(parameters, before):
            parameter.data = value
        self.inner.step()
        return loss


class AsksForAClosure(SharpnessAware):
    def step(self, closure):
        return super().step(closure)


def train_once(model, optimizer, rank, step, passes=1):
    def closure():
        loss = loss_of(model, rank, step)
        loss.backward()
        return loss

    optimizer.zero_grad()
    for _ in range(passes):
        closure()
    return optimizer.step(closure)


@pytest.mark.parametrize("kind", (SharpnessAware, AsksForAClosure))
@pytest.mark.parametrize("period, passes", ((1, 1), (2, 1), (2, 2)))
def test_the_closure_is_passed_on(kind, period, passes, rank, size):
    model = model_of(0)
    optimizer = bf.DistributedAdaptThenCombineOptimizer(kind(model.parameters()), model,
                                                        num_steps_per_communication=period)
    models = [model_of(0) for _ in range(size)]
    plain = [kind(each.parameters()) for each in models]
    weights = torch.as_tensor(mixing(bf.load_topology()))
    for step in range(4):
        losses = [train_once(*each, place, step, passes)
                  for place, each in enumerate(zip(models, plain))]
        if passes == period or step % 2 == 1:
            for each, values in zip(models, weights @ torch.stack([flat(m) for m in models])):
                assign(each, values)
        loss = train_once(model, optimizer, rank, step, passes)
        torch.testing.assert_close(loss, losses[rank], rtol=0, atol=1e-12)
        torch.testing.assert_close(flat(model), flat(models[rank]), rtol=0, atol=1e-12)


def test_one_that_needs_it_is_refused_where_gradients_are_exchanged(rank):
    for wrap in (bf.DistributedAdaptWithCombineOptimizer, bf.DistributedGradientAllreduceOptimizer):
        model = model_of(0)
        with pytest.raises(bluefog_cpp.InvalidArgument, match=f"rank {rank}.*several times"):
            wrap(AsksForAClosure(model.parameters()), model)
    model = model_of(0)
    optimizer = bf.DistributedAdaptThenCombineOptimizer(AsksForAClosure(model.parameters()), model)
    loss_of(model, rank).backward()
    with pytest.raises(bluefog_cpp.InvalidArgument,
                       match=f"rank {rank}, step: closure: expected a function, which "
                       "AsksForAClosure calls"):
        optimizer.step()


@pytest.mark.parametrize("algorithm", ("adapt_then_combine", "gradient_allreduce"))
def test_lazy_modules_are_refused_before_a_forward_pass(algorithm, rank):
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.LazyLinear(2))
    plain = torch.optim.SGD(model.parameters(), lr=RATE)
    if rank == 0 or bf.size() == 1:
        with pytest.raises(bluefog_cpp.InvalidArgument,
                           match=f"rank {rank}.*model: parameter '1.weight': expected values, "
                           "found that of a lazy module"):
            bf.DecentralizedOptimizer(plain, model, algorithm)
        model(torch.ones(1, 3))
    else:
        model(torch.ones(1, 3))
        with pytest.raises(bluefog_cpp.PeerFailure, match="rank 0.*parameter '1.weight'"):
            bf.DecentralizedOptimizer(plain, model, algorithm)
    optimizer = bf.DecentralizedOptimizer(plain, model, algorithm)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
