"""What the runs of a table stand on, made once: the time that slept compute takes, and models that
are trained already."""

import pathlib
import sys
import tempfile

from bfbench.launch import ENDS_WITH_THIS, output_of, records_in
from bfbench.pipelines.records import pause_us_of
from bfbench.pipelines.ways import WAYS, command_of, configuration_of

TIMED_IMAGES = 256
TIMED_BATCH = 32
TRAINING_RANKS = 2


def run_program(args, launcher, way, ranks, configuration, *words):
    """The lines of the metrics file of a way's program, under bfrun."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "run.yaml").write_text(configuration)
        data = ("--data", args.data) if args.data else ()
        # bfrun's own launcher, whatever other commands take: it says where torch's ranks meet.
        output_of([*ENDS_WITH_THIS, launcher.bfrun, "--launcher", "own", "-np", ranks,
                   *command_of(way, launcher.build, sys.executable), folder / "run.yaml", *data,
                   *words, "--metrics", folder / "metrics.jsonl"],
                  launcher.environment, launcher.longest_sec)
        return records_in((folder / "metrics.jsonl").read_text())


def measured_pause_us(args, launcher):
    """Microseconds that a row takes in the forward pass of half a layer, of an encoder of
    `--slept-width`, on one rank alone."""
    configuration = configuration_of(
        "pipe_ddp", epochs=2, batch_size=TIMED_BATCH, micro_batches=1, layers=args.layers,
        width=args.slept_width, patch=args.patch)
    events = run_program(args, launcher, "pipe_ddp", 1, configuration, "--images", TIMED_IMAGES,
                         "--test-images", 1)
    return pause_us_of(events, args.layers)


class Beforehand:
    """Made as far as the first run asks for it."""

    def __init__(self, args, launcher, folder):
        self._args, self._launcher, self._folder = args, launcher, folder
        self._pause_us = None
        self._models = {}

    def pause_us(self, compute):
        if compute == "real":
            return 0
        if self._pause_us is None:
            self._pause_us = (self._args.pause_us if self._args.pause_us is not None
                              else measured_pause_us(self._args, self._launcher))
        return self._pause_us

    def start_words(self, way):
        """The model that a run of `way` goes on from, trained by the program of its language on
        images that no run sees."""
        args, language = self._args, WAYS[way].language
        if not args.pretrain:
            return ()
        if language not in self._models:
            file = self._folder / f"{language}.model"
            by = "pipe_ddp" if language == "C++" else "python_pipe"
            configuration = configuration_of(
                by, stages=1, micro_batches=1, epochs=args.pretrain, batch_size=args.batches[0],
                layers=args.layers, width=args.width, patch=args.patch)
            run_program(args, self._launcher, by, TRAINING_RANKS, configuration,
                        "--skip", args.images, "--images", args.pretrain_images,
                        "--test-images", 2 * TRAINING_RANKS, "--save", file)
            self._models[language] = file
        return ("--start", self._models[language])
