"""Checks that layers.py enforces each of its rules: files that break one, and files that do not."""

import pathlib
import re
import sys
import tempfile

from layers import CONFINED, SUFFIXES, check

UPWARD = "ops/window.hpp"
# A line that breaks a rule, and words of the message about it, by file.
WRONG = {
    **{f"bluefog_cpp/base/suffix{suffix}": (f'#include "{UPWARD}"', "which stands above it")
       for suffix in sorted(SUFFIXES)},
    "bluefog_cpp/base/g.cpp": (f'#import "{UPWARD}"', "which stands above it"),
    "bluefog_cpp/base/h.cpp": (f'#include_next "{UPWARD}"', "which stands above it"),
    "bluefog_cpp/base/i.cpp": (f'%:include "{UPWARD}"', "which stands above it"),
    "bluefog_cpp/base/j.cpp": (f'export import "{UPWARD}";', "which stands above it"),
    "bluefog_cpp/base/k.cpp": (f'#incl\\\nude \\\n"{UPWARD}"', "which stands above it"),
    "bluefog_cpp/base/l.cpp": (f'#define UP "{UPWARD}"\n#include UP', "an include by macro (UP)"),
    "bluefog_cpp/base/m.cpp": ("# /* x */ include_next UP(a)", "an include by macro (UP(a))"),
    "bluefog_cpp/base/r.cpp": (f'/* a\n*/ #include "{UPWARD}"', "r.cpp:1: base includes"),
    "bluefog_cpp/base/s.cpp": (f"\n#/* a\n*/include /* b\n*/ <{UPWARD}>", "s.cpp:2: base includes"),
    "bluefog_cpp/base/t.cpp": (f'auto a = "/*";\n#include "{UPWARD}"', "which stands above it"),
    "bluefog_cpp/base/u.cpp": (f"int a = 1'000; /* ' */ /* b\n*/\nimport <{UPWARD}>;",
                               "u.cpp:3: base includes"),
    "bluefog_cpp/base/w.cpp": (f'auto a = R"(/*)";\n#include "{UPWARD}"', "w.cpp:2: base includes"),
    "bluefog_cpp/base/v.cpp": ("#include <ops//window.hpp>", "from the root, as ops/window"),
    "bluefog_cpp/base/files/a.hpp": ('#include "bluefog_cpp/base/trace/trace.hpp"',
                                     "base/files must not include bluefog_cpp/base/trace"),
    "tools/bfrun/settings.cpp": ('#include "bluefog_cpp/base/settings/values.hpp"', "is private"),
    "bluefog_cpp/bootstrap/store/a.cpp": ('#include "bluefog_cpp/base/settings/values.hpp"',
                                          "values.hpp is private to its folder"),
    "bluefog_cpp/transport/shm/b.cpp": ('#include "bluefog_cpp/transport/tcp/streams/frame.hpp"',
                                        "transport/shm must not include bluefog_cpp/transport/tcp"),
    "bluefog_cpp/transport/tcp/a.cpp": ('#include "../shm/shm_transport.hpp"',
                                        "transport/tcp must not include bluefog_cpp/transport/shm"),
    "bluefog_cpp/device/cuda/a.cpp": ('#include "bluefog_cpp/device/nccl/nccl_api.hpp"',
                                      "device/cuda must not include bluefog_cpp/device/nccl"),
    "bluefog_cpp/device/strange/a.cpp": ("", "a folder that FOLDERS of"),
    "optimizers/algorithms/registry/a.cpp": (
        '#include "optimizers/algorithms/windows/win_put.hpp"',
        "registry must not include optimizers/algorithms/windows"),
    "bluefog_cpp/base/a.hpp": ('#include "ops/window.hpp"', "base includes ops.window, which"),
    "bluefog_cpp/base/b.cpp": ('#include "../context.hpp"', "base includes context, which stands"),
    "bluefog_cpp/base/c.cxx": ('/* x */ #include "ops/window.hpp"', "which stands above it"),
    "bluefog_cpp/base/d.cpp": ("#include <ops/window.hpp>", "which stands above it"),
    "bluefog_cpp/base/e.cpp": ('#include "nowhere.hpp"', "no file of this project is nowhere.hpp"),
    "bluefog_cpp/bootstrap/a.cpp": ('#include "bluefog_cpp/transport/transport.hpp"',
                                    "bootstrap includes transport, which stands above it"),
    "bluefog_cpp/engine/a.cpp": ('#include "bluefog_cpp/context.hpp"', "which stands above it"),
    "bluefog_cpp/engine/b.cpp": ('#include "bluefog_cpp/transport/shm/shm_transport.hpp"',
                                 "shm_transport.hpp is private to its folder"),
    "bluefog_cpp/transport/shm/a.cpp": ("#include <mpi.h>", "mpi.h belongs in"),
    "bluefog_cpp/device/a.cpp": ("#include <nccl.h>", "nccl.h belongs in"),
    "bluefog_cpp/device/b.cpp": ("#include <cuda_runtime_api.h>", "cuda_runtime_api.h belongs in"),
    "bluefog_cpp/transport/shm/halves.cpp": ("#include <cuda_fp16.h>", "cuda_fp16.h belongs in"),
    "bluefog_cpp/base/by_path.cpp": ("#include </usr/include/mpi.h>", "mpi.h belongs in"),
    "bluefog_cpp/device/c.cpp": ("#include <boost/graph/copy.hpp>", "belongs in topology"),
    "bluefog_cpp/context.hpp": ('#include "engine/engine.hpp"',
                                "a public header includes a private one"),
    "bluefog_cpp/strange/a.cpp": ("", "belongs to no room"),
    "membership/a.cpp": ("", "belongs to no room"),
    "topology/mixing/a.cpp": ('#include "bluefog_cpp/context.hpp"',
                              "topology.mixing must not include context"),
    "topology/mixing/b.cpp": ('#include "topology/static_graphs.hpp"', "which stands above it"),
    "bluefog_cpp/transport/a.cpp": ('#include "topology/neighbor_plan.hpp"',
                                    "which stands above it"),
    "ops/calls/a.cpp": ("  #  include <torch/torch.h>", "torch/torch.h belongs in"),
    "ops/calls/b.cpp": ('#include "optimizers/bucket.hpp"', "which stands above it"),
    "ops/calls/e.cpp": ("#include <pybind11/pybind11.h>", "pybind11/pybind11.h belongs in python"),
    "ops/window.hpp": ('#include "ops/window/window_call.hpp"',
                       "a public header includes a private one"),
    "optimizers/wrapper/a.cpp": ('#include "examples/models/cnn.hpp"', "which stands above it"),
    "optimizers/wrapper/b.cpp": ('#include "topology/mixing/sparse_rows.hpp"',
                                 "sparse_rows.hpp is private to its folder"),
    "examples/a.cpp": ('#include "bluefog_cpp/engine/engine.hpp"',
                       "engine.hpp is private to its folder"),
    "benchmarks/a.cpp": ('#include "bluefog_cpp/engine/engine.hpp"',
                         "engine.hpp is private to its folder"),
    "topology/graphs/a.cpp": ('#include "topology/mixing/sparse_rows.hpp"',
                              "sparse_rows.hpp is private to its folder"),
    "topology/graphs/b.cpp": ("#include <Eigen/Core>", "Eigen/Core belongs in topology/analysis"),
    "optimizers/wrapper/c.cpp": ('#include "optimizers/algorithms/windows/win_put.hpp"',
                                 "win_put.hpp is private to its folder"),
    "bluefog_cpp/base/o.cpp": ("#include <ops/../ops/window.hpp>", "from the root, as ops/window"),
    "bluefog_cpp/base/p.cpp": ('#include "ops//window.hpp"', "from the root, as ops/window.hpp"),
    "bluefog_cpp/base/q.cpp": ("#include <../ops/window.hpp>", "from the root, as ops/window.hpp"),
    "tools/bfrun/a.cpp": ('#include "tools/bftopo/commands.hpp"', "which stands above it"),
    "tools/bftrace/a.cpp": ('#include "tools/bfrun/options.hpp"',
                            "tools.bftrace must not include tools.bfrun"),
}
RIGHT = {
    "bluefog_cpp/transport/mpi/a.cpp": '#include <mpi.h>\n#include "bluefog_cpp/error.hpp"',
    "optimizers/buckets/a.hpp": '#include <ATen/core/Tensor.h>\n#include "ops/window.hpp"',
    "ops/calls/c.cpp": '// #include "optimizers/bucket.hpp"',
    "ops/calls/f.cpp": '/* a\n#include "optimizers/bucket.hpp"\n*/',
    "ops/calls/g.cpp": 'auto a = R"(\n#include "optimizers/bucket.hpp"\n)";',
    "ops/calls/d.cpp": '#include "bluefog_cpp/engine/engine.hpp"',
    "topology/analysis/a.cpp": '#include "topology/graphs/seeded_draws.hpp"',
    "bluefog_cpp/device/nccl/a.cpp": '#include "bluefog_cpp/device/cuda/cuda_api.hpp"',
    "bluefog_cpp/transport/b.cpp": '#include "bluefog_cpp/transport/tcp/streams/frame.hpp"',
    "bluefog_cpp/store/a.cpp": '#include "bluefog_cpp/base/trace/trace.hpp"',
    "bluefog_cpp/base/n.cpp": '// see \\\n#include "ops/window.hpp"\nimport_all(<a>);',
    "tests/unit/a.cpp": '#include "bluefog_cpp/transport/shm/shm_transport.hpp"',
    "benchmarks/b.cpp": '#include "bluefog_cpp/context/context_core.hpp"',
    "examples/b.cpp": '#include "bluefog_cpp/context.hpp"',
    # The headers that the lines above include.
    **dict.fromkeys(("bluefog_cpp/engine/engine.hpp", "bluefog_cpp/context/context_core.hpp",
                     "bluefog_cpp/transport/transport.hpp",
                     "bluefog_cpp/transport/shm/shm_transport.hpp", "examples/models/cnn.hpp",
                     "bluefog_cpp/base/settings/values.hpp", "bluefog_cpp/base/trace/trace.hpp",
                     "bluefog_cpp/device/cuda/cuda_api.hpp", "bluefog_cpp/device/nccl/nccl_api.hpp",
                     "bluefog_cpp/transport/tcp/streams/frame.hpp",
                     "optimizers/algorithms/windows/win_put.hpp",
                     "ops/window/window_call.hpp", "tools/bfrun/options.hpp",
                     "tools/bftopo/commands.hpp", "topology/graphs/seeded_draws.hpp",
                     "topology/mixing/sparse_rows.hpp"), ""),
}


def self_test():
    files = {name: text for name, (text, _) in WRONG.items()} | RIGHT
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = pathlib.Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        _, found = check(pathlib.Path(folder))
    problems = [f"not found: {name}: {words}" for name, (_, words) in WRONG.items()
                if not any(line.startswith(f"{name}:") and words in line for line in found)]
    problems += [f"unexpected: {line}" for line in found if line.split(":")[0] not in WRONG]
    problems += [f"no file breaks the rule of {pattern}" for pattern in CONFINED
                 if not any(re.search(rf"[<]{pattern}[>]", text) for text, _ in WRONG.values())]
    if problems:
        print("\n".join(problems))
        return 1
    print(f"{len(WRONG)} wrong files were found, {len(RIGHT)} right ones passed")
    return 0


if __name__ == "__main__":
    sys.exit(self_test())
