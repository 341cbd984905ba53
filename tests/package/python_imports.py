"""Reads the import lines of every Python file and fails on a circle, which it names.

    python_imports.py ROOT          check the files below ROOT
    python_imports.py --self-test   check that circles are found

Imports inside functions count, those of TYPE_CHECKING blocks too, and modules whose names stand in
calls of importlib.import_module, __import__ and runpy.run_module, or are looked up in sys.modules.
An import of a package from outside counts as one of its __init__.py; inside a package its own
__init__.py runs first in any case.
"""

import ast
import graphlib
import importlib.util
import itertools
import pathlib
import sys
import tempfile

FOLDERS = ("python", "benchmarks", "tests", "examples", "cmake")
# The folders that are on the path of modules, besides a script's own.
ROOTS = ("python", "benchmarks", "tests", "examples")
# A compiled module has a stub alone.
SUFFIXES = (".py", ".pyi")


class Modules:
    """The files below a root, found by the names that they are imported by."""

    def __init__(self, root):
        self.root = root
        self.files = sorted(path.relative_to(root) for folder in FOLDERS
                            for path in (root / folder).rglob("*")
                            if path.suffix in SUFFIXES and "__pycache__" not in path.parts)
        self._known = set(self.files)

    def file_of(self, name, importer):
        """The file of a module or package, or None for one of others."""
        parts = name.split(".")
        own = [] if self.package_of(importer) else [importer.parent]
        for folder in (*own, *map(pathlib.Path, ROOTS)):
            module = folder.joinpath(*parts)
            for file in (module / "__init__.py", *map(module.with_suffix, SUFFIXES)):
                if file in self._known:
                    return file
        return None

    def files_of(self, name, importer):
        """What runs when the importer imports a module: it, and the packages around it that do not
        hold the importer."""
        parts = name.split(".")
        found = {self.file_of(".".join(parts[:count]), importer) for count in range(1, len(parts))}
        packages = {file for file in found - {None} if file.parent not in importer.parents}
        return packages | ({self.file_of(name, importer)} - {None, importer})

    def package_of(self, file):
        """The dotted name of the package that a file lies in; empty for a script's."""
        names = []
        for folder in file.parents:
            if folder / "__init__.py" not in self._known:
                break
            names.insert(0, folder.name)
        return ".".join(names)


def absolute(name, package):
    """A module's name without leading dots, which count packages upwards; empty where they lead out
    of all of them."""
    try:
        return importlib.util.resolve_name(name, package or None)
    except ImportError:
        return ""


