"""Options of BlueFog's and Horovod's scripts that make no sense here: each says what to use."""

import argparse

WORDS = {
    "--fp16-allreduce": "tensors travel in their own dtype; use a model of torch.float16 or torch.bfloat16",
    "--use-adasum": "there is no Adasum; use --dist-optimizer gradient_allreduce",
    "--partition": "buckets are cut by size; use BLUEFOG_FUSION_THRESHOLD=BYTES in the environment",
    "--no-bluefog": "use --dist-optimizer horovod for gradient all-reduce, or pytorch_ddp in "
    "pytorch_benchmark.py for torch's own",
    "--no-rma": "use --dist-optimizer neighbor_allreduce, which takes no windows",
}


class Explained(argparse.Action):
    def __call__(self, parser, namespace, values, option_string=None):
        parser.error(f"{option_string}: {self.help}")


def add_arguments(parser, words=WORDS):
    group = parser.add_argument_group("options of other scripts that only say what to use")
    for name, text in words.items():
        group.add_argument(
            name,
            action=Explained,
            nargs="?",
            metavar="VALUE",
            help=text,
            dest=argparse.SUPPRESS,
        )
