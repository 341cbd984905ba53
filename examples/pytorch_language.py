"""Trains a small transformer to foretell the next byte of a text, each rank on its share of it.

    bfrun -np 4 python examples/pytorch_language.py
    bfrun -np 4 python examples/pytorch_language.py --algorithm diloco --local-steps 20
    bfrun -np 4 python examples/pytorch_language.py --algorithm gossip_diloco --local-steps 20 \\
        --schedule ring --compression int4
"""

import argparse
import math
import pathlib
import time

import torch
from torch.nn import functional

import bluefog_cpp
import bluefog_cpp.torch as bf
from helpers import checkpoints, devices, text
from helpers.counts import at_least, between, rate
from helpers.language_model import BYTES, LanguageModel
from helpers.network import Traffic


def number_option(word):
    """A type for argparse: NAME=NUMBER."""
    name, _, value = word.partition("=")
    try:
        return name.replace("-", "_"), float(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected NAME=NUMBER, found {word}") from None


# Options of rows that are arguments of their own, which refuse what they cannot be.
ARGUMENTS = {
    "global_period_rounds": lambda number: int(number) if number.is_integer() else number,
    "momentum": lambda number: number,
    "step_in_backward": lambda number: bool(number) if number in (0, 1) else number,
}


def options_of(pairs):
    """(arguments, numbers) of DecentralizedOptimizer."""
    numbers = dict(pairs)
    own = {name: value_of(numbers.pop(name)) for name, value_of in ARGUMENTS.items()
           if name in numbers}
    return own, numbers


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=pathlib.Path, nargs="+", default=[text.USUAL],
                        metavar="FILE", help="texts, or folders of them")
    parser.add_argument("--steps", type=at_least(1), default=300)
    parser.add_argument("--batch-size", type=at_least(1), default=16, help="windows a step")
    parser.add_argument("--length", type=at_least(1), default=64, help="bytes of a window")
    parser.add_argument("--width", type=at_least(1), default=64)
    parser.add_argument("--layers", type=at_least(1), default=2)
    parser.add_argument("--heads", type=at_least(1), default=4, help="they divide the width")
    parser.add_argument("--lr", type=rate, default=3e-3, help="AdamW's, after the warm-up")
    parser.add_argument("--warmup-steps", type=at_least(0), default=20,
                        help="in which the rate rises; afterwards it falls by a cosine to a tenth")
    parser.add_argument("--weight-decay", type=between(0), default=0.1)
    parser.add_argument("--clip", type=rate, default=1.0, help="largest norm of gradients")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32",
                        help="of products of matrices; parameters are float32")
    parser.add_argument("--algorithm", default="adapt_then_combine",
                        help="one that `python -m bluefog_cpp.algorithms` lists")
    parser.add_argument("--schedule", help="a graph or schedule that `bftopo list` names")
    parser.add_argument("--local-steps", type=at_least(1), default=1, metavar="H",
                        help="a step in H communicates")
    parser.add_argument("--compression", help="a code, for algorithms that take one")
    parser.add_argument("--option", type=number_option, action="append", default=[],
                        metavar="NAME=NUMBER", help="an option of the algorithm's row")
    parser.add_argument("--report-every", type=at_least(1), default=50, metavar="STEPS",
                        help="reports, and checkpoints")
    parser.add_argument("--seed", type=int, default=42)
    checkpoints.add_arguments(parser)
    devices.add_argument(parser)
    arguments = parser.parse_args()
    checkpoints.check(parser, arguments)
    if arguments.width % arguments.heads:
        parser.error(f"--heads: expected a divisor of the width, {arguments.width}, found "
                     f"{arguments.heads}")
    return arguments


def learning_rate(arguments, step):
    if step < arguments.warmup_steps:
        return arguments.lr * (step + 1) / arguments.warmup_steps
    way = (step - arguments.warmup_steps) / max(1, arguments.steps - arguments.warmup_steps)
    return arguments.lr * (0.55 + 0.45 * math.cos(math.pi * way))


def loss_of(arguments, device, model, windows, following):
    windows, following = windows.to(device), following.to(device)
    with torch.autocast(device.type, torch.bfloat16, enabled=arguments.dtype == "bfloat16"):
        scores = model(windows)
    return functional.cross_entropy(scores.float().view(-1, BYTES), following.reshape(-1))


