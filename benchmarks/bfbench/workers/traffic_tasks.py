"""The models and data of bfbench traffic: next bytes of a text, or classes of images."""

from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional

from bfbench import images
from bfbench.shards import rank_shares
from bfbench.traffic import texts
from bfbench.training import MOMENTUM

BYTES = 256
HIDDEN = 64
MOST_TEST_WINDOWS = 512
MOST_TEST_IMAGES = 2000
TEST_BATCH = 64


class ByteTransformer(nn.Module):
    """Decoder-only: scores of each byte that may come next, at each place of a window."""

    def __init__(self, width, layers, heads, length):
        super().__init__()
        self.bytes = nn.Embedding(BYTES, width)
        self.places = nn.Embedding(length, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, activation="gelu",
                                           batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width),
                                            enable_nested_tensor=False)
        self.scores = nn.Linear(width, BYTES, bias=False)
        for each in (self.bytes, self.places):
            nn.init.normal_(each.weight, std=0.02)
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, windows):
        x = self.bytes(windows) + self.places.weight[:windows.shape[1]]
        return self.scores(self.blocks(x, mask=self.mask, is_causal=True))


class Judgement(NamedTuple):
    loss: float
    accuracy: float


class LanguageTask:
    """The cross-entropy of the next byte, AdamW inside."""

    def __init__(self, args):
        self._text, self._args = texts.load(args.data), args
        self.name, self.labels = self._text.name, self._text.train.labels

    def model(self):
        args = self._args
        return ByteTransformer(args.width, args.layers, args.heads, args.length)

    @staticmethod
    def optimizer(parameters, lr, momentum_is_elsewhere=False):
        return torch.optim.AdamW(parameters, lr, betas=(0.9, 0.98), weight_decay=0.1)

    def batch(self, own, generator):
        """(windows, bytes that follow) of the pieces `own`, drawn by the generator."""
        length = self._args.length
        pieces = own[torch.randint(len(own), (self._args.batch_size,), generator=generator)]
        begins = torch.randint(texts.PIECE_BYTES - length, (len(pieces), 1), generator=generator)
        windows = self._text.train.values[pieces].gather(1, begins + torch.arange(length + 1))
        return windows[:, :-1].long(), windows[:, 1:].long()

    @staticmethod
    def loss(scores, targets):
        return functional.cross_entropy(scores.flatten(0, -2), targets.flatten())

    def test_batches(self):
        length = self._args.length
        count = (texts.PIECE_BYTES - 1) // length
        begins = (torch.arange(count) * length)[:, None] + torch.arange(length + 1)
        windows = self._text.test.values[:, begins].flatten(0, 1)[:MOST_TEST_WINDOWS].long()
        for some in windows.split(TEST_BATCH):
            yield some[:, :-1], some[:, 1:]


class ImageTask:
    """The cross-entropy of an image's class by a small network, SGD with momentum inside."""

    def __init__(self, args):
        self._set, self._args = images.load(args.data), args
        self.name, self.labels = self._set.name, self._set.train.labels

    def model(self):
        return nn.Sequential(nn.Flatten(), nn.Linear(3 * images.SIDE ** 2, HIDDEN), nn.ReLU(),
                             nn.Linear(HIDDEN, self._set.classes))

    @staticmethod
    def optimizer(parameters, lr, momentum_is_elsewhere=False):
        return torch.optim.SGD(parameters, lr, momentum=0.0 if momentum_is_elsewhere else MOMENTUM)

    def batch(self, own, generator):
        chosen = torch.randint(len(own), (self._args.batch_size,), generator=generator)
        return self._set.train.batch(own[chosen])

    @staticmethod
    def loss(scores, targets):
        return functional.cross_entropy(scores, targets)

    def test_batches(self):
        for begin in range(0, min(len(self._set.test.labels), MOST_TEST_IMAGES), TEST_BATCH):
            yield self._set.test.batch(slice(begin, begin + TEST_BATCH))


TASKS = {"language": LanguageTask, "images": ImageTask}


def share_of(task, ranks, rank, how, seed):
    """The indices of a rank's samples; those of a class are the pieces of a file."""
    return torch.from_numpy(rank_shares(task.labels, ranks, how, seed)[rank])


@torch.no_grad()
def judge(model, task):
    """What a model does on the text or the images that are held back."""
    totals = torch.zeros(3, dtype=torch.float64)
    for inputs, targets in task.test_batches():
        scores = model(inputs)
        totals += torch.tensor([targets.numel(), task.loss(scores, targets) * targets.numel(),
                                (scores.argmax(-1) == targets).sum()], dtype=torch.float64)
    count, loss, right = totals.tolist()
    return Judgement(loss / count, right / count)
