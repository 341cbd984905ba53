"""`ElasticPipeline`: torch.distributed.pipelining, whose stages change while they train."""

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import Schedule1F1B, ScheduleGPipe
from torch.distributed.pipelining.schedules import PipelineScheduleSingle

from bluefog_cpp._extension import core
from bluefog_cpp.errors import InvalidArgument, StateError
from bluefog_cpp.pipeline._agreement import Told, agree, begin_batch, machines
from bluefog_cpp.pipeline._cache import CacheOptions, FrozenOutputs, OutputCache
from bluefog_cpp.pipeline._groups import Groups, make_groups
from bluefog_cpp.pipeline._layers import Layers, Sends, StageLayers
from bluefog_cpp.pipeline._plans import Skips, initial_micro_batches, partition_layers
from bluefog_cpp.pipeline._sums import GradientSums
from bluefog_cpp.pipeline._times import StepTimes, TimedStage

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
SCHEDULES: dict[str, type[PipelineScheduleSingle]] = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}


class ElasticPipeline:
    """A sequential model in stages over the ranks of torch.distributed's default group.

    n ranks are n / stages pipelines of ranks that follow each other. All ranks make the model in
    full and get rank 0's parameters; then each keeps those of its stage, the others stay without
    memory, so that one optimizer over all of the model's parameters serves whatever moves.

    model: a torch.nn.Sequential on the CPU, whose layers take one tensor and give one, with rows in
    dimension 0. loss: of outputs and targets, the mean over rows. schedule: "1f1b" or "gpipe".
    micro_batches: at most so many a step, of equal rows; None: `initial_micro_batches`. costs:
    of layers; None: their numbers of parameters. skips, slack, frozen_share: as `partition_layers`.
    bucket_bytes: the most bytes of gradients that replicas sum at a time, unless a parameter is
    larger; it changes no bit. cache: where outputs of frozen layers are kept; inputs of a sample
    have to be the same in every epoch then. It calls `bluefog_cpp.torch.init` if nobody has.

    Collective, as all methods that say so. Raises InvalidArgument for a model that is no sequence
    or shares parameters between layers, a number of stages that does not divide the ranks, and what
    `partition_layers` refuses; on the other ranks PeerFailure. Raises MismatchError for models that
    differ, StateError before `init_process_group`.
    """

    def __init__(self, model: nn.Module, loss: Loss, *, stages: int, schedule: str = "1f1b",
                 micro_batches: int | None = None, costs: Sequence[float] | None = None,
                 skips: Skips = (), slack: float = 0.05,
                 frozen_share: float = core.frozen_share, bucket_bytes: int = 1 << 20,
                 cache: CacheOptions | None = None) -> None:
        if not dist.is_initialized():
            raise StateError("ElasticPipeline: expected a default process group, found none: call "
                             'torch.distributed.init_process_group("bluefog") first')
        self._loss = loss
        self._schedule = schedule
        self._wanted_micro_batches = micro_batches
        self._skips = skips
        self._slack = slack
        self._frozen_share = frozen_share
        self._bucket_bytes = bucket_bytes
        self._sums: GradientSums | None = None
        self._kept: FrozenOutputs | None = None
        self._cache: OutputCache | None = None
        self._groups: dict[int, Groups] = {}
        self._runs: dict[tuple[int, bool], tuple[PipelineScheduleSingle, TimedStage]] = {}
        self.times = StepTimes()
        """Of the last step."""
        problem = ""
        lines: list[str] = []
        try:
            self._prepare(model, costs, stages)
            lines = [f"{stages} stages, {schedule}, {micro_batches} micro-batches",
                     f"slack {slack}, frozen layers count {frozen_share}",
                     f"buckets of {bucket_bytes} bytes, a cache: {cache is not None}",
                     *self._layers.statement()]
        except InvalidArgument as error:
            problem = str(error)
        agree(problem, lines)
        self._machines = machines()
        for layer in range(len(self._layers)):
            for _, tensor in self._layers.tensors(layer):
                dist.broadcast(tensor.detach(), 0)
        if cache is not None:
            self._cache = OutputCache(cache)
        self._take_place()

    def _prepare(self, model: nn.Module, costs: Sequence[float] | None, stages: int) -> None:
        self._layers = Layers(model)
        if self._schedule not in SCHEDULES:
            raise InvalidArgument("ElasticPipeline: expected a schedule of gpipe and 1f1b, found "
                                  f"'{self._schedule}'")
        if self._wanted_micro_batches is not None and self._wanted_micro_batches < 1:
            raise InvalidArgument("ElasticPipeline: expected at least 1 micro-batch, found "
                                  f"{self._wanted_micro_batches}")
        if self._bucket_bytes < 0:
            raise InvalidArgument("ElasticPipeline: expected buckets of 0 bytes or more, found "
                                  f"{self._bucket_bytes}")
        self.costs = self._layers.sizes() if costs is None else list(costs)
        if len(self.costs) != len(self._layers):
            raise InvalidArgument(f"ElasticPipeline: expected the costs of {len(self._layers)} "
                                  f"layers, found {len(self.costs)}")
        self._begins = self._placed(stages, 0)

    def _placed(self, stages: int, frozen: int) -> list[int]:
        size = dist.get_world_size()
        if stages < 1 or size % stages:
            raise InvalidArgument(f"ElasticPipeline: expected a number of stages that divides the "
                                  f"{size} ranks, found {stages}")
        begins = partition_layers(self.costs, stages, frozen=frozen, skips=self._skips,
                                  slack=self._slack, frozen_share=self._frozen_share)
        sizes = self._layers.sizes()
        for stage, (begin, end) in enumerate(zip(begins, [*begins[1:], len(sizes)])):
            if not sum(sizes[begin:end]):
                raise InvalidArgument("ElasticPipeline: expected stages with parameters, found "
                                      f"stage {stage} of layers {begin} to {end - 1} without")
        return begins

    @property
    def stages(self) -> int:
        """The number of stages of a pipeline."""
        return len(self._begins)

    @property
    def replicas(self) -> int:
        """The number of pipelines."""
        return dist.get_world_size() // self.stages

    @property
    def stage(self) -> int:
        """The stage of this rank."""
        return dist.get_rank() % self.stages

    @property
    def replica(self) -> int:
        """The pipeline of this rank."""
        return dist.get_rank() // self.stages

    @property
    def frozen(self) -> int:
        """The number of layers that are frozen."""
        return self._layers.frozen

    @property
    def cached_rows(self) -> int:
        """The rows of the last step whose frozen layers have come from the cache, on this rank."""
        return 0 if self._kept is None else self._kept.found_rows

    @property
    def resumed_rows(self) -> int:
        """Those of which it had the outputs of fewer layers, from which they were computed on."""
        return 0 if self._kept is None else self._kept.resumed_rows

    def layers_of(self, stage: int) -> range:
        """The layers of a stage."""
        ends = [*self._begins[1:], len(self._layers)]
        return range(self._begins[stage], ends[stage])

    def trained_parameters(self) -> list[tuple[str, nn.Parameter]]:
        """The parameters of this rank's stage that are trained, as the model names them."""
        return [item for layer in self.layers_of(self.stage)
                for item in self._layers.trained(layer)]

    def _take_place(self, optimizer: torch.optim.Optimizer | None = None) -> None:
        own = self.layers_of(self.stage)
        for layer in range(len(self._layers)):
            if layer not in own:
                self._layers.drop(layer, optimizer)
        self._runs.clear()
        layers = [self._layers.model[layer] for layer in own]
        frozen = max(0, min(self.frozen, own.stop) - own.start)
        self._kept = None
        if self._cache is not None:
            self._cache.take_depth(min(self.frozen, self.layers_of(0).stop))
            if self.stage == 0 and frozen:
                self._kept = FrozenOutputs(self._cache, layers[:frozen])
        self._module = StageLayers(layers, frozen, self._kept)
        if self.stages not in self._groups:
            self._groups[self.stages] = make_groups(self.stages)
        if self._sums is not None:
            self._sums.close()
        self._sums = None if self.replicas == 1 else GradientSums(
            self.trained_parameters(), self._groups[self.stages].replicas, self._bucket_bytes,
            any(map(self._is_far, range(self.stage, dist.get_world_size(), self.stages))))

    def _is_far(self, rank: int) -> bool:
        """Whether a rank is on another machine."""
        return self._machines[rank] != self._machines[dist.get_rank()]

    def _micro_batches_of(self, rows: int) -> int:
        """The largest number of equal micro-batches: torch's stages take no others."""
        most = self._wanted_micro_batches or initial_micro_batches(self.stages)
        return max(count for count in range(1, min(most, rows) + 1) if rows % count == 0)

    def _run_of(self, rows: int, trains: bool = True) -> PipelineScheduleSingle:
        if (rows, trains) not in self._runs:
            count = self._micro_batches_of(rows)
            stage = TimedStage(self._module, self.stage, self.stages, torch.device("cpu"),
                               group=self._groups[self.stages].pipeline)
            # torch's 1F1B takes no fewer micro-batches than stages.
            kind = SCHEDULES[self._schedule] if count >= self.stages else ScheduleGPipe
            self._runs[rows, trains] = (
                kind(stage, count, loss_fn=self._timed_loss if trains else None,
                     scale_grads=self._sums is None), stage)
        schedule, stage = self._runs[rows, trains]
        stage.times = self.times if trains else StepTimes()
        rank = dist.get_rank()
        stage.has_far_neighbors = (not stage.is_first and self._is_far(rank - 1),
                                   not stage.is_last and self._is_far(rank + 1))
        stage.on_last_backward = (self._sums.begin_last_backward
                                  if trains and self._sums is not None else None)
        return schedule

    def _timed_loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """torch evaluates it between the last stage's passes: it is a part of the forward ones."""
        with self.times.part("forward", "loss"):
            return self._loss(outputs, targets)

    def _arguments(self, inputs: torch.Tensor | None, targets: torch.Tensor | None,
                   rows: int) -> tuple[tuple[torch.Tensor, ...], torch.Tensor | None]:
        is_last = self.stage == self.stages - 1
        for name, tensor, is_needed in (("inputs", inputs, self.stage == 0),
                                        ("targets", targets, is_last)):
            if is_needed and (tensor is None or not tensor.dim() or len(tensor) != rows):
                found = "none" if tensor is None else list(tensor.shape)
                raise InvalidArgument(
                    f"rank {dist.get_rank()}, ElasticPipeline, stage {self.stage}: expected {name} "
                    f"of {rows} rows, found {found}")
        first = (inputs,) if self.stage == 0 and inputs is not None else ()
        return first, targets if is_last else None

    def step(self, optimizer: torch.optim.Optimizer, inputs: torch.Tensor | None,
             targets: torch.Tensor | None, rows: int, all_rows: int | None = None,
             samples: Sequence[int] = ()) -> float | None:
        """Collective. The gradients of all pipelines' rows, as those of one process with all of
        them, and a step of `optimizer` with them.

        inputs are looked at on first stages, targets on last ones. rows: of this pipeline, the same
        on all its ranks; 0 where it has none, which takes all_rows. all_rows: of all pipelines;
        None: rows × replicas. samples: the rows' numbers in the data, looked at on first stages,
        for the cache; none: nothing is kept of these rows, or used.

        Returns the mean loss of this pipeline's rows on its last stage, None elsewhere. Raises
        InvalidArgument for inputs or targets of other rows, MismatchError for a batch that is not
        that of the stage before; an error of a rank leaves the others with an error of
        torch.distributed that names it, once it ends, and the pipeline is of no more use.
        """
        loss = self.compute_gradients(inputs, targets, rows, all_rows, samples)
        with self.times.part("total", "optimizer"), self.times.part("optimizer", "optimizer"):
            optimizer.step()
        return loss

    def compute_gradients(self, inputs: torch.Tensor | None, targets: torch.Tensor | None,
                          rows: int, all_rows: int | None = None,
                          samples: Sequence[int] = ()) -> float | None:
        """Collective. The gradients of `step` alone, in the parameters' `grad`."""
        self.times = StepTimes()
        with self.times.part("total", "gradients"):
            return self._compute_gradients(inputs, targets, rows, all_rows, samples)

    def _check_samples(self, rows: int, samples: Sequence[int]) -> None:
        if self._cache is None or self.stage or not len(samples):
            return
        outside = [sample for sample in samples if not 0 <= sample < self._cache.samples]
        if len(samples) != rows or outside:
            raise InvalidArgument(
                f"rank {dist.get_rank()}, ElasticPipeline: expected the numbers of {rows} samples, "
                f"from 0 to {self._cache.samples - 1}, found {len(samples)}"
                + (f", {outside[0]} among them" if outside else ""))

    def _compute_gradients(self, inputs: torch.Tensor | None, targets: torch.Tensor | None,
                           rows: int, all_rows: int | None,
                           samples: Sequence[int]) -> float | None:
        trained = [parameter for _, parameter in self.trained_parameters()]
        for parameter in trained:
            parameter.grad = None
        if rows < 0 or (rows if all_rows is None else all_rows) < max(rows, 1):
            raise InvalidArgument(
                f"rank {dist.get_rank()}, ElasticPipeline: expected 0 rows or more, and at least "
                f"1, and no fewer, of all pipelines, found {rows} and {all_rows}")
        if self.replicas == 1 and all_rows not in (None, rows):
            raise InvalidArgument(
                f"rank {dist.get_rank()}, ElasticPipeline: expected as many rows of all pipelines "
                f"as of the only one, {rows}, found {all_rows}")
        self._check_samples(rows, samples)
        args, target = self._arguments(inputs, targets, rows) if rows else ((), None)
        with self.times.part("waiting", "batch"):
            told = self._begin_batch("a step", rows, all_rows or rows * self.replicas)
        if self._sums is not None:
            # One stage divides the losses itself.
            self._sums.begin(1 if self.stages == 1 or not rows else self._micro_batches_of(rows),
                             rows / (all_rows or rows * self.replicas))
        if self._kept is not None:
            with self.times.part("forward", "digest"):
                self._kept.begin_step(list(samples))
        digest = self.times.forward
        loss = None
        if rows:
            losses: list[torch.Tensor] = []
            with self.times.part("waiting", "schedule"):
                if self.stages == 1:
                    self._run_alone(args[0], target, losses)
                else:
                    self._run_of(rows).step(*args, target=target, losses=losses,
                                            return_outputs=False)
            self.times.waiting -= self.times.forward + self.times.backward - digest
            if self.stage == self.stages - 1:
                loss = float(torch.stack([one.detach() for one in losses]).mean())
        if told is not None:
            told.wait()
        if self._kept is not None:
            self._kept.end_step()
        if self._sums is not None:
            self._sums.finish(self.times)
        return loss

    def _begin_batch(self, kind: str, rows: int, all_rows: int) -> Told | None:
        return begin_batch(kind, rows, all_rows, stage=self.stage, stages=self.stages)

    def _run_alone(self, inputs: torch.Tensor, targets: torch.Tensor | None,
                   losses: list[torch.Tensor]) -> None:
        assert targets is not None
        count = self._micro_batches_of(len(inputs))
        for i, (own, target) in enumerate(zip(inputs.chunk(count), targets.chunk(count))):
            with self.times.part("forward", "forward"):
                loss = self._loss(self._module(own), target)
            if i == count - 1 and self._sums is not None:
                self._sums.begin_last_backward()
            with self.times.part("backward", "backward"):
                (loss / count).backward()
            losses.append(loss)

    @torch.no_grad()
    def evaluate(self, inputs: torch.Tensor | None, rows: int) -> torch.Tensor | None:
        """Collective in each pipeline. The outputs of `rows` rows, on last stages; modules stay in
        the mode that they are in."""
        if self.stage == 0 and (inputs is None or len(inputs) != rows):
            raise InvalidArgument(f"rank {dist.get_rank()}, ElasticPipeline, stage 0: expected "
                                  f"inputs of {rows} rows, found "
                                  f"{'none' if inputs is None else list(inputs.shape)}")
        if self.stages == 1:
            assert inputs is not None
            outputs: torch.Tensor = self._module(inputs)
            return outputs
        told = self._begin_batch("an evaluation", rows, rows)
        args = (inputs,) if self.stage == 0 else ()
        found: torch.Tensor | None = self._run_of(rows, trains=False).eval(*args)
        if told is not None:
            told.wait()
        return found

    def rearrange(self, stages: int, frozen: int, optimizer: torch.optim.Optimizer) -> None:
        """Collective. Another number of stages, and more frozen layers: each rank gets the
        parameters, buffers and optimizer state of the layers that it lacks, bit for bit, from a
        rank of the pipeline that it was in.

        Frozen layers have no gradients and no state, are in no all-reduce and in evaluation mode.
        Raises InvalidArgument for fewer frozen layers than there are, or more than layers, and as
        the constructor; on other ranks PeerFailure.
        """
        problem = ""
        after: list[int] = []
        if not self.frozen <= frozen <= len(self._layers):
            problem = (f"ElasticPipeline: expected {self.frozen} to {len(self._layers)} frozen "
                       f"layers, since frozen ones stay so, found {frozen}")
        else:
            try:
                after = self._placed(stages, frozen)
            except InvalidArgument as error:
                problem = str(error)
        agree(problem, [f"{stages} stages, {frozen} frozen layers"])
        if (stages, frozen) == (self.stages, self.frozen):
            return  # outputs that are kept stay good
        self._layers.freeze(frozen, optimizer)
        moves = core.layer_moves(dist.get_world_size(), len(self._layers), self._begins, after)
        rank = dist.get_rank()
        sent: Sends = []
        for layer, source, to in moves:
            if source == rank:
                sent += self._layers.send(layer, to, optimizer)
        for layer, source, to in moves:
            if to == rank:
                self._layers.receive(layer, source, optimizer)
        for work, _ in sent:
            if work is not None:
                work.wait()
        self._begins = after
        self._take_place(optimizer)

    def gradient_norms(self) -> list[float]:
        """Collective. The Euclidean norm of each layer's gradients in the last step, the same on
        all ranks; 0 for frozen layers."""
        norms = torch.zeros(len(self._layers), dtype=torch.float64)
        for layer in self.layers_of(self.stage) if self.replica == 0 else ():
            gradients = [p.grad.double().flatten() for _, p in self._layers.trained(layer)
                         if p.grad is not None]
            if gradients:
                norms[layer] = torch.cat(gradients).norm()
        dist.all_reduce(norms)
        return norms.tolist()
