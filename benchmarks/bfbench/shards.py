"""The images that each rank has."""

import numpy

IID = "iid"


def rank_shares(labels, ranks, how, seed):
    """Indices of the images of each rank, the same on whoever asks.

    how: "iid", or a number α: each class is dealt to the ranks by a draw of Dirichlet(α); small
    ones leave a rank few classes. A rank that would go without gets one image.
    """
    random = numpy.random.default_rng(seed)
    labels = numpy.asarray(labels)
    if how == IID:
        return [numpy.sort(part) for part in
                numpy.array_split(random.permutation(len(labels)), ranks)]
    shares = [[] for _ in range(ranks)]
    for label in numpy.unique(labels):
        of_class = random.permutation(numpy.flatnonzero(labels == label))
        ends = numpy.cumsum(random.dirichlet([float(how)] * ranks))[:-1] * len(of_class)
        for share, part in zip(shares, numpy.split(of_class, ends.round().astype(int))):
            share.append(part)
    found = [numpy.sort(numpy.concatenate(share)) for share in shares]
    return [share if len(share) else numpy.array([rank % len(labels)])
            for rank, share in enumerate(found)]
