"""Compute that is slept: a model whose passes take the time that those of a real one were measured
to take, and leave the cores to others. Its parameters, gradients and local steps are real.
"""

import statistics
import time

import torch

LEAST_PAUSE = 2e-3  # seconds: layers whose gradients come closer together count as one
GRADIENT = 1e-3


def grouped(ready, total):
    """(pause, places) from what `ready` says of a backward pass of `total` seconds: (seconds since
    its begin, place of the parameter) of each gradient, by rising time. The last pause goes to the
    end.
    """
    groups, places, begun = [], [], 0.0
    total = max([total] + [seconds for seconds, _ in ready])
    for seconds, place in ready:
        places.append(place)
        if seconds - begun >= LEAST_PAUSE:
            groups.append((seconds - begun, places))
            places, begun = [], seconds
    if places or not groups:
        groups.append((total - begun, places))
    else:
        groups[-1] = (groups[-1][0] + total - begun, groups[-1][1])
    return groups


class Layer(torch.autograd.Function):
    """Parameters whose gradients come at the same time."""

    @staticmethod
    def forward(ctx, value, pause, *parameters):
        ctx.pause, ctx.parameters = pause, parameters
        return value.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(ctx.pause)
        return gradient, None, *(torch.full_like(p, GRADIENT) for p in ctx.parameters)


class SleepingModel(torch.nn.Module):
    def __init__(self, model, profile):
        super().__init__()
        self.model = model
        self.forward_sec = profile["forward_sec"]
        parameters = list(model.parameters())
        self.layers = [(pause, [parameters[place] for place in places]) for pause, places in
                       grouped(profile["ready"], profile["backward_sec"])]

    def forward(self, images):
        time.sleep(self.forward_sec)
        value = images.new_zeros(())
        for pause, parameters in reversed(self.layers):
            value = Layer.apply(value, pause, *parameters)
        return value


def measure(model, forward, finish, steps):
    """Figures that `SleepingModel` needs: medians over `steps` steps, each of `forward`,
    which gives the loss, its backward pass, and `finish`, which is not counted.
    """
    parameters = list(model.parameters())
    came = {place: [] for place in range(len(parameters))}
    begun = [0.0]
    hooks = [parameter.register_post_accumulate_grad_hook(
        lambda _, place=place: came[place].append(time.perf_counter() - begun[0]))
        for place, parameter in enumerate(parameters)]
    forwards, backwards = [], []
    for _ in range(steps):
        start = time.perf_counter()
        loss = forward()
        begun[0] = time.perf_counter()
        forwards.append(begun[0] - start)
        loss.backward()
        backwards.append(time.perf_counter() - begun[0])
        finish()
    for hook in hooks:
        hook.remove()
    ready = sorted((statistics.median(times), place) for place, times in came.items() if times)
    return {"forward_sec": statistics.median(forwards),
            "backward_sec": statistics.median(backwards),
            "ready": ready}