@torch.no_grad()
def evaluate(arguments, device, model, data):
    """Collective: the mean over ranks of what their own models lose on the text held back."""
    losses = [loss_of(arguments, device, model, *batch) for batch in data.test_batches(64)]
    return bf.allreduce(torch.stack(losses).mean().cpu(), name="test loss").item()


@torch.no_grad()
def consensus_distance(model):
    """Collective: sqrt of the mean over ranks of |x_i - mean x|^2."""
    own = torch.cat([each.reshape(-1) for each in model.parameters()]).double().cpu()
    squares = (own - bf.allreduce(own, name="mean model")).square().sum()
    return bf.allreduce(squares, name="distance").sqrt().item()


def wrap(arguments, model):
    plain = torch.optim.AdamW(model.parameters(), lr=arguments.lr, betas=(0.9, 0.98),
                              weight_decay=arguments.weight_decay)
    own, numbers = options_of(arguments.option)
    try:
        return bf.DecentralizedOptimizer(
            plain, model, arguments.algorithm, schedule=arguments.schedule,
            num_steps_per_communication=arguments.local_steps, compression=arguments.compression,
            numbers=numbers, **own)
    except (bluefog_cpp.InvalidArgument, bluefog_cpp.UnsupportedError) as error:
        raise SystemExit(str(error)) from None


class Report:
    """A line of rank 0 every so many steps."""

    def __init__(self, arguments):
        self._arguments, self._traffic = arguments, Traffic()
        self._loss, self._steps, self._start = 0.0, 0, time.monotonic()

    def note(self, loss):
        self._loss += loss
        self._steps += 1

    def say(self, step, device, model, data):
        """Collective."""
        arguments = self._arguments
        devices.synchronize(device)
        seconds = time.monotonic() - self._start
        sent = self._traffic.since_last()
        training = bf.allreduce(torch.tensor(self._loss / self._steps), name="loss").item()
        loss, distance = evaluate(arguments, device, model, data), consensus_distance(model)
        tokens = self._steps * arguments.batch_size * arguments.length * bf.size() / seconds
        link = "" if sent is None else f", {sent / self._steps / 1e6:.3f} MB a step between hosts"
        if bf.rank() == 0:
            print(f"Step {step}/{arguments.steps}: training loss {training:.3f}, test loss "
                  f"{loss:.3f} ({loss / math.log(2):.3f} bits a byte), consensus distance "
                  f"{distance:.2e}, {tokens:.0f} tokens/s{link}", flush=True)
        self._traffic.since_last()
        self._loss, self._steps, self._start = 0.0, 0, time.monotonic()


def main():
    arguments = parse_arguments()
    bf.init()
    device = devices.choose(arguments)
    torch.manual_seed(arguments.seed)
    data = text.Text(text.read(arguments.data), arguments.length, bf.rank(), bf.size())
    model = LanguageModel(arguments.width, arguments.layers, arguments.heads,
                          arguments.length).to(device)
    bf.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = wrap(arguments, model)
    saved = checkpoints.Checkpoints(arguments, model, optimizer)
    done = saved.load() if arguments.resume else 0
    if bf.rank() == 0:
        count = sum(each.numel() for each in model.parameters())
        print(f"{count} parameters, {bf.size()} ranks, {arguments.algorithm}, "
              f"a step in {arguments.local_steps} communicates", flush=True)
    report = Report(arguments)
    for step in range(done, arguments.steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(arguments, step)
        # Of the step alone, so that a run that resumes has the same windows.
        draws = torch.Generator().manual_seed(
            (arguments.seed * 1_000_003 + step) * bf.size() + bf.rank())
        optimizer.zero_grad()
        loss = loss_of(arguments, device, model, *data.batch(arguments.batch_size, draws))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), arguments.clip)
        optimizer.step()
        report.note(loss.item())
        if (step + 1) % arguments.report_every == 0 or step + 1 == arguments.steps:
            optimizer.finish()
            saved.save(step + 1)
            report.say(step + 1, device, model, data)


if __name__ == "__main__":
    main()
