"""One rank of the training that chaos_test.py disturbs: a small network on Fashion-MNIST. Whatever
happens to the process, its diary has it: a file with a line of JSON for each event."""

import argparse
import faulthandler
import json
import math
import os
import pathlib
import signal
import sys
import time

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
PAUSE = 0.1
"""Seconds between steps while the training waits for what is to happen to it."""


class Diary:
    """The file of this process, which is whole up to its last line whenever the process ends."""

    def __init__(self, folder):
        path = folder / f"{os.environ['RANK']}-{os.getpid()}.jsonl"
        self._file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        # The watchdog asks by this signal where the process stands.
        self._stack = path.with_suffix(".stack").open("w")
        faulthandler.register(signal.SIGUSR2, self._stack, all_threads=False)

    def note(self, what, **values):
        line = {"what": what, "t": time.monotonic(), **values}
        os.write(self._file, f"{json.dumps(line)}\n".encode())


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--algorithm")
    parser.add_argument("--seconds", type=float, help="about how long, where --epochs is not given")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--pause-from", type=int, default=math.inf,
                        help="from this epoch on steps pause until a file `quiet` is in the folder")
    parser.add_argument("--samples", type=int, help="of the data set, for short runs")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


class Training:
    """The model of a rank, its optimizer and its share of the data."""

    def __init__(self, arguments, diary):
        import torch

        import bluefog_cpp.torch as bf

        sys.path.insert(0, str(EXAMPLES))
        from helpers import idx
        from helpers.networks import SmallNet

        self.bf, self.torch, self.arguments, self.diary = bf, torch, arguments, diary
        bf.init()
        torch.manual_seed(arguments.seed)
        data, self.test_data = (
            torch.utils.data.TensorDataset(*idx.load(idx.DEFAULT_DATA, part))
            for part in ("train", "t10k"))
        if arguments.samples:
            data = torch.utils.data.Subset(data, range(arguments.samples))
        self.model = SmallNet(28)
        bf.broadcast_parameters(self.model.state_dict(), 0)
        plain = torch.optim.SGD(self.model.parameters(), lr=arguments.lr, momentum=0.9)
        self.optimizer = (
            bf.DecentralizedOptimizer(plain, self.model, arguments.algorithm)
            if arguments.algorithm else bf.DistributedAdaptThenCombineOptimizer(plain, self.model))
        self.sampler = bf.ElasticSampler(data, seed=arguments.seed)
        self.loader = torch.utils.data.DataLoader(data, batch_size=arguments.batch_size,
                                                  sampler=self.sampler)
        bf.on_shrink(lambda: self.note_members("moved"))

    def note_members(self, what):
        members = self.bf.membership()
        self.diary.note(what, group=members.epoch, ranks=members.ranks,
                        member=members.ranks[self.bf.rank()], lost=members.lost)

    def step(self, images, labels, epoch):
        passes_over = self.optimizer.passes_over
        self.optimizer.zero_grad()
        self.torch.nn.functional.cross_entropy(self.model(images), labels).backward()
        self.optimizer.step()
        self.diary.note("step", step=self.optimizer._distributed.core.step_count, epoch=epoch,
                        group=self.bf.membership().epoch, size=self.bf.size(),
                        samples=0 if passes_over else len(labels))

    def epoch(self, epoch, epochs):
        for group in self.optimizer.param_groups:
            group["lr"] = self.arguments.lr * (1 - epoch / epochs)
        self.sampler.set_epoch(epoch)
        quiet = self.arguments.folder / "quiet"
        for images, labels in self.loader:
            self.step(images, labels, epoch)
            if epoch >= self.arguments.pause_from and not quiet.exists():
                time.sleep(PAUSE)

    def run(self):
        epochs = self.arguments.epochs or math.inf
        begin, first = time.monotonic(), self.sampler.epoch
        epoch = first
        while epoch < epochs:
            self.epoch(epoch, epochs)
            epoch += 1
            if epochs == math.inf:  # as many as the first one says, on all ranks
                took = self.torch.tensor([time.monotonic() - begin])
                epochs = max(3, round(self.arguments.seconds / self.bf.allreduce(took).item()))
        self.optimizer.finish()
        from helpers import evaluation

        accuracy, _ = evaluation.evaluate(self.model, self.test_data, 1000)
        self.diary.note("done", accuracy=accuracy, epochs=epochs)


def main():
    arguments = parse_arguments()
    diary = Diary(arguments.folder)
    diary.note("began")
    training = Training(arguments, diary)
    diary.note("ready")
    training.bf.enter()
    training.note_members("entered")
    training.run()


if __name__ == "__main__":
    main()
