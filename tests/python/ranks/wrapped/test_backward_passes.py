"""Backward passes: the errors of those in which gradient all-reduce communicates, and how many of
them are a step."""

import pytest
import torch

import bluefog_cpp
import bluefog_cpp.torch as bf
from bluefog_cpp._extension import core
from conftest import needs
from simulation import flat, loss_of, model_of, train


@pytest.mark.up_to_ranks(2)
def test_errors_in_a_backward_pass_keep_their_class(rank, monkeypatch):
    needs(2)
    monkeypatch.setenv("BLUEFOG_TIMEOUT", "2")
    bf.shutdown()
    bf.init()
    table = torch.nn.Embedding(4, 2, sparse=True)
    optimizer = bf.DistributedGradientAllreduceOptimizer(
        torch.optim.SGD(table.parameters(), lr=0.1), table)
    with pytest.raises(bluefog_cpp.UnsupportedError,
                       match=f"rank {rank}, gradient all-reduce, parameter 'weight': .*dense"):
        table(torch.tensor([1])).sum().backward()
    bf.barrier()
    del optimizer
    model = model_of(0)
    optimizer = bf.DistributedGradientAllreduceOptimizer(  # noqa: F841 it averages while it lives
        torch.optim.SGD(model.parameters(), lr=0.1), model)
    if rank == 0:
        # Known at once inside a host; else a timeout, or rank 1, which began earlier, has left.
        with pytest.raises((bluefog_cpp.MismatchError, bluefog_cpp.TimeoutError,
                            bluefog_cpp.PeerFailure),
                           match="rank 0, call (.*gradients of .*another context.*barrier, which "
                           "this rank has not|2: rank 1 cannot come to it: .*barrier.*another "
                           "context)"):
            loss_of(model, rank).backward()
    try:
        bf.barrier()
    except bluefog_cpp.Error as error:  # who began to wait earlier has given it up
        assert "another context" in str(error)


def test_a_step_after_a_backward_pass_that_failed(rank):
    needs(2)
    model = model_of(0)
    optimizer = bf.DistributedGradientAllreduceOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model)
    if rank == 1:
        optimizer.refuse_step("no batch")
    else:
        with pytest.raises(bluefog_cpp.PeerFailure, match="no batch"):
            loss_of(model, rank).backward()
        with pytest.raises(bluefog_cpp.StateError, match="expected a backward pass since"):
            optimizer.step()
    train(model, optimizer, rank, 2)
    assert bf.allgather(flat(model).unsqueeze(0)).unique(dim=0).shape[0] == 1


@pytest.mark.parametrize("step_of_failure", (0, 2))
@pytest.mark.parametrize("failing", ((0,), (0, 1)))
@pytest.mark.parametrize("algorithm", ("adapt_then_combine", "adapt_with_combine",
                                       "gradient_allreduce"))
def test_passes_that_fail_do_not_count(algorithm, failing, step_of_failure, rank):
    def values_after(failing):
        model = model_of(0)
        optimizer = bf.DecentralizedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model,
                                              algorithm, num_steps_per_communication=2)
        values = []
        for step in range(4):
            optimizer.zero_grad()
            if step == step_of_failure and rank in failing:
                hook = model[0].weight.register_hook(stop)
                with pytest.raises(ValueError, match="no"):
                    loss_of(model, rank, step).backward()
                hook.remove()
                optimizer.zero_grad()
            loss_of(model, rank, step).backward()
            optimizer.step()
            values.append(flat(model))
        optimizer.finish()
        return torch.stack([*values, flat(model)])

    def stop(_gradient):
        raise ValueError("no")

    assert torch.equal(values_after(failing), values_after(()))


@pytest.mark.parametrize("period", (1, 2))
def test_zero_grad_clears_what_was_there_before(period, rank):
    model = torch.nn.Linear(1, 1, bias=False)
    bf.broadcast_parameters(model.state_dict(), 0)
    start = model.weight.item()
    ones = torch.ones(1, 1)
    model(ones).sum().backward()
    optimizer = bf.DistributedGradientAllreduceOptimizer(
        torch.optim.SGD(model.parameters(), lr=1.0), model, num_steps_per_communication=period)
    optimizer.zero_grad()
    for _ in range(period):
        model(ones).sum().backward()
    optimizer.step()
    assert model.weight.item() == pytest.approx(start - period)


def test_a_gradient_hook_that_is_taken(rank):
    needs(2)
    model = model_of(0)
    if rank == 0:
        next(model.parameters()).register_post_accumulate_grad_hook(lambda _: None)
    with pytest.raises(ValueError if rank == 0 else bluefog_cpp.PeerFailure,
                       match="rank 0.*parameter '.*': expected its post-accumulate"):
        bf.DistributedGradientAllreduceOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model)
    bf.barrier()


def test_a_hook_that_takes_the_place_of_the_average(rank):
    model = model_of(0)
    optimizer = bf.DistributedGradientAllreduceOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model)
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda _: None)
    loss_of(model, rank).backward()
    with pytest.raises(bluefog_cpp.StateError,
                       match="parameter '.*': expected its post-accumulate"):
        optimizer.step()
    del optimizer
    bf.barrier()


