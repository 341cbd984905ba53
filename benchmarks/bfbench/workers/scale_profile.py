"""One rank alone that times its passes: what bfbench scale sleeps in place of computing. Prints one
JSON object.
"""

import argparse
import json

import torch

from bfbench.training import make_optimizer
from bfbench.workers import sleeping_model
from bfbench.workers.train_models import make_model

STEPS = 5


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store")
    parser.add_argument("--model", required=True)
    for name in ("threads", "batch-size", "image-size", "classes"):
        parser.add_argument(f"--{name}", type=int, required=True)
    return parser.parse_args()


def main():
    args = parse_arguments()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    model = make_model(args.model, args.image_size, args.classes)
    optimizer = make_optimizer(model.parameters())
    images = torch.randn(args.batch_size, 3, args.image_size, args.image_size)
    labels = torch.randint(args.classes, (args.batch_size,))

    def loss():
        optimizer.zero_grad()
        return torch.nn.functional.cross_entropy(model(images), labels)

    sleeping_model.measure(model, loss, optimizer.step, 1)
    profile = sleeping_model.measure(model, loss, optimizer.step, STEPS)
    print(json.dumps({**profile, "bytes": [p.nbytes for p in model.parameters()]}), flush=True)


if __name__ == "__main__":
    main()
