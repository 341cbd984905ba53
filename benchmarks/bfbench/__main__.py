"""bfbench's start: Ctrl-C ends it quietly also while modules are imported, which takes seconds."""

import os
import signal
import sys

from bfbench import INTERRUPTED

IS_PROGRAM = __name__ == "__main__"
# A signal that is ignored (nohup) stays so.
IS_INTERRUPTIBLE = IS_PROGRAM and signal.getsignal(signal.SIGINT) is signal.default_int_handler

if IS_INTERRUPTIBLE:
    signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))

from bfbench.commands import main  # noqa: E402 after the handler is set

if IS_INTERRUPTIBLE:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if IS_PROGRAM:
    sys.exit(main())
