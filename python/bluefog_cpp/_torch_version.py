"""The torch that the extensions fit, compared before one of them is loaded: the C++ libraries of
another minor version differ, and the loader would name a function in place of the reason."""

import torch

from bluefog_cpp._built_with import TORCH_VERSION


def require_same_torch(what: str) -> None:
    """Raises ImportError, with both versions, where the torch that is there has another minor
    version than the one that `what` was built against."""
    built, found = TORCH_VERSION.split(".")[:2], torch.__version__.split(".")[:2]
    if built != found:
        raise ImportError(
            f"{what} was built against torch {TORCH_VERSION}, found {torch.__version__}; install "
            f"that one (pip install 'torch=={'.'.join(built)}.*'), or build bluefog_cpp again from "
            "its sources: pip install --no-build-isolation .")
