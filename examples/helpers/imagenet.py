"""ImageNet, or any folder of images that has a folder for each class."""

import sys

# Means and deviations of the channels of ImageNet's training images.
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def load(train_folder, val_folder):
    """(training set, test set, number of classes); training images are cropped and mirrored at random."""
    from torchvision import datasets, transforms

    last = (transforms.ToTensor(), transforms.Normalize(MEAN, DEVIATION))
    train = transforms.Compose(
        [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), *last]
    )
    test = transforms.Compose([transforms.Resize(256), transforms.CenterCrop(224), *last])
    sets = []
    for option, folder, transform in (
        ("--train-dir", train_folder, train),
        ("--val-dir", val_folder, test),
    ):
        try:
            sets.append(datasets.ImageFolder(folder, transform))
        except OSError as error:
            sys.exit(
                f"{option}: expected a folder with a folder of images for each class, found: {error}"
            )
    if sets[0].classes != sets[1].classes:
        sys.exit(
            f"--val-dir: expected the {len(sets[0].classes)} classes of --train-dir, found "
            f"{len(sets[1].classes)}, or others"
        )
    return (*sets, len(sets[0].classes))
