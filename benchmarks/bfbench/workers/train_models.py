"""The models that bfbench trains."""

import torch


class SmallCnn(torch.nn.Sequential):
    """Two convolutions and two linear layers."""

    def __init__(self, num_classes=10, channels=3):
        super().__init__(
            torch.nn.Conv2d(channels, 32, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
            torch.nn.Conv2d(32, 64, 3, padding=1), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(8),
            torch.nn.Flatten(), torch.nn.Linear(64 * 64, 128), torch.nn.ReLU(),
            torch.nn.Linear(128, num_classes))


def make_model(name, image_size, num_classes):
    if name == "cnn":
        return SmallCnn(num_classes)
    from torchvision import models  # takes long to import, and the small network needs none of it
    if name == "vit":
        patch = next(size for size in range(max(image_size // 8, 1), image_size + 1)
                     if image_size % size == 0)
        return models.VisionTransformer(image_size=image_size, patch_size=patch, num_layers=6,
                                        num_heads=6, hidden_dim=192, mlp_dim=768,
                                        num_classes=num_classes)
    return models.get_model(name, weights=None, num_classes=num_classes)
