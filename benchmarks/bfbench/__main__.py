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

try:
    from bfbench.commands import main
except ModuleNotFoundError as missing:
    sys.exit(f"bfbench: expected the Python package {missing.name}, which is not installed; those "
             "that bfbench needs come with pip install 'bluefog_cpp[bfbench]'")

if IS_INTERRUPTIBLE:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if IS_PROGRAM:
    sys.exit(main())
