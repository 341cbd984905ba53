"""Backward passes that run inside of others count with the outer one: every way to do it, with the
values of all ranks in one process."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import bluefog_cpp.torch as bf
from conftest import needs
from simulation import assign, flat

RATE = 0.1


def model_of(seed=0):
    """A layer that is used twice, and one behind it."""
    torch.manual_seed(seed)
    return torch.nn.ModuleDict({"twice": torch.nn.Linear(4, 4),
                                "last": torch.nn.Linear(4, 2)}).double()


def data_of(rank, step):
    generator = torch.Generator().manual_seed(100 * rank + step)
    return torch.randn(8, 4, generator=generator, dtype=torch.float64)


def segment(layer):
    return lambda x: torch.tanh(layer(x))


def hidden_of(model, x, in_segments=False):
    for _ in range(2):
        x = (checkpoint(segment(model["twice"]), x, use_reentrant=True) if in_segments
             else segment(model["twice"])(x))
    return x


def plain_loss(model, x):
    return model["last"](hidden_of(model, x)).square().mean()


def plain(model, x):
    plain_loss(model, x).backward()


def gradients_handed_out(model, x):
    loss = plain_loss(model, x)
    torch.autograd.grad(loss, [model["twice"].weight, model["last"].weight], retain_graph=True)
    loss.backward()


def reentrant_checkpoints(model, x):
    model["last"](hidden_of(model, x.requires_grad_(), in_segments=True)).square().mean().backward()


def only_a_checkpoint(model, x):
    """The outer pass itself reaches no parameter."""
    checkpoint(lambda h: plain_loss(model, h), x.requires_grad_(), use_reentrant=True).backward()


def checkpoints_in_a_checkpoint(model, x):
    def outer(h):
        return hidden_of(model, h, in_segments=True).square().mean()

    checkpoint(outer, x.requires_grad_(), use_reentrant=True).backward()


def a_penalty_on_gradients(model, x):
    loss = plain_loss(model, x)
    gradients = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
    (loss + sum(gradient.square().sum() for gradient in gradients)).backward()


def backward_of(make):
    with torch.enable_grad():
        make().square().mean().backward()


def a_hook_that_calls_backward(model, x):
    hidden = hidden_of(model, x)
    hidden.register_hook(lambda _: backward_of(lambda: hidden_of(model, x.flip(0))))
    model["last"](hidden).square().mean().backward()


def a_hook_of_a_leaf_that_calls_backward(model, x):
    """No node of the outer pass follows the one whose hook begins the inner pass."""
    x = x.clone().requires_grad_()
    x.register_hook(lambda _: backward_of(lambda: model["last"](x.detach().flip(0))))
    hidden_of(model, x).square().mean().backward()


def on_one_rank_alone(model, x):
    (reentrant_checkpoints if x.rank == 0 else plain)(model, x)


PASSES = (plain, gradients_handed_out, reentrant_checkpoints, only_a_checkpoint,
          checkpoints_in_a_checkpoint, a_penalty_on_gradients, a_hook_that_calls_backward,
          a_hook_of_a_leaf_that_calls_backward, on_one_rank_alone)


def flat_gradient(model):
    return torch.cat([torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten()
                      for p in model.parameters()])


class AllRanks:
    """The same steps with all ranks in this process, whose averages are over all of them."""

    def __init__(self, size):
        self.models = [model_of() for _ in range(size)]
        self.is_pending = False

    def add_gradients(self, run, step):
        for rank, model in enumerate(self.models):
            x = data_of(rank, step)
            x.rank = rank
            run(model, x)

    def gradients(self):
        return torch.stack([flat_gradient(model) for model in self.models])

    def step(self, algorithm, communicates):
        gradients = self.gradients()
        x = torch.stack([flat(model) for model in self.models])
        if algorithm == "gradient_allreduce":
            x = x - RATE * gradients.mean(0) if communicates else x
        elif algorithm == "adapt_then_combine":
            x = x - RATE * gradients
            x = x.mean(0).expand_as(x) if communicates else x
        else:
            x = (x.mean(0).expand_as(x) if self.is_pending else x) - RATE * gradients
            self.is_pending = communicates
        for model, values in zip(self.models, x):
            assign(model, values)

    def zero_grad(self):
        for model in self.models:
            model.zero_grad()

    def finish(self):
        if self.is_pending:
            mean = torch.stack([flat(model) for model in self.models]).mean(0)
            for model in self.models:
                assign(model, mean)


def run_pass(run, model, rank, step):
    x = data_of(rank, step)
    x.rank = rank
    run(model, x)


@pytest.mark.up_to_ranks(2)
@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize("algorithm", ("adapt_then_combine", "step_in_backward",
                                       "adapt_with_combine", "gradient_allreduce"))
@pytest.mark.parametrize("period, is_one_step", ((1, False), (2, False), (2, True)))
@pytest.mark.parametrize("run", PASSES, ids=lambda run: run.__name__)
def test_one_outer_pass_counts_once(run, period, is_one_step, algorithm, rank, size):
    needs(2)
    model, expected = model_of(), AllRanks(size)
    in_backward = algorithm == "step_in_backward"
    algorithm = "adapt_then_combine" if in_backward else algorithm
    optimizer = bf.DecentralizedOptimizer(
        torch.optim.SGD(model.parameters(), lr=RATE), model, algorithm,
        num_steps_per_communication=period, bucket_bytes=128, step_in_backward=in_backward)
    sums = algorithm == "gradient_allreduce"
    for step in range(2 * period):
        is_last = step % period == period - 1
        begins = step % period == 0 if sums or is_one_step else True
        if begins:
            optimizer.zero_grad()
            expected.zero_grad()
        run_pass(run, model, rank, step)
        expected.add_gradients(run, step)
        if sums and is_last:
            torch.testing.assert_close(flat_gradient(model), expected.gradients().mean(0), rtol=0,
                                       atol=1e-12)
        if is_last or not is_one_step:
            optimizer.step()
            expected.step(algorithm, is_last)
        if not is_one_step or is_last:
            torch.testing.assert_close(flat(model), flat(expected.models[rank]), rtol=0,
                                       atol=1e-12)
    optimizer.finish()
    expected.finish()
    torch.testing.assert_close(flat(model), flat(expected.models[rank]), rtol=0, atol=1e-12)