def pass_with_a_graph(model, rank):
    loss_of(model, rank).backward(create_graph=True)


def compiled_pass(model, rank):
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")):
        loss_of(model, rank).backward()


def pass_that_comes_back(model, rank):
    """Inside of it another one reaches the parameters that it has reached."""
    def again(*_):
        hook.remove()
        with torch.enable_grad():
            loss_of(model, rank).backward()

    hook = model[0].register_full_backward_hook(again)
    loss_of(model, rank).backward()


REFUSED = {"with_a_graph": (pass_with_a_graph, bluefog_cpp.UnsupportedError,
                            "parameter '.*': expected a gradient without a graph"),
           "compiled": (compiled_pass, bluefog_cpp.UnsupportedError, "compiled autograd"),
           "that_comes_back": (pass_that_comes_back, bluefog_cpp.StateError,
                               "parameter '.*': its gradient changed after it had been sent")}


@pytest.mark.up_to_ranks(2)
@pytest.mark.parametrize("who", ("all", "rank 0"))
@pytest.mark.parametrize("refused", REFUSED)
def test_passes_without_means_are_refused_on_all_ranks(refused, who, rank):
    needs(2)
    run, kind, text = REFUSED[refused]
    model = model_of(0)
    del model.unused  # buckets after it would wait for the end of the pass
    optimizer = bf.DecentralizedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model,
                                          "gradient_allreduce", bucket_bytes=64)
    train(model, optimizer, rank, 1)
    optimizer.zero_grad()
    if who == "all" or rank == 0:
        with pytest.raises(kind, match=f"rank {rank}.*{text}"):
            run(model, rank)
    else:
        with pytest.raises(bluefog_cpp.PeerFailure, match=f"rank 0.*{text}"):
            loss_of(model, rank).backward()
    train(model, optimizer, rank, 2)
    assert bf.allgather(flat(model).unsqueeze(0)).unique(dim=0).shape[0] == 1


@pytest.mark.up_to_ranks(2)
@pytest.mark.parametrize("algorithm", ("adapt_then_combine", "adapt_with_combine"))
@pytest.mark.parametrize("period", (1, 2))
def test_compiled_passes_count(algorithm, period, rank):
    models = model_of(0), model_of(0)
    for model, run in zip(models, (compiled_pass, lambda m, r: loss_of(m, r).backward())):
        optimizer = bf.DecentralizedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model,
                                              algorithm, num_steps_per_communication=period)
        for _ in range(2):
            optimizer.zero_grad()
            for _ in range(period):
                run(model, rank)
            optimizer.step()
        optimizer.finish()
    torch.testing.assert_close(flat(models[0]), flat(models[1]))


@pytest.mark.up_to_ranks(2)
def test_compiled_passes_that_would_step_parameters_are_refused(rank):
    model = model_of(0)
    optimizer = bf.DecentralizedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model,
                                          "adapt_then_combine", step_in_backward=True)
    with pytest.raises(bluefog_cpp.UnsupportedError,
                       match=f"rank {rank}: .* found compiled autograd.*step_in_backward"):
        compiled_pass(model, rank)
    train(model, optimizer, rank, 2)
    assert flat(model).isfinite().all()


@bf.register_algorithm
class OwnRounds(bf.Algorithm):
    """Adapt-then-combine of a program's own."""

    name = "test_own_rounds"

    def step(self, round, buckets):
        for bucket in buckets:
            self.local_step(bucket)
            self.average(bucket)


COUNT_STEPS = ("local_sgd", "slowmo", "diloco", "streaming_diloco", "gossip_diloco", "sparse_loco",
               "noloco", "accelerated_gossip", "gossip_pga", "dmsgd", "choco", "test_own_rounds")


@pytest.mark.parametrize("passes", (2, 3))
@pytest.mark.parametrize("algorithm", COUNT_STEPS)
def test_several_passes_before_a_step_are_one_local_step(algorithm, passes, rank):
    """H counts steps: two for each round, whether a step's gradients come in one pass or in more
    than H."""
    def trained(at_once):
        model = model_of(0)
        optimizer = bf.DecentralizedOptimizer(torch.optim.SGD(model.parameters(), lr=0.05), model,
                                              algorithm, num_steps_per_communication=2)
        for step in range(6):
            optimizer.zero_grad()
            losses = [loss_of(model, rank, passes * step + part) for part in range(passes)]
            for loss in [sum(losses)] if at_once else losses:
                loss.backward()
            optimizer.step()
            assert optimizer._distributed.core.round_count == (step + 1) // 2
        return flat(model)

    torch.testing.assert_close(trained(False), trained(True), rtol=0, atol=1e-12)


def test_algorithms_that_count_passes_are_those_of_bluefog():
    assert {row.name for row in core.algorithms() if row.counts_passes} == {
        "gradient_allreduce", "adapt_then_combine", "adapt_with_combine", "push_sum", "win_put",
        "pull_get", "async_push_sum", "none"}  # optimizers over windows stand on the last one
