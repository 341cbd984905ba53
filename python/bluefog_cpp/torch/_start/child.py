"""Children of multiprocessing, which are no ranks."""

import multiprocessing
import traceback


def advice() -> str:
    """Words on how to do without such a child, for one that was refused; empty in others."""
    # In a child that is spawned, and in the server of forkserver, the main script has that name.
    if any(frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") == "__mp_main__"
           for frame, _ in traceback.walk_stack(None)):
        return (
            "multiprocessing runs the main script anew in each process that it spawns: keep init, "
            'and all that only a rank is to do, below `if __name__ == "__main__":`')
    if multiprocessing.parent_process() is not None:
        return ("workers of multiprocessing are no ranks: communicate in the process that has "
                "started them")
    return ""
