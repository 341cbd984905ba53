"""Elastic pipelines over torch.distributed: what they compute is what one process computes."""

import pytest
import torch
import torch.distributed as dist

from bluefog_cpp.errors import InvalidArgument, MismatchError, PeerFailure, StateError
from bluefog_cpp.pipeline import (
    ElasticPipeline,
    ElasticPlan,
    EpochShares,
    _elastic,
    freeze_bound,
    initial_micro_batches,
    partition_layers,
    pipeline_bubble,
)
from bluefog_cpp.pipeline._agreement import begin_batch

FEATURES, CLASSES = 6, 4
TOLERANCE = 1e-12  # sums of some hundred float64 values, in another order
loss = torch.nn.MSELoss()


def five_layers():
    torch.manual_seed(5)
    return torch.nn.Sequential(
        torch.nn.Linear(FEATURES, 8), torch.nn.Tanh(), torch.nn.Linear(8, 8),
        torch.nn.LayerNorm(8), torch.nn.Tanh(), torch.nn.Linear(8, 7), torch.nn.Tanh(),
        torch.nn.Linear(7, CLASSES, bias=False)).double()


def data(rows, seed=1):
    made = torch.Generator().manual_seed(seed)
    return (torch.randn(rows, FEATURES, generator=made, dtype=torch.float64),
            torch.randn(rows, CLASSES, generator=made, dtype=torch.float64))


def all_stages():
    size = dist.get_world_size()
    return [stages for stages in range(1, size + 1) if size % stages == 0]


def share(pipe, rows, part):
    """The rows of this pipeline."""
    begin = rows * pipe.replica // pipe.replicas
    end = rows * (pipe.replica + 1) // pipe.replicas
    return (*(tensor[begin:end] for tensor in part), end - begin)


def reference_gradients(model, part):
    model.zero_grad()
    loss(model(part[0]), part[1]).backward()
    return dict(model.named_parameters())


def expect_close(found, expected, name):
    torch.testing.assert_close(found, expected, rtol=0, atol=TOLERANCE, msg=name)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize("micro_batches", [1, 2, 5, None])
def test_gradients_are_those_of_one_process(schedule, micro_batches):
    for stages in all_stages():
        pipe = ElasticPipeline(five_layers(), loss, stages=stages, schedule=schedule,
                               micro_batches=micro_batches)
        for rows in (20, 13, pipe.replicas):
            part = data(rows, rows)
            inputs, targets, own = share(pipe, rows, part)
            found = pipe.compute_gradients(inputs, targets, own, rows)
            expected = reference_gradients(five_layers(), part)
            trained = pipe.trained_parameters()
            assert trained
            for name, parameter in trained:
                expect_close(parameter.grad, expected[name].grad, name)
            assert (found is None) == (pipe.stage < stages - 1)
            if found is not None:
                own_loss = float(loss(five_layers()(inputs), targets).detach())
                assert found == pytest.approx(own_loss, abs=TOLERANCE)


