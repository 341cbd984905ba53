"""Algorithms that a program brings along, as classes.

    @bf.register_algorithm
    class Mine(bf.Algorithm):
        name = "mine"

        def step(self, round, buckets):
            for bucket in buckets:
                self.local_step(bucket)
                self.average(bucket)

    optimizer = bf.DecentralizedOptimizer(sgd, model, "mine")

docs/your_own_in_python.md has a worked example.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import networkx as nx
import torch

from bluefog_cpp import _arguments
from bluefog_cpp._extension import core
from bluefog_cpp.errors import ArgumentTypeError, InvalidArgument, StateError
from bluefog_cpp.torch._own.carried import CarriedTensors

Number: TypeAlias = bool | int | float

_STOCHASTIC = {"any": core.Stochastic.any, "averages": core.Stochastic.averages,
               "rows": core.Stochastic.rows, "columns": core.Stochastic.columns,
               "rows and columns": core.Stochastic.rows_and_columns}


@dataclasses.dataclass(frozen=True)
class Mixing:
    """The demands of an algorithm on the mixing matrices W of its rounds. Others are refused by
    name on every rank, when an optimizer is made."""

    stochastic: str = "averages"
    """The sums of W that are 1: "rows", "columns" or "rows and columns", with weights of 0 or more;
    "averages", rows with weights of any sign (`row_sums` may ask for other sums); "any"."""
    is_symmetric: bool = False
    """W(i, j) = W(j, i)."""
    is_fixed: bool = False
    """The same W in every round."""
    eigenvalues_above: float | None = None
    """A bound that the eigenvalues of a symmetric W lie above."""

    def __post_init__(self) -> None:
        _arguments.checked("Mixing", "stochastic", _arguments.one_of(*_STOCHASTIC),
                           self.stochastic)
        for name in ("is_symmetric", "is_fixed"):
            _arguments.checked("Mixing", name, _arguments.switch, getattr(self, name))
        _arguments.checked("Mixing", "eigenvalues_above", _arguments.weight,
                           self.eigenvalues_above)

    @property
    def stochastic_of_core(self) -> core.Stochastic:
        """For the core."""
        return _STOCHASTIC[self.stochastic]


@dataclasses.dataclass(frozen=True)
class Option:
    """A number that an algorithm reads: `numbers={"rho": 0.5}` of `DecentralizedOptimizer`. Whole
    numbers and switches are those whose default is one."""

    default: Number
    meaning: str
    """A text for tables."""
    least: float = -math.inf
    below: float = math.inf
    """It is from `least` to below this, as its default is."""


@dataclasses.dataclass(frozen=True)
class Round:
    """A step that communicates."""

    index: int
    """Rounds before this one."""
    self_weight: float
    """W(i, i) of this rank i; 1 where the algorithm has no neighbours."""
    src_weights: Mapping[int, float]
    """W(i, j) by rank j that this one hears."""
    dst_ranks: Sequence[int]
    """Ranks that hear this one."""


@dataclasses.dataclass(frozen=True, eq=False)
class Bucket:
    """Parameters in one flat piece of memory."""

    index: int
    """Its place among all of them, the same on all ranks."""
    name: str
    """For messages."""
    values: torch.Tensor
    """All parameters of the bucket: flat, with zeros between them. Written in place."""
    state: CarriedTensors
    """The tensors that the algorithm carries, by the names of `Algorithm.state`: flat, like
    `values`. Written in place; what is assigned is copied into them."""
    parameters: Mapping[str, torch.nn.Parameter]
    """The model's own, by name; their memory is `values`."""
    _places: Mapping[str, tuple[list[int], list[int], int]]

    def parts(self, flat: torch.Tensor) -> dict[str, torch.Tensor]:
        """The parts of a tensor like `values` that stand for each parameter, in its shape and in
        the same memory."""
        if flat.shape != self.values.shape:
            raise InvalidArgument(f"{_arguments.place('parts')}: flat: expected a tensor of "
                                  f"{list(self.values.shape)}, found {_arguments.shown(flat)}")
        return {name: flat.as_strided(sizes, strides, flat.storage_offset() + offset)
                for name, (sizes, strides, offset) in self._places.items()}

    def gradient(self) -> torch.Tensor:
        """A copy of the parameters' gradients, flat, like `values`; zeros where there is none."""
        flat = torch.zeros_like(self.values)
        for name, part in self.parts(flat).items():
            gradient = self.parameters[name].grad
            if gradient is not None:
                part.copy_(gradient.to_dense() if gradient.is_sparse else gradient)
        return flat


class Average:
    """An average that is under way."""

    def __init__(self, of_round: core.AlgorithmRound, call: int, values: torch.Tensor):
        self._round, self._call, self._values = of_round, call, values

    def wait(self) -> torch.Tensor:
        """The tensor that is averaged, once it is. At the end of `step` all are waited for."""
        self._round.wait(self._call)
        return self._values


