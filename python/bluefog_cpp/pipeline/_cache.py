"""Outputs of frozen layers that are computed once, by the C++ core's cache."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from bluefog_cpp._extension import core
from bluefog_cpp.errors import InvalidArgument


@dataclass(frozen=True)
class CacheOptions:
    """Room for the outputs of frozen layers: in memory that the ranks of a host share, then in a
    file that they share, whose name is taken away at once. The same on all ranks, but for the
    folder."""

    samples: int
    """Numbers of samples are below it."""
    memory_bytes: int
    """For rows, on each host."""
    disk_bytes: int = 0
    """The most that the file may take, on each host."""
    folder: str = ""
    """For the file."""


class OutputCache:
    """The cache of a pipeline, on every rank: what depth it holds. Collective in all its calls."""

    def __init__(self, options: CacheOptions) -> None:
        from bluefog_cpp.torch import _process, _runtime

        if not _runtime.is_initialized():
            _process.init()  # over torch.distributed's ranks
        self.rows = core.ActivationCache(_runtime.current().context.duplicate(), options.samples,
                                         options.memory_bytes, options.disk_bytes, options.folder)
        self.samples = options.samples
        self.depth = 0
        self.older_depth = 0

    def take_depth(self, depth: int) -> None:
        """From now on it holds outputs of so many layers; what it has is of an earlier depth."""
        if depth != self.depth:
            self.rows.begin_generation()
            self.older_depth, self.depth = self.depth, depth


def _stamp(digest: str, rows: torch.Tensor) -> int:
    """By what rows are looked up: such layers computed them, and they have such a form."""
    return core.fingerprint(f"{digest} {rows.dtype} {list(rows.shape[1:])}".encode())


class FrozenOutputs:
    """The outputs of a first stage's frozen layers, from a cache where they are there.

    Rows that were stored at an earlier depth spare the layers before it: they are computed on from
    there, and stored at this depth.
    """

    def __init__(self, cache: OutputCache, layers: Sequence[nn.Module]) -> None:
        self._cache = cache
        self._layers = layers
        self._older_depth = cache.older_depth if cache.older_depth < cache.depth else 0
        self._samples: Sequence[int] = ()
        self._digest = self._older_digest = ""
        self._form: torch.Tensor | None = None  # rows of none, as they come out
        self._older_form: torch.Tensor | None = None
        self.found_rows = 0
        self.resumed_rows = 0

    def begin_step(self, samples: Sequence[int]) -> None:
        """The numbers of the rows that come, micro-batch by micro-batch. Looks at the layers: what
        was stored with other values counts no more."""
        self._samples = samples
        self.found_rows = self.resumed_rows = 0
        if not samples:
            return
        digests: list[str] = []
        for depth, layer in enumerate(self._layers):
            if depth == self._older_depth:
                self._older_digest = f"{depth} {' '.join(digests)}"
            digests += [str(core.tensor_digest(tensor.detach().contiguous()))
                        for tensor in (*layer.parameters(), *layer.buffers())]
        self._digest = f"{len(self._layers)} {' '.join(digests)}"

    def end_step(self) -> None:
        """Rows that come from now on have no numbers."""
        self._samples = ()

    @property
    def is_asked(self) -> bool:
        """Whether the rows that come have numbers."""
        return bool(self._samples)

    def of(self, inputs: torch.Tensor) -> torch.Tensor:
        """The outputs of the next rows."""
        samples, self._samples = self._samples[:len(inputs)], self._samples[len(inputs):]
        if self._form is None:
            return self._first_outputs(inputs, samples)
        outputs = torch.empty(len(inputs), *self._form.shape[1:], dtype=self._form.dtype)
        missing = self._cache.rows.find(samples, _stamp(self._digest, self._form), outputs, False)
        self.found_rows += len(samples) - len(missing)
        missing = self._resume(outputs, missing, samples)
        if not missing:
            return outputs
        fresh = self._computed(inputs[missing], 0)
        if fresh.dtype != self._form.dtype or fresh.shape[1:] != self._form.shape[1:]:
            # Rows of another form are in no cache, so that all of them are missing.
            return fresh if len(missing) == len(samples) else self._computed(inputs, 0)
        self._store([samples[row] for row in missing], fresh)
        outputs[missing] = fresh
        return outputs

    def _computed(self, values: torch.Tensor, begin: int, end: int | None = None) -> torch.Tensor:
        rows = len(values)
        for layer in self._layers[begin:end]:
            values = layer.eval()(values)
        if not values.dim() or len(values) != rows:
            raise InvalidArgument(f"ElasticPipeline: expected frozen layers with an output of "
                                  f"{rows} rows, found {list(values.shape)}")
        return values.contiguous()

    def _first_outputs(self, inputs: torch.Tensor, samples: Sequence[int]) -> torch.Tensor:
        """They show the form that rows have, at the earlier depth too."""
        older = self._computed(inputs, 0, self._older_depth) if self._older_depth else inputs
        older_form, older_bytes = older.detach()[:0].clone(), older.nbytes
        outputs = self._computed(older, self._older_depth)
        self._form = outputs[:0].clone()
        if self._older_depth and older_bytes == outputs.nbytes:
            self._older_form = older_form
        self._cache.rows.set_row_bytes(outputs.nbytes // len(samples))
        self._store(samples, outputs)
        return outputs

    def _resume(self, outputs: torch.Tensor, missing: list[int],
                samples: Sequence[int]) -> list[int]:
        """Puts the outputs of rows that an earlier depth has into `outputs`; the rows that are
        left."""
        if self._older_form is None or not missing:
            return missing
        older = torch.empty(len(missing), *self._older_form.shape[1:],
                            dtype=self._older_form.dtype)
        stamp = _stamp(self._older_digest, self._older_form)
        lacking = set(self._cache.rows.find([samples[row] for row in missing], stamp, older, True))
        found = [place for place in range(len(missing)) if place not in lacking]
        if not found:
            return missing
        resumed = self._computed(older[found], self._older_depth)
        rows = [missing[place] for place in found]
        self._store([samples[row] for row in rows], resumed)
        outputs[rows] = resumed
        self.resumed_rows += len(rows)
        return [missing[place] for place in sorted(lacking)]

    def _store(self, samples: Sequence[int], rows: torch.Tensor) -> None:
        self._cache.rows.store(list(samples), _stamp(self._digest, rows), rows)
