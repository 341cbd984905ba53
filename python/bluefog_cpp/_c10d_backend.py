"""torch.distributed's backend "bluefog", registered by its name alone.

`import torch` calls `register` (entry point of the group torch.backends; from 2.14 on
torch.distributed.backends), and so does `import bluefog_cpp.torch`. The backend itself is loaded
with the first process group.
"""

from __future__ import annotations

import atexit
from typing import Any

NAME = "bluefog"


def _create(options: Any, _backend_options: Any = None) -> Any:
    """The backend of one process group. Collective over its ranks."""
    import torch

    from bluefog_cpp._torch_version import require_same_torch

    require_same_torch(f"the backend {NAME!r}")
    try:
        from bluefog_cpp import _c10d
    except ImportError as error:
        raise ImportError(
            f"the backend {NAME!r} cannot be loaded with torch {torch.__version__}: {error}; build "
            "bluefog_cpp again from its sources: pip install --no-build-isolation .") from error
    atexit.unregister(_c10d.run_exit_hooks)
    atexit.register(_c10d.run_exit_hooks)  # while a store that is written in Python is there
    return _c10d.create(options.store, options.group_rank, options.group_size, options.timeout,
                        options.group_id, list(options.global_ranks_in_group))


def register() -> None:
    """Makes the name known to torch.distributed. May be called again; never raises: an exception
    here would end `import torch`."""
    try:
        import torch.distributed as dist

        if dist.is_available() and not hasattr(dist.Backend, NAME.upper()):
            dist.Backend.register_backend(NAME, _create, extended_api=True,
                                          devices=["cpu", "cuda"])
    except Exception as error:
        import warnings

        warnings.warn(f"bluefog_cpp: torch.distributed does not take the backend {NAME!r}: "
                      f"{error}", RuntimeWarning, stacklevel=2)
