"""Parameter groups and state that a wrapped optimizer and the plain one have in common, so that
schedulers that were made with the plain one go on."""

import weakref

import torch


class SharedGroups:
    """Keeps `plain` and `wrapped` at the same groups and state, as long as both live."""

    def __init__(self, plain: torch.optim.Optimizer, wrapped: torch.optim.Optimizer):
        self._plain = weakref.ref(plain)
        both = self._plain, weakref.ref(wrapped)

        def share(loaded: torch.optim.Optimizer) -> None:
            for each in (reference() for reference in both):
                if each is not None and each is not loaded:
                    each.param_groups, each.state = loaded.param_groups, loaded.state

        # Both optimizers have their hooks in common, too.
        hook = plain.register_load_state_dict_post_hook(share)
        weakref.finalize(wrapped, hook.remove).atexit = False

    def note_step(self) -> None:
        """A step begins. Schedulers look for a mark of it at the optimizer that they were made
        with."""
        plain: torch.optim.Optimizer | None = self._plain()
        if plain is not None:
            plain._opt_called = True  # type: ignore[attr-defined]
