"""Local optimizers of C++ beside those of Python: optimizer_values_test.py PROGRAM

AccumAdam and AccumAdamW beside `bf.AccumAdam` and `bf.AccumAdamW`, Muon beside torch.optim.Muon.
"""

import itertools
import json
import subprocess
import sys

import torch

import bluefog_cpp.torch as bf

SHAPES = ((3, 5), (6, 2), (4, 4))
STEPS = 9
# The same library makes the same sums; a unit in the last place is for other orders of products.
TOLERANCES = {"float64": 1e-14, "float32": 1e-6}
RATE = 0.03
# Products of bfloat16 may round the other way in memory that lies otherwise.
TOLERANCE_OF_MUON = 0.1 * RATE


def wave(shape, phase, dtype):
    count = torch.Size(shape).numel()
    values = torch.arange(count, dtype=torch.float64) * 0.37 + phase
    return values.sin().view(shape).to(dtype)


def make(words, parameters):
    shared = {"lr": words["lr"], "weight_decay": words["weight_decay"]}
    if words["optimizer"] == "Muon":
        return torch.optim.Muon(
            parameters, **shared, momentum=words["momentum"], nesterov=words["nesterov"],
            adjust_lr_fn="match_rms_adamw" if words["matches_adamw"] else "original")
    return getattr(bf, words["optimizer"])(parameters, **shared, betas=(0.9, 0.98),
                                           accumulation=words["accumulation"])


def values_of_python(words):
    dtype = getattr(torch, words["dtype"])
    parameters = [torch.nn.Parameter(wave(shape, p, dtype)) for p, shape in enumerate(SHAPES)]
    optimizer = make(words, parameters)
    for step in range(words["steps"]):
        for p, parameter in enumerate(parameters):
            parameter.grad = wave(parameter.shape, 1.3 * p + 0.71 * step, dtype)
        optimizer.step()
        yield torch.cat([parameter.detach().double().flatten() for parameter in parameters])


def cases():
    shared = {"steps": STEPS, "lr": RATE, "weight_decay": 0.1}
    for dtype in TOLERANCES:
        for name, accumulation in itertools.product(("AccumAdam", "AccumAdamW"), (1, 4)):
            yield {**shared, "optimizer": name, "accumulation": accumulation, "dtype": dtype}
        for nesterov, matches_adamw in itertools.product((False, True), (False, True)):
            yield {**shared, "optimizer": "Muon", "momentum": 0.9, "nesterov": nesterov,
                   "matches_adamw": matches_adamw, "dtype": dtype}


def main(program):
    wanted = list(cases())
    done = subprocess.run([program, json.dumps(wanted)], capture_output=True, text=True, check=True)
    lines = [torch.tensor(json.loads(line), dtype=torch.float64)
             for line in done.stdout.splitlines()]
    assert len(lines) == STEPS * len(wanted)
    for place, words in enumerate(wanted):
        found = lines[STEPS * place:STEPS * (place + 1)]
        tolerance = TOLERANCES[words["dtype"]]
        if words["optimizer"] == "Muon":
            tolerance = max(tolerance, TOLERANCE_OF_MUON)
        for step, (own, other) in enumerate(zip(found, values_of_python(words), strict=True)):
            torch.testing.assert_close(own, other, rtol=0, atol=tolerance,
                                       msg=lambda text, step=step, words=words:
                                       f"{words}, step {step}: {text}")
    print(f"{len(wanted)} cases of {STEPS} steps as Python has them")


if __name__ == "__main__":
    main(sys.argv[1])
