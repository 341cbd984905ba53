"""How well a classifier does on test images that the ranks share out."""

import torch
from torch.nn import functional

import bluefog_cpp.torch as bf


def add_argument(parser):
    parser.add_argument("--average-test-result", action="store_true",
                        help="accepted: results are those of all ranks in any case")


@torch.no_grad()
def evaluate(model, data, batch_size):
    """Collective. Accuracy and loss over `data`; each rank judges its share by its own model. Where
    a rank is lost, the others judge all of it."""
    return bf.survive(lambda: _evaluated(model, data, batch_size))


def _evaluated(model, data, batch_size):
    model.eval()
    totals = torch.zeros(3, dtype=torch.float64)
    device = next(model.parameters()).device
    own = torch.utils.data.Subset(data, range(bf.rank(), len(data), bf.size()))
    for images, labels in torch.utils.data.DataLoader(own, batch_size=batch_size):
        images, labels = images.to(device), labels.to(device)
        output = model(images)
        totals += torch.tensor([len(labels), (output.argmax(1) == labels).sum(),
                                functional.cross_entropy(output, labels, reduction="sum")])
    count, right, loss = bf.allreduce(totals, average=False, name="totals").tolist()
    return right / count, loss / count