def test_a_pipeline_without_rows_adds_nothing():
    size = dist.get_world_size()
    pipe = ElasticPipeline(five_layers(), loss, stages=size // 2)
    part = data(6)
    rows = 0 if pipe.replica else 6
    pipe.compute_gradients(part[0], part[1], rows, 6)
    expected = reference_gradients(five_layers(), part)
    for name, parameter in pipe.trained_parameters():
        expect_close(parameter.grad, expected[name].grad, name)


def arrangements():
    size = dist.get_world_size()
    return [(size, 0), (size // 2, 3), (size // 2, 4), (1, 6), (size, 6)]


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, weight_decay=0.01),
    "adam": lambda p: torch.optim.AdamW(p, 0.01, amsgrad=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 0.01, momentum=0.5),
}


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_training_goes_on_as_that_of_one_process(kind):
    model, alone = five_layers(), five_layers()
    pipe = ElasticPipeline(model, loss, stages=dist.get_world_size(), micro_batches=4)
    optimizer, other = (OPTIMIZERS[kind](list(m.parameters())) for m in (model, alone))
    shares, everyone = EpochShares(30, 12, seed=3), EpochShares(30, 12, seed=3)
    inputs, targets = data(30)
    for epoch, (stages, frozen) in enumerate(arrangements()):
        shares.begin_epoch(epoch)
        everyone.begin_epoch(epoch)
        seen = []
        while shares.left:
            if len(seen) == 12:  # in the middle of an epoch
                pipe.rearrange(stages, frozen, optimizer)
                assert (pipe.stages, pipe.frozen) == (stages, frozen)
                for parameter in alone[:frozen].parameters():
                    parameter.grad = None
                    parameter.requires_grad_(False)
            all_rows, own = shares.next(pipe.replicas, pipe.replica)
            pipe.step(optimizer, inputs[own], targets[own], len(own), all_rows)
            rows = everyone.next(1, 0)[1]
            assert all_rows == len(rows)
            other.zero_grad()
            loss(alone(inputs[rows]), targets[rows]).backward()
            other.step()
            seen += rows
        assert sorted(seen) == list(range(30))
        expected = dict(alone.named_parameters())
        for name, parameter in pipe.trained_parameters():
            expect_close(parameter.detach(), expected[name].detach(), name)


def test_parameters_stay_bit_for_bit_and_only_where_they_belong():
    model = five_layers()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    pipe = ElasticPipeline(model, loss, stages=dist.get_world_size())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for stages, frozen in arrangements():
        pipe.rearrange(stages, frozen, optimizer)
        own = pipe.layers_of(pipe.stage)
        for name, parameter in model.named_parameters():
            if int(name.split(".")[0]) in own:
                assert parameter.equal(before[name]), name
            else:
                assert parameter.numel() == 0


def test_frozen_layers_have_no_gradient_and_no_state():
    model = five_layers()
    pipe = ElasticPipeline(model, loss, stages=dist.get_world_size())
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    inputs, targets = data(8)

    def step():
        own = share(pipe, 8, (inputs, targets))
        pipe.step(optimizer, *own, 8)

    step()
    pipe.rearrange(1, 4, optimizer)
    model.train()
    step()
    for layer in range(4):
        assert not model[layer].training
        for parameter in model[layer].parameters():
            assert parameter.grad is None
            assert parameter not in optimizer.state
    norms = pipe.gradient_norms()
    assert norms[2] == 0 and norms[5] > 0
    assert norms == pytest.approx(norms_of(model), abs=TOLERANCE)


def norms_of(model):
    return [float(torch.cat([torch.zeros(1, dtype=torch.float64),
                             *(p.grad.flatten() for p in layer.parameters()
                               if p.grad is not None)]).norm()) for layer in model]


def test_everything_frozen_is_forward_alone():
    model = five_layers()
    pipe = ElasticPipeline(model, loss, stages=dist.get_world_size())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    pipe.rearrange(dist.get_world_size(), 5, optimizer)
    inputs, targets = data(16)
    found = pipe.step(optimizer, inputs, targets, 16)
    if found is not None:
        expected = float(loss(five_layers()(inputs), targets).detach())
        assert found == pytest.approx(expected, abs=TOLERANCE)


def test_replicas_have_the_same_bits():
    model = five_layers()
    size = dist.get_world_size()
    pipe = ElasticPipeline(model, loss, stages=size // 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for step in range(3):
        pipe.step(optimizer, *share(pipe, 11, data(11, step)), 11)
    own = torch.cat([p.detach().flatten() for _, p in pipe.trained_parameters()])
    least, most = own.clone(), own.clone()
    for stage in range(pipe.stages):
        group = dist.new_group([r for r in range(size) if r % pipe.stages == stage])
        if stage == pipe.stage:
            dist.all_reduce(least, dist.ReduceOp.MIN, group=group)
            dist.all_reduce(most, dist.ReduceOp.MAX, group=group)
    assert least.equal(own) and most.equal(own)


def test_evaluation_gives_the_outputs_of_one_process():
    for stages in all_stages():
        pipe = ElasticPipeline(five_layers(), loss, stages=stages)
        inputs, _, rows = share(pipe, 9, data(9))
        found = pipe.evaluate(inputs, rows)
        assert (found is None) == (pipe.stage < stages - 1)
        if found is not None:
            expect_close(found, five_layers()(inputs).detach(), "outputs")
            assert not found.requires_grad


WIDTHS = (8, 8, 8, 8, 8, 7, 7, CLASSES)  # values of a row behind each layer


def test_what_a_step_takes_and_moves():
    for stages in all_stages():
        model = five_layers()
        pipe = ElasticPipeline(model, loss, stages=stages, micro_batches=2)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        inputs, targets, rows = share(pipe, 16, data(16))
        for _ in range(2):
            pipe.step(optimizer, inputs, targets, rows, 16)
        own, is_last = pipe.layers_of(pipe.stage), pipe.stage == stages - 1
        sent = 0 if is_last else WIDTHS[own.stop - 1]
        sent += WIDTHS[own.start - 1] if own.start else 0
        times = pipe.times
        assert times.stage_bytes == 8 * rows * sent
        trained = sum(p.numel() for _, p in pipe.trained_parameters())
        assert times.averaged_parameters == (trained if pipe.replicas > 1 else 0)
        assert times.averaged_bytes == 8 * times.averaged_parameters
        assert (times.averaging > 0) == (pipe.replicas > 1)
        assert min(times.forward, times.backward, times.optimizer, times.waiting) > 0
        parts = (times.forward, times.backward, times.waiting, times.averaging, times.optimizer)
        assert times.total >= sum(parts) - 1e-9  # roundings of differences
        pipe.evaluate(inputs, rows)
        assert pipe.times == times


def test_messages_between_machines_are_counted(monkeypatch):
    """Two machines of half of the ranks each: one border between stages, or replicas on both."""
    size, rank = dist.get_world_size(), dist.get_rank()
    monkeypatch.setenv("BLUEFOG_HOST_ID", f"machine {rank // (size // 2)}")
    for stages in all_stages():
        model = five_layers()
        pipe = ElasticPipeline(model, loss, stages=stages, micro_batches=2)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(2):
            pipe.step(optimizer, *share(pipe, 16, data(16)), 16)
        is_at_the_border = rank in (size // 2 - 1, size // 2)
        expected = 1 if stages < size else 2 * is_at_the_border
        assert pipe.times.machine_syncs == expected, stages
    monkeypatch.delenv("BLUEFOG_HOST_ID")
    pipe = ElasticPipeline(five_layers(), loss, stages=size)
    pipe.compute_gradients(*share(pipe, 16, data(16)))
    assert pipe.times.machine_syncs == 0


def test_given_costs_decide_where_stages_end():
    stages = 2
    pipe = ElasticPipeline(five_layers(), loss, stages=stages, costs=[1.0, 0, 1, 1, 0, 9, 0, 1])
    assert [pipe.layers_of(stage) for stage in range(2)] == [range(5), range(5, 8)]
    # By numbers of parameters: 56, 72, 16, 63 and 28.
    assert ElasticPipeline(five_layers(), loss, stages=stages).layers_of(0) == range(3)


def refusal(kind, call, *args, **arguments):
    with pytest.raises(kind) as raised:
        call(*args, **arguments)
    return str(raised.value)


def test_what_no_pipeline_takes():
    size = dist.get_world_size()
    make = ElasticPipeline
    assert "a sequence (torch.nn.Sequential), found a Linear" in refusal(
        InvalidArgument, make, torch.nn.Linear(2, 2), loss, stages=1)
    assert f"divides the {size} ranks, found {size + 1}" in refusal(
        InvalidArgument, make, five_layers(), loss, stages=size + 1)
    assert "expected 1 to 1 stages" in refusal(
        InvalidArgument, make, torch.nn.Sequential(torch.nn.Linear(2, 2)), loss, stages=size)
    assert "a schedule of gpipe and 1f1b, found 'zb'" in refusal(
        InvalidArgument, make, five_layers(), loss, stages=1, schedule="zb")
    assert "at least 1 micro-batch, found 0" in refusal(
        InvalidArgument, make, five_layers(), loss, stages=1, micro_batches=0)
    assert "the costs of 8 layers, found 1" in refusal(
        InvalidArgument, make, five_layers(), loss, stages=1, costs=[1.0])
    linear = torch.nn.Linear(2, 2)
    assert "share no tensor, found 1.weight to be 0.weight" in refusal(
        InvalidArgument, make, torch.nn.Sequential(linear, linear), loss, stages=1)
    mixed = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2).double())
    assert "parameters of one dtype" in refusal(InvalidArgument, make, mixed, loss, stages=1)
    parameters_in_front = torch.nn.Sequential(torch.nn.Linear(2, 2), *[torch.nn.Tanh()] * size)
    assert "found stage 1 of layers" in refusal(
        InvalidArgument, make, parameters_in_front, loss, stages=size, costs=[1.0] * (size + 1))


def test_a_problem_of_one_rank_is_heard_of_by_all():
    mine = torch.nn.Linear(2, 2) if dist.get_rank() == 1 else five_layers()
    kind = InvalidArgument if dist.get_rank() == 1 else PeerFailure
    assert "a sequence" in refusal(kind, ElasticPipeline, mine, loss, stages=1)
    other = torch.nn.Sequential(torch.nn.Linear(2 + dist.get_rank(), 2))
    assert "0.weight" in refusal(MismatchError, ElasticPipeline, other, loss, stages=1)


def test_arrangements_and_batches_that_cannot_be():
    model = five_layers()
    pipe = ElasticPipeline(model, loss, stages=1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    pipe.rearrange(1, 2, optimizer)
    assert "expected 2 to 8 frozen layers, since frozen ones stay so, found 1" in refusal(
        InvalidArgument, pipe.rearrange, 1, 1, optimizer)
    assert "divides" in refusal(InvalidArgument, pipe.rearrange, 7, 2, optimizer)
    inputs, targets = data(4)
    assert "stage 0: expected inputs of 5 rows, found [4, 6]" in refusal(
        InvalidArgument, pipe.step, optimizer, inputs, targets, 5)
    assert "expected targets of 4 rows, found none" in refusal(
        InvalidArgument, pipe.step, optimizer, inputs, None, 4)
    for rows, all_rows in ((0, None), (0, 0), (-1, 4), (4, 3)):
        assert f"no fewer, of all pipelines, found {rows} and {all_rows}" in refusal(
            InvalidArgument, pipe.compute_gradients, inputs, targets, rows, all_rows)
    assert "expected inputs of 3 rows" in refusal(InvalidArgument, pipe.evaluate, inputs, 3)


@pytest.mark.parametrize("kinds, rows", ((("a step", "a step"), (3, 4)),
                                         (("a step", "an evaluation"), (4, 4))))
def test_a_stage_that_is_called_with_another_batch_is_told(kinds, rows):
    rank, size = dist.get_rank(), dist.get_world_size()
    own = min(rank, 1)  # the second stage is told otherwise than the first, and as those behind it
    call = (kinds[own], rows[own], 8)
    if rank == 1:
        text = refusal(MismatchError, begin_batch, *call, stage=rank, stages=size)
        assert f"stage 1: expected the batch of rank 0, {kinds[0]} of {rows[0]} rows" in text
        assert f"found {kinds[1]} of {rows[1]} rows, 8 in all pipelines" in text
    else:
        told = begin_batch(*call, stage=rank, stages=size)
        if told is not None:
            told.wait()


def test_steps_and_evaluations_tell_their_batch(monkeypatch):
    said = []
    monkeypatch.setattr(_elastic, "begin_batch",
                        lambda *batch, stage, stages: said.append((*batch, stage, stages)))
    pipe = ElasticPipeline(five_layers(), loss, stages=dist.get_world_size())
    inputs, targets = data(6)
    pipe.compute_gradients(inputs, targets, 6)
    pipe.evaluate(inputs, 6)
    place = (pipe.stage, pipe.stages)
    assert said == [("a step", 6, 6, *place), ("an evaluation", 6, 6, *place)]
    assert "as of the only one, 6, found 12" in refusal(
        InvalidArgument, pipe.compute_gradients, inputs, targets, 6, 12)


def test_plans_are_those_of_the_core():
    assert [freeze_bound(12, 1 / 2, t) for t in range(5)] == [0, 6, 9, 11, 12]
    assert [freeze_bound(24, 1 / 3, t) for t in range(1, 9)] == [8, 14, 17, 20, 21, 22, 23, 24]
    assert partition_layers([1.0] * 12, 4, frozen=6) == [0, 6, 8, 10]
    assert partition_layers([1.0] * 12, 4, frozen=6, frozen_share=1) == [0, 3, 6, 9]
    assert partition_layers([1.0] * 7, 3, skips=[(0, 2), (3, 5)]) == [0, 3, 6]
    assert [initial_micro_batches(k) for k in (1, 2, 4, 8)] == [1, 16, 16, 16]
    for schedule in ("gpipe", "1f1b"):
        assert pipeline_bubble(schedule, 4, 16) == pytest.approx(3 / 19)
    plan = ElasticPlan([6.0] * 12 + [1.0], 4, alpha=0.5)
    depths = [plan.advance() for _ in range(4)]
    assert [frozen for _, frozen in depths] == [6, 9, 11, 11]
    assert depths[0][0] == 4 and depths[-1][0] < 4
    assert plan.depth == 11
    with pytest.raises(InvalidArgument, match="gradient norms of 13 layers, found 1"):
        plan.advance([1.0])
    shares = EpochShares(3, 3)
    shares.next(1, 0)
    with pytest.raises(StateError, match="all 3 seen"):
        shares.next(1, 0)
    for call in (lambda: freeze_bound(0, 0.5, 1), lambda: EpochShares(0, 1),
                 lambda: partition_layers([1.0], 2),
                 lambda: partition_layers([1.0], 1, frozen_share=0),
                 lambda: pipeline_bubble("zb", 2, 2), lambda: ElasticPlan([1.0], 1)):
        with pytest.raises(InvalidArgument):
            call()
