"""A model and what steps it, for each way of bfbench traffic."""

import importlib.util

import torch
from torch.distributed.algorithms.ddp_comm_hooks import (
    default_hooks,
    post_localSGD_hook,
    powerSGD_hook,
)
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer

import bluefog_cpp.torch as bf
from bfbench.algorithms import row_named
from bfbench.traffic.ways import OWN_GRAPH, PEERS
from bfbench.training import MOMENTUM
from bfbench.workers.train_worker import StepsInBackward

SCHEDULES = {"one_peer": "one-peer-exponential", OWN_GRAPH: None, "": None}
FRAGMENTS = 4
"""The default of streaming DiLoCo, whose H is so many times its period."""
FIRST_POWER_SGD_STEP = 2  # the earliest that torch takes with error feedback


def why_no_peer(algorithm):
    """Why a peer cannot run here; empty if it can."""
    if algorithm == "decent_dp" and importlib.util.find_spec("decent_dp") is None:
        return "Decent-DP is not installed (pip install decent-dp)"
    if algorithm == "decent_dp" and bf.size() < 2:
        return "needs at least 2 ranks"
    return ""


class Stepper:
    """model: what gradients come from; optimizer: what steps it, with groups whose rates are set
    before each step."""

    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer

    def set_rate(self, rate):
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    def step(self, loss_of, inputs, targets):
        self.optimizer.zero_grad()
        loss_of(self.model(inputs), targets).backward()
        self.optimizer.step()

    def finish(self):
        """Ends what is in flight."""
        getattr(self.optimizer, "finish", lambda: None)()


class DecentDpStepper(Stepper):
    """Decent-DP makes its steps in hooks of the backward pass, by optimizers of its own."""

    def __init__(self, model, task, local_size):
        from decent_dp.ddp import DecentralizedDataParallel  # a peer that need not be installed
        self.rate = 0.0
        is_power = bf.size() & (bf.size() - 1) == 0
        wrapped = DecentralizedDataParallel(
            model, lambda named: task.optimizer([parameter for _, parameter in named], self.rate),
            topology="one-peer-exp" if is_power else "complete", _local_world_size=local_size)
        super().__init__(wrapped, StepsInBackward(wrapped))

    def set_rate(self, rate):
        self.rate = rate
        for optimizer in self.model._optims:  # made in the first backward pass
            for group in optimizer.param_groups:
                group["lr"] = rate


def make_stepper(way, model, task, args):
    """Collective."""
    if way.algorithm in PEERS:
        return PEER_STEPPERS[way.algorithm](way, model, task, args)
    row = row_named(way.algorithm)
    has_momentum = row.reads("momentum")
    optimizer = task.optimizer(model.parameters(), args.lr, has_momentum)
    period = way.local_steps
    if row.reads("fragments"):
        period = max(1, period // FRAGMENTS)
    return Stepper(model, bf.DecentralizedOptimizer(
        optimizer, model, row.name, schedule=SCHEDULES.get(way.graph, way.graph),
        num_steps_per_communication=period, compression=way.code or None,
        numbers=way.numbers(), momentum=MOMENTUM if has_momentum else 0.0))


def _ddp(_, model, task, args):
    wrapped = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True,
                                                        broadcast_buffers=False)
    return Stepper(wrapped, task.optimizer(model.parameters(), args.lr))


def _ddp_bf16(way, model, task, args):
    made = _ddp(way, model, task, args)
    made.model.register_comm_hook(None, default_hooks.bf16_compress_hook)
    return made


def _ddp_powersgd(way, model, task, args):
    made = _ddp(way, model, task, args)
    state = powerSGD_hook.PowerSGDState(
        None, start_powerSGD_iter=max(FIRST_POWER_SGD_STEP, args.warmup_steps))
    made.model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    return made


def _post_local_sgd(way, model, task, args):
    made = _ddp(way, model, task, args)
    state = post_localSGD_hook.PostLocalSGDState(None, None, args.warmup_steps,
                                                 post_local_gradient_allreduce=False)
    made.model.register_comm_hook(state, post_localSGD_hook.post_localSGD_hook)
    averager = PeriodicModelAverager(way.local_steps, warmup_steps=args.warmup_steps)
    return Stepper(made.model, PostLocalSGDOptimizer(made.optimizer, averager))


def _decent_dp(_, model, task, args):
    return DecentDpStepper(model, task, bf.local_size() if args.hosts > 1 else 1)


PEER_STEPPERS = {"ddp": _ddp, "ddp_bf16": _ddp_bf16, "ddp_powersgd": _ddp_powersgd,
                 "post_local_sgd": _post_local_sgd, "decent_dp": _decent_dp}
