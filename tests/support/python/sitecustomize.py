"""Python in tests: what compiles nothing does not load torch's compiler.

torch.optim names torch._dynamo in every optimizer's first calls, to tell it what it must not
compile, and loads it for that: 1.7 s of a core in each process. A place-holder says that nothing is
compiled, and gives way to the module itself as soon as anything else of it is asked for. With
LEVEL=long tests run without this file.
"""

import functools
import importlib
import importlib.abc
import importlib.machinery
import sys
import threading
import types

NAME = "torch._dynamo"


class _PlaceHolder(types.ModuleType):
    """torch._dynamo where nobody compiles."""

    def __init__(self):
        super().__init__(NAME)
        self._lock = threading.RLock()

    @staticmethod
    def graph_break(msg=""):
        """Nothing: outside what is compiled it never does anything."""

    @staticmethod
    def disable(fn, recursive=True, *, reason=None, wrapping=True):
        """`fn`, which asks the module itself from when that is there."""

        known = {}

        @functools.wraps(fn)
        def call(*arguments, **named):
            module = sys.modules[NAME]
            if isinstance(module, _PlaceHolder):
                return fn(*arguments, **named)
            if "disabled" not in known:
                known["disabled"] = module.disable(fn, recursive, reason=reason, wrapping=wrapping)
            return known["disabled"](*arguments, **named)

        return call

    def __getattr__(self, name):
        if name.startswith("__") and name != "__path__":
            raise AttributeError(name)  # what looks at all modules wants nothing of this one
        with self._lock:
            if sys.modules.get(NAME) is self:
                del sys.modules[NAME]
                _Finder.loads_whole = True
                importlib.import_module(NAME)
            elif NAME not in sys.modules:
                raise AttributeError(name)  # importlib's own look, before the place-holder is there
        return getattr(sys.modules[NAME], name)


class _Loader(importlib.abc.Loader):
    def create_module(self, spec):
        return _PlaceHolder()

    def exec_module(self, module):
        pass


class _Finder(importlib.abc.MetaPathFinder):
    loads_whole = False

    def find_spec(self, name, path, target=None):
        if name != NAME or _Finder.loads_whole:
            return None
        # No package, so that a look for its modules asks it for `__path__`.
        return importlib.machinery.ModuleSpec(name, _Loader())


sys.meta_path.insert(0, _Finder())
