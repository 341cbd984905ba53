"""Reads the #include lines of every source and fails on a direction that the
design does not allow: each layer may use itself and the layers below it.

    layers.py ROOT          check the sources below ROOT
    layers.py --self-test   check that wrong directions are found
"""

import pathlib
import re
import sys
import tempfile

# Layer: (folder, layers that it may use). The longest folder that fits decides.
ALL = {"base", "transport", "topology", "ops", "optimizers"}
LAYERS = {
    "base": ("bluefog_cpp/base", {"base"}),
    "transport": ("bluefog_cpp/transport", {"base", "transport"}),
    "topology": ("topology", {"base", "topology"}),
    "ops": ("ops", {"base", "transport", "topology", "ops"}),
    "optimizers": ("optimizers", ALL),
    "nn": ("nn", ALL | {"nn"}),
    "command_line": ("bluefog_cpp/command_line", {"command_line"}),
    "bfrun": ("bluefog_cpp/bfrun", {"base", "bfrun"}),
    "bftopo": ("bluefog_cpp/bftopo", {"base", "command_line", "topology", "bftopo"}),
    "bftrace": ("bluefog_cpp/bftrace", {"base", "bftrace"}),
    "python": ("python", ALL | {"nn", "python"}),
    "examples": ("examples", ALL | {"command_line", "examples"}),
    "benchmarks": ("benchmarks", ALL | {"benchmarks", "examples"}),
    "tests": ("tests", ALL | {"nn", "tests", "examples", "bfrun", "bftopo", "bftrace", "benchmarks",
                             "command_line", "python"}),
}
# Headers of others, and the only folders that may include them.
CONFINED = {
    r"(mpi|mpi-ext)\.h": ("bluefog_cpp/transport/mpi", "tests/mpi", "tests/hosts", "benchmarks"),
    r"nccl\.h": ("bluefog_cpp/transport/nccl", "tests"),
    r"(cuda|cuda_runtime(_api)?)\.h": ("bluefog_cpp/transport/cuda", "bluefog_cpp/transport/nccl",
                                       "tests"),
    r"(torch|ATen|c10)/.*": ("optimizers", "nn", "examples", "python", "tests",
                             "benchmarks"),
    r"boost/graph/.*": ("topology", "tests"),
    r"pybind11/.*": ("python",),
}
SUFFIXES = {".hpp", ".cpp", ".h", ".cc", ".cu", ".cuh", ".inl"}
INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]')


def layer_of(path):
    fitting = [(len(folder), name) for name, (folder, _) in LAYERS.items()
               if path.startswith(folder + "/")]
    return max(fitting)[1] if fitting else None


def violations_of(path, text):
    layer = layer_of(path)
    allowed = LAYERS[layer][1]
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        included = match.group(1)
        target = layer_of(included)
        if target and target not in allowed:
            yield f"{path}:{number}: {layer} must not include {target} ({included})"
        for pattern, folders in CONFINED.items():
            if re.fullmatch(pattern, included) and not any(
                    path.startswith(folder + "/") for folder in folders):
                yield f"{path}:{number}: {included} belongs in {', '.join(folders)} only"


def check(root):
    count, found = 0, []
    for folder in sorted({folder.split("/")[0] for folder, _ in LAYERS.values()}):
        for path in sorted((root / folder).rglob("*")):
            relative = path.relative_to(root).as_posix()
            if path.suffix in SUFFIXES and layer_of(relative):
                count += 1
                found += violations_of(relative, path.read_text(errors="replace"))
    return count, found


def self_test():
    wrong = {
        "bluefog_cpp/base/a.hpp": '#include "ops/work.hpp"',
        "topology/a.hpp": '#include "bluefog_cpp/transport/context.hpp"',
        "bluefog_cpp/transport/a.cpp": '#include "topology/neighbor_plan.hpp"',
        "bluefog_cpp/transport/shm/a.cpp": "#include <mpi.h>",
        "ops/a.cpp": "  #  include <torch/torch.h>",
        "ops/b.cpp": '#include "optimizers/bucket.hpp"',
        "optimizers/a.cpp": '#include "examples/models/cnn.hpp"',
    }
    right = {
        "bluefog_cpp/transport/mpi/a.cpp": '#include <mpi.h>\n#include "bluefog_cpp/base/error.hpp"',
        "optimizers/a.hpp": "#include <ATen/core/Tensor.h>\n#include \"ops/work.hpp\"",
        "ops/c.cpp": '// #include "optimizers/bucket.hpp"',
    }
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (wrong | right).items():
            path = pathlib.Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        _, found = check(pathlib.Path(folder))
    reported = {line.split(":")[0] for line in found}
    if reported != set(wrong):
        print(f"expected violations in {sorted(wrong)}, found {sorted(reported)}")
        return 1
    print(f"{len(wrong)} wrong directions were found, {len(right)} right files passed")
    return 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    count, found = check(pathlib.Path(sys.argv[1]))
    print("\n".join(found))
    print(f"{count} files, {len(found)} includes in a forbidden direction")
    return 1 if found or not count else 0


if __name__ == "__main__":
    sys.exit(main())