class Algorithm:
    """An algorithm: what ranks exchange in a round, and what the result does to the parameters.
    Subclasses say it in `step`, and the rest in attributes; `register_algorithm` makes them known
    by name.

    Each optimizer has an object of its own, and so has each group of ranks that it goes on with
    where some are lost or join. It is used by the thread that calls `optimizer.step()`.
    """

    name: ClassVar[str] = ""
    """Lower-case letters, digits and underscores."""
    aliases: ClassVar[Sequence[str]] = ()
    equation: ClassVar[str] = ""
    """For tables, like `source` (the paper) and `overlap` (what hides the communication). Their
    description is the first line of the class's docstring."""
    source: ClassVar[str] = ""
    overlap: ClassVar[str] = ""
    mixing: ClassVar[Mixing] = Mixing()
    options: ClassVar[Any] = {}
    """A class has `Option`s by name, an object of it numbers by name. A class has those of its
    bases too, and so it is with `state` and `scalars`."""
    state: ClassVar[Sequence[str]] = ()
    """Names of what is carried from step to step: a flat tensor for each bucket, zeros at first
    (`Bucket.state`). Checkpoints and `state_dict` hold it."""
    scalars: ClassVar[Any] = {}
    """A class has first values by name, an object of it tensors of one float64, which checkpoints
    hold too."""
    averages_with_neighbors: ClassVar[bool] = True
    """Whether rounds use W."""
    needs_every_step: ClassVar[bool] = False
    """Whether a step goes by what the one before exchanged: `num_steps_per_communication` is 1."""
    allows_reevaluation: ClassVar[bool] = False
    """Whether LBFGS and its like may be wrapped."""
    bound_to_values: ClassVar[str] = ""
    """The part that belongs to the parameters which the last step left ("its corrections"): others
    that the caller sets are refused until `restart`."""
    full_precision_because: ClassVar[str] = ""
    """Why parameters are float32 or float64; empty if they may be of 16 bits."""
    default_schedule: ClassVar[Callable[[int], Any] | None] = None
    """Makes what `schedule` takes, for a number of ranks, where the caller gives none."""
    transform: ClassVar[Callable[[nx.DiGraph], nx.DiGraph] | None] = None
    """Makes the graph that a round averages with of the one that was given."""
    why_unfit: ClassVar[Callable[[nx.DiGraph], str] | None] = None
    """Why a graph of the schedule cannot be used, beside what `mixing` says; "" where it can."""

    rank: int
    """This rank."""
    size: int
    """The number of ranks."""
    buckets: Sequence[Bucket]
    """All of them, in the order in which they are stepped."""
    _round: core.AlgorithmRound | None = None
    _wrapped: Callable[[], torch.optim.Optimizer | None]

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The wrapped optimizer, for its groups and state: not to be stepped but by
        `local_step`."""
        optimizer = self._wrapped()
        if optimizer is None:
            raise StateError(f"{self._place('optimizer')}: expected the wrapped optimizer, found "
                             "that it is gone")
        return optimizer

    # ---- what subclasses say

    def step(self, round: Round, buckets: Sequence[Bucket]) -> None:
        """A step that communicates: `local_step` for each bucket, in order, and `calls_due`
        averages and gathers, the same ones in the same order on all ranks. Runs without autograd.

        An exception of it the other ranks hear as PeerFailure in this step, and nobody waits; one
        after its last call, or of `step_alone` or `restart`, in their next step that communicates,
        which is then a StateError on this rank.
        """
        raise NotImplementedError(f"{type(self).__name__}: expected a method 'step'")

    def step_alone(self, buckets: Sequence[Bucket]) -> None:
        """A step between two that communicate (`num_steps_per_communication`)."""
        for bucket in buckets:
            self.local_step(bucket)

    def restart(self) -> None:
        """Called before the first step, by `optimizer.restart()`, and where ranks were lost or have
        joined: forgets earlier steps. `state` is zeros by then, `scalars` are their first values.
        """

    def calls_due(self) -> int:
        """How many averages and gathers a round has, always the same: one for each bucket."""
        return len(self.buckets)

    # ---- what they call in `step`

    def local_step(self, bucket: Bucket) -> None:
        """The wrapped optimizer's step, x ← x - γ d, of the bucket's parameters."""
        self._of_step("local_step").local_step(bucket.index)

    def average(self, values: Bucket | torch.Tensor, over: str = "neighbors") -> torch.Tensor:
        """In place: the average by this round's W (over="neighbors") or the mean of all ranks
        (over="all"), of a bucket's `values` or any other contiguous tensor, equally long on all
        ranks. Blocks."""
        return self.average_nonblocking(values, over).wait()

    def average_nonblocking(self, values: Bucket | torch.Tensor,
                            over: str = "neighbors") -> Average:
        """Begins `average`: until `wait` the values are neither read nor written."""
        of_step = self._of_step("average")
        tensor = values.values if isinstance(values, Bucket) else values
        if not isinstance(tensor, torch.Tensor):
            raise ArgumentTypeError(f"{self._place('average')}: values: expected a bucket or a "
                                    f"torch.Tensor, found {_arguments.described(values)}")
        self._check_contiguous("average", tensor)
        _arguments.checked("average", "over", _arguments.one_of("neighbors", "all"), over)
        return Average(of_step, of_step.start_average(tensor, over == "all"), tensor)

    def gather(self, values: torch.Tensor) -> dict[int, torch.Tensor]:
        """The tensors that the ranks which this one hears pass in the same call, by rank:
        contiguous ones, of one dtype on all ranks and of any length (codes, say); results are flat.
        Counts as an average."""
        of_step = self._of_step("gather")
        if isinstance(values, torch.Tensor):
            self._check_contiguous("gather", values)
        return dict(of_step.gather(values))

    # ---- the core's side

    def _of_step(self, call: str) -> core.AlgorithmRound:
        if self._round is None:
            raise StateError(f"{self._place(call)}: expected a call from `step` while it runs, "
                             "found one outside of it")
        return self._round

    def _check_contiguous(self, call: str, tensor: torch.Tensor) -> None:
        if not tensor.is_contiguous():
            raise InvalidArgument(f"{self._place(call)}: values: expected a contiguous tensor, "
                                  f"found strides {list(tensor.stride())} of a tensor of "
                                  f"{list(tensor.shape)}")

    def _place(self, call: str) -> str:
        return f"rank {self.rank}, {self.name}, {call}"

    def _calls_due(self) -> int:
        return _arguments.checked(f"{self.name}, calls_due", "result", _arguments.at_least(0),
                                  self.calls_due())

    def _restart(self) -> None:
        with torch.no_grad():
            self.restart()

    def _step(self, of_round: core.AlgorithmRound) -> None:
        plan = of_round.plan
        round = (Round(of_round.index, 1.0, {}, ()) if plan is None else
                 Round(of_round.index, plan.self_weight, plan.src_weights, plan.dst_ranks))
        self._run(of_round, lambda: self.step(round, self.buckets))

    def _step_alone(self, of_round: core.AlgorithmRound) -> None:
        self._run(of_round, lambda: self.step_alone(self.buckets))

    def _run(self, of_round: core.AlgorithmRound, body: Callable[[], None]) -> None:
        self._round = of_round
        try:
            with torch.no_grad():
                body()
            self._check_memory()
        finally:
            self._round = None

    def _keep_memory(self) -> None:
        """Notes where the tensors of buckets lie, which a `step` writes and does not replace."""
        self._memory = [(bucket, what, tensor, tensor.detach())
                        for bucket in self.buckets
                        for what, tensor in (("values", bucket.values), *bucket.state.items())]

    def _check_memory(self) -> None:
        moved = [entry for entry in self._memory if _place_of(entry[2]) != _place_of(entry[3])]
        for _, _, tensor, kept in moved:
            tensor.data = kept
        if moved:
            bucket, what, *_ = moved[0]
            raise StateError(f"{self._place('step')}: expected {what} of bucket {bucket.name} to "
                             "be written in place, as by copy_, found other memory in its place")


def _place_of(tensor: torch.Tensor) -> tuple[int, int]:
    return tensor.data_ptr(), tensor.numel()


class OuterSteps(Algorithm):
    """Local steps, then an outer step over what they have led to: `num_steps_per_communication` is
    H. With θ the model after the last outer step and x what H steps of the wrapped optimizer have
    made of it, subclasses say in `update` what becomes of θ and the average of x.

    `diloco` and its kin are the same in C++ (docs/optimizers.md).
    """

    state: ClassVar[Sequence[str]] = ("outer start",)
    scalars: ClassVar[Any] = {"outer steps begun": 0.0}
    allows_reevaluation: ClassVar[bool] = True
    over: ClassVar[str] = "neighbors"
    """Over whom x is averaged: "neighbors", by W, or "all"."""

    def update(self, bucket: Bucket, start: torch.Tensor) -> None:
        """Makes the next model of θ, `start`, and the average of x, `bucket.values`, in place of
        the latter."""
        raise NotImplementedError(f"{type(self).__name__}: expected a method 'update'")

    def step(self, round: Round, buckets: Sequence[Bucket]) -> None:
        self._begin_once()
        averages = []
        for bucket in buckets:
            self.local_step(bucket)
            averages.append(self.average_nonblocking(bucket, self.over))
        for average in averages:
            average.wait()
        for bucket in buckets:
            start = bucket.state["outer start"]
            self.update(bucket, start)
            start.copy_(bucket.values)

    def step_alone(self, buckets: Sequence[Bucket]) -> None:
        self._begin_once()
        super().step_alone(buckets)

    def _begin_once(self) -> None:
        """θ is the model before the first step: programs broadcast parameters until then."""
        if self.scalars["outer steps begun"].item() == 0.0:
            for bucket in self.buckets:
                bucket.state["outer start"].copy_(bucket.values)
            self.scalars["outer steps begun"].fill_(1.0)
