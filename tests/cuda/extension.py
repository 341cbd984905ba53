"""The Python extensions in a kit, as sources: a Python of another version than the one that the
build was for has them compiled where they run, with the headers and libraries of its own torch."""

import json
import pathlib
import re
import shlex
import shutil
import subprocess

TARGETS = {"_core": "bluefog_core", "_c10d": "bluefog_c10d"}
"""Of the build, by the module."""
OTHER_HEADERS = re.compile(
    r"/usr(?:/local)?/include/((?!c\+\+/|linux/|asm|x86_64-linux-gnu/)\w+/.+)")
"""Of Debian's packages. Those of the compiler and the C library are there, torch and Python bring
theirs."""
KEPT_FLAGS = re.compile(r"-(D|O|std=|f(?!pic|PIC))")
SECONDS = 900
"""In which a compiler is done, on a slow machine."""

ABOUT_TORCH = """
import json, pathlib, sysconfig
import torch
root = pathlib.Path(torch.__file__).parent
print(json.dumps({
    "suffix": sysconfig.get_config_var("EXT_SUFFIX"),
    "version": torch.__version__.partition("+")[0],
    "headers": [sysconfig.get_path("include"), str(root / "include"),
                str(root / "include/torch/csrc/api/include")],
    "libraries": str(root / "lib")}))
"""


def recipe_of(module):
    """A file of a kit's build folder; libraries lie beside it, sources and headers under the kit's
    `sources`."""
    return f"extension/{module}.json"


def commands_of(build, module):
    """How a build tree compiles and links a module, each as a list of words; nothing where it does
    not."""
    listed = build / "compile_commands.json"
    compiled = json.loads(listed.read_text()) if listed.exists() else []
    sources = [entry for entry in compiled if f"{TARGETS[module]}.dir" in entry["command"]]
    built = [path.relative_to(build)
             for path in (build / "python" / "bluefog_cpp").glob(f"{module}.*so")]
    if len(sources) != 1 or not built:
        return [], []
    said = subprocess.run(["ninja", "-C", str(build), "-t", "commands", str(built[0])],
                          capture_output=True,
                          text=True, check=True).stdout
    return shlex.split(sources[0]["command"]), shlex.split(said.splitlines()[-1])


def headers_of(command):
    """Every file that the compiler reads for it."""
    words = [word for word in command if word != "-c"]
    place = words.index("-o")
    del words[place:place + 2]
    said = subprocess.run([*words, "-M"], capture_output=True, text=True, check=True).stdout
    return [pathlib.Path(path) for path in said.replace("\\\n", " ").split()[1:]]


def pack(build, sources, folder, module):
    """Into a kit. @return whether the build has the module."""
    compiled, linked = commands_of(build, module)
    if not compiled:
        return False
    for path in headers_of(compiled):
        other = OTHER_HEADERS.fullmatch(str(path))
        if path.is_relative_to(build):
            unity = path  # made by CMake: which files of the sources are compiled together
        elif other or (path.is_relative_to(sources) and "site-packages" not in path.parts):
            target = folder / "include" / other[1] if other else folder / path.relative_to(sources)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target)
    place = folder / "build" / recipe_of(module)
    place.parent.mkdir(parents=True, exist_ok=True)
    parts = re.findall(r'#include "(\S+\.cpp)"', unity.read_text())
    archives = [build / word for word in linked if word.endswith(".a")]
    for archive in archives:
        shutil.copy2(archive, place.parent / archive.name)
    place.write_text(json.dumps({
        "torch": next(re.findall(r'BLUEFOG_TORCH_VERSION="([\d.]+)', word)[0] for word in compiled
                      if "BLUEFOG_TORCH_VERSION" in word),
        "flags": [word for word in compiled if KEPT_FLAGS.match(word)],
        "sources": [str(pathlib.Path(part).relative_to(sources)) for part in parts],
        "archives": [archive.name for archive in archives],
        # The kit has these libraries under the names that programs ask for.
        "libraries": sorted({re.search(r"([\w+]+)\.so", pathlib.Path(word).name)[1]
                             for word in linked
                             if ".so" in word and "torch" not in word
                             and not word.startswith("python/")}
                            | {f"lib{word[2:]}" for word in linked if word == "-lmpi"})},
                                indent=1) + "\n")
    return True


def make(build, sources, libraries, python, module):
    """Compiles and links it for `python`. @return what is in the way; nothing where it is done."""
    place = build / recipe_of(module)
    recipe = json.loads(place.read_text())
    try:
        said = subprocess.run([python, "-c", ABOUT_TORCH], check=False, capture_output=True,
                              text=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if said.returncode:
        return said.stderr.strip().rpartition("\n")[2]
    torch = json.loads(said.stdout.splitlines()[-1])
    if torch["version"] != recipe["torch"]:
        return f"its libraries are for torch {recipe['torch']}, found {torch['version']}"
    compiler = next(filter(None, map(shutil.which, ("g++", "c++"))), None)
    if compiler is None:
        return "found no C++ compiler"
    unity = place.with_suffix(".cpp")
    unity.write_text("".join(f'#include "{sources / part}"\n' for part in recipe["sources"]))
    shared = [next(iter(sorted(libraries.glob(f"{name}.so*"))), None)
              for name in recipe["libraries"]]
    target = build / "python" / "bluefog_cpp" / f"{module}{torch['suffix']}"
    command = [
        compiler, *recipe["flags"], "-fPIC", "-shared", "-pthread", f"-I{sources}",
        f"-isystem{sources / 'include'}",
        *(f"-isystem{path}" for path in torch["headers"]), str(unity), "-o", str(target),
        *(str(place.with_name(name)) for name in recipe["archives"]),
        *(str(path) for path in shared if path), "-ldl", f"-L{torch['libraries']}",
        f"-Wl,-rpath,{torch['libraries']}:{libraries}", "-ltorch_cpu", "-lc10", "-ltorch_python"]
    try:
        ended = subprocess.run(command, check=False, capture_output=True, text=True,
                               timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return f"{compiler} was not done after {SECONDS} s"
    return "" if ended.returncode == 0 else f"{shlex.join(command)}\n{ended.stderr[-2000:]}"