def names_of_import(node, file, modules):
    """The modules that an import statement may run."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    base = absolute("." * node.level + (node.module or ""), modules.package_of(file))
    return parts_of(base, [alias.name for alias in node.names], file, modules)


def parts_of(base, names, file, modules):
    """What an import of names from a package or module runs: names that are no modules are its
    attributes."""
    inner = [f"{base}.{name}" for name in names]
    return [name if modules.file_of(name, file) else base for name in inner]


def renamed(tree):
    """What names that stand for modules and functions mean in a file, by its imports."""
    meaning = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            meaning |= {alias.asname: alias.name for alias in node.names if alias.asname}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            meaning |= {alias.asname or alias.name: f"{node.module}.{alias.name}"
                        for alias in node.names}
    return meaning


def literal(node):
    """The value of a node that is written out; None for what only running it tells."""
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        return None


# The calls that import the module named to them, with their parameters' names in order.
IMPORTING = {
    "importlib.import_module": ("name", "package"),
    "importlib.__import__": ("name", "globals", "locals", "fromlist", "level"),
    "__import__": ("name", "globals", "locals", "fromlist", "level"),
    "builtins.__import__": ("name", "globals", "locals", "fromlist", "level"),
    "runpy.run_module": ("mod_name",),
    "sys.modules.get": ("key",),
}


def names_of_call(node, file, modules, meaning):
    """The modules that a call imports by name."""
    head, dot, rest = ast.unparse(node.func).partition(".")
    parameters = IMPORTING.get(meaning.get(head, head) + dot + rest)
    if not parameters:
        return []
    given = dict(zip(parameters, node.args))
    given |= {keyword.arg: keyword.value for keyword in node.keywords}
    values = {name: literal(value) for name, value in given.items()}
    name = values.get(parameters[0])
    if not isinstance(name, str):
        return []
    # A package that is no literal is __package__ or __name__, the file's own.
    package = values.get("package") or modules.package_of(file)
    base = absolute("." * (values.get("level") or 0) + name, package)
    return parts_of(base, values.get("fromlist") or (), file, modules) or [base]


def imports_of(file, modules):
    """(line, file) of each import of a file of ours."""
    tree = ast.parse((modules.root / file).read_text(), str(file))
    meaning = renamed(tree)
    for node in ast.walk(tree):
        names = []
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = names_of_import(node, file, modules)
        elif isinstance(node, ast.Call):
            names = names_of_call(node, file, modules, meaning)
        elif isinstance(node, ast.Subscript) and ast.unparse(node.value) == "sys.modules":
            names = [literal(node.slice)]
        for name in names:
            if isinstance(name, str) and name:
                for imported in modules.files_of(name, file):
                    yield node.lineno, imported


def find_circles(imports):
    """Circles, each as a list of files, of which each imports the next and the last is the first.
    Without the last import of each no circle is left."""
    left = {file: set(imported) for file, imported in imports.items()}
    while True:
        try:
            graphlib.TopologicalSorter(left).prepare()
            return
        except graphlib.CycleError as error:
            # The sorter lists each file before the one that imports it.
            circle = error.args[1][::-1]
            yield circle
            left[circle[-2]].discard(circle[-1])


def check(root):
    """The number of files and of imports between them; a line for each circle."""
    modules = Modules(root)
    imports = {file: {} for file in modules.files}
    for file in modules.files:
        for line, imported in imports_of(file, modules):
            imports[file].setdefault(imported, line)
    found = []
    for circle in find_circles(imports):
        steps = [f"{file}:{imports[file][imported]}" for file,
                 imported in itertools.pairwise(circle)]
        found.append(f"circle of {len(steps)}: {' imports '.join([*steps, str(circle[-1])])}")
    return len(modules.files), sum(map(len, imports.values())), found


CIRCLES = {
    "a function's import": {
        "python/p/__init__.py": "", "python/p/a.py": "from p import b",
        "python/p/b.py": "def f():\n    from p.a import g\n    return g"},
    "a package's import of its part": {
        "python/p/__init__.py": "from p.a import f", "python/p/a.py": "from p import f"},
    "an import for types": {
        "python/p/a.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import p.b",
        "python/p/b.py": "import p.a"},
    "a relative import": {
        "benchmarks/q/__init__.py": "", "benchmarks/q/a.py": "from .b import f",
        "benchmarks/q/b.py": "from . import a"},
    "a package around the module": {
        "python/p/__init__.py": "", "python/p/a.py": "import p.r.c", "python/p/r/c.py": "",
        "python/p/r/__init__.py": "from p import a"},
    "a name in a string": {
        "python/p/a.py": "import sys\nsys.modules.get('p.b')", "python/p/b.py": "import p.a"},
    "a lookup by import_module": {
        "python/p/a.py": "import importlib\nimportlib.import_module('p.b')",
        "python/p/b.py": "import p.a"},
    "an import_module under another name": {
        "python/p/a.py": "from importlib import import_module as load\nload(name='p.b')",
        "python/p/b.py": "import p.a"},
    "an import_module of a relative name": {
        "python/p/__init__.py": "", "python/p/b.py": "import p.a",
        "python/p/a.py": "import importlib as i\ni.import_module('.b', __package__)"},
    "an import_module from another package": {
        "python/p/__init__.py": "", "python/p/b.py": "import q",
        "python/q.py": "import importlib\nimportlib.import_module('.b', package='p')"},
    "a call of __import__": {
        "python/p/a.py": "def f():\n    return __import__('p.b').b", "python/p/b.py": "import p.a"},
    "an __import__ of a list": {
        "python/p/__init__.py": "", "python/p/a.py": "__import__('p', fromlist=['b'])",
        "python/p/b.py": "import p.a"},
    "a relative __import__": {
        "python/p/__init__.py": "", "python/p/b.py": "import p.a",
        "python/p/a.py": "import builtins\nbuiltins.__import__('b', globals(), None, (), 1)"},
    "a module that is run by name": {
        "python/p/a.py": "import runpy\nrunpy.run_module('p.b')", "python/p/b.py": "import p.a"},
    "helpers of one folder": {
        "tests/t/a.py": "import b", "tests/t/b.py": "import c", "tests/t/c.py": "from a import f"},
}
RIGHT = {
    "python/p/__init__.py": "from p.a import f\nfrom p import b",
    "python/p/a.py": "from p import b",
    "python/p/b.py": "import torch\nfrom p.r import c\nfrom p import _core",
    "python/p/_core.pyi": "",
    "python/p/r/__init__.py": "from p.r import c",
    "python/p/r/c.py": "from p.r import d", "python/p/r/d.py": "import sys\nsys.modules['torch']",
    "python/p/e.py": "import importlib\nimportlib.import_module(sys.argv[1])\n__import__('..p')",
    "python/p/g.py": "def load(name): return name\nload('p.a')\n__import__('p.e')",
    "benchmarks/q/__main__.py": "import p", "tests/t/a.py": "import p.a\nfrom q import __main__",
    "tests/u/a.py": "import b", "tests/u/b.py": "import helper", "tests/helper.py": "",
}


def check_texts(texts):
    with tempfile.TemporaryDirectory() as folder:
        for name, text in texts.items():
            path = pathlib.Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return check(pathlib.Path(folder))


def self_test():
    wrong = 0
    for what, texts in CIRCLES.items():
        _, _, found = check_texts(texts)
        if len(found) != 1:
            print(f"{what}: expected one circle, found {found}")
            wrong += 1
    files, count, found = check_texts(RIGHT)
    if found or (files, count) != (len(RIGHT), 15):
        print(f"expected 15 imports of {len(RIGHT)} files and no circle, found {count} of {files}: "
              f"{found}")
        wrong += 1
    print(f"{len(CIRCLES)} circles and {files} files without one were judged, {wrong} wrongly")
    return 1 if wrong else 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    files, count, found = check(pathlib.Path(sys.argv[1]))
    for circle in found:
        print(circle)
    print(f"{files} files, {count} imports between them, {len(found)} circles")
    return 1 if found or not count else 0


if __name__ == "__main__":
    sys.exit(main())
