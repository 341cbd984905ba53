"""Reads the #include lines of every source and fails on what the layout of docs/architecture.md
does not allow: an arrow that runs up or sideways between rooms or the folders of a room, a public
header that includes a private one, a private header of another room, a header of others outside the
folders that confine it, a quoted header that is no file of this project, an include by macro.

    layers.py ROOT          check the sources below ROOT
    layers.py --floors ROOT print every room with the rooms that it uses
"""

import pathlib
import posixpath
import re
import subprocess
import sys

from cpp_pieces import lines_of

# Room: (folder, public headers that belong to it and lie elsewhere, rooms that it may use beside
# itself). The longest folder that fits decides. Rooms stand in the order of their floors: an arrow
# to a room further down in this table runs up, whatever a row allows.
BASE = ("base",)
RUNTIME = (*BASE, "store", "bootstrap", "transport", "engine", "device", "one_sided", "context")
TOPOLOGY = ("topology.mixing", "topology.graphs", "topology.analysis")
OPS = ("ops.sums", "ops.codes", "ops.calls", "ops.window")
OPTIMIZERS = ("optimizers.buckets", "optimizers.checks", "optimizers.algorithms",
              "optimizers.local", "optimizers.sampling", "optimizers.wrapper")
LIBRARIES = (*RUNTIME, *TOPOLOGY, *OPS, *OPTIMIZERS, "nn.stores", "nn", "pipeline.plans",
             "pipeline")
TOOLS = ("tools.command_line", "tools.bfrun", "tools.bftopo", "tools.bftrace")


def public(folder, names):
    return tuple(f"{folder}/{name}.hpp" for name in names.split())


ROOMS = {
    "base": ("bluefog_cpp/base",
             public("bluefog_cpp", "buffer_view deadline dtype error log machine_layout membership "
                                   "settings weighted_rank"), ()),
    "store": ("bluefog_cpp/store", public("bluefog_cpp", "store"), BASE),
    "bootstrap": ("bluefog_cpp/bootstrap",
                  public("bluefog_cpp", "bootstrap store_bootstrap thread_bootstrap"), RUNTIME[:2]),
    "transport": ("bluefog_cpp/transport", (), RUNTIME[:3]),
    "engine": ("bluefog_cpp/engine", public("bluefog_cpp", "work"), RUNTIME[:4]),
    "device": ("bluefog_cpp/device", (), RUNTIME[:5]),
    "one_sided": ("bluefog_cpp/one_sided", (), RUNTIME[:6]),
    "context": ("bluefog_cpp/context", public("bluefog_cpp", "context"), RUNTIME[:7]),
    "topology.mixing": ("topology/mixing",
                        public("topology", "machines_without mixing_matrix neighbor_plan "
                                           "plan_builder schedule translation_pattern"), BASE),
    "topology.graphs": ("topology/graphs",
                        public("topology",
                               "base_graph boost_graph ceca edge_list equitopo families "
                                           "lazy_mixing one_to_one static_graphs"),
                        BASE + TOPOLOGY[:1]),
    "topology.analysis": ("topology/analysis",
                          public("topology", "simulation spectral_gap step_cost "
                                             "step_traffic topology_report"), BASE + TOPOLOGY[:2]),
    "ops.sums": ("ops/sums", (), RUNTIME),
    "ops.codes": ("ops/codes", public("ops", "compression"), BASE + OPS[:1]),
    "ops.calls": ("ops/calls",
                  public("ops", "allgather allreduce barrier broadcast collectives "
                                "hierarchical_neighbor_allreduce neighbor_allgather "
                                "neighbor_allreduce neighbor_allreduce_multi neighbor_inference "
                                "options pair_gossip message parts reduce"),
                  RUNTIME + TOPOLOGY + OPS[:1]),
    "ops.window": ("ops/window", public("ops", "window"), RUNTIME + TOPOLOGY + OPS[:3]),
    "optimizers.buckets": ("optimizers/buckets",
                           public("optimizers", "algorithm averaging bucket bucket_averages "
                                                "early_step late_rank "
                                                "local_step parameter rethrow_in_backward "
                                                "round_calls"),
                           RUNTIME + TOPOLOGY + OPS),
    "optimizers.checks": ("optimizers/checks",
                          public("optimizers", "algorithm_name algorithm_row buffer_policy "
                                               "options row_sums"),
                          RUNTIME + TOPOLOGY + OPS + OPTIMIZERS[:1]),
    "optimizers.algorithms": ("optimizers/algorithms", (),
                              RUNTIME + TOPOLOGY + OPS + OPTIMIZERS[:2]),
    "optimizers.local": ("optimizers/local", public("optimizers", "accum_adam muon"),
                         BASE + OPTIMIZERS[:1]),
    "optimizers.sampling": ("optimizers/sampling", public("optimizers", "elastic_sampler"),
                            RUNTIME + OPS),
    "optimizers.wrapper": ("optimizers/wrapper",
                           public("optimizers", "bluefog checkpoint consensus "
                                                "distributed_optimizer optimizer_state "
                                                "parameter_collectives"),
                           RUNTIME + TOPOLOGY + OPS + OPTIMIZERS[:5]),
    "nn.stores": ("nn/stores", public("nn", "torch_store"), RUNTIME),
    "nn": ("nn/batch_norm", public("nn", "batch_statistics sync_batch_norm"),
           RUNTIME + TOPOLOGY + OPS + OPTIMIZERS),
    "pipeline.plans": ("pipeline/plans",
                       public("pipeline", "elastic_plan epoch_shares freeze_schedule partition "
                                          "pipeline_layout schedule_simulation stage_actions "
                                          "step_times"),
                       BASE),
    "pipeline": ("pipeline/runtime",
                 public("pipeline", "pipeline"),
                 (*RUNTIME, *TOPOLOGY, *OPS, *OPTIMIZERS, "pipeline.plans")),
    "tools.command_line": ("tools/command_line", (), ()),
    "tools.bfrun": ("tools/bfrun", (), RUNTIME[:2] + TOOLS[:1]),
    "tools.bftopo": ("tools/bftopo", (), BASE + TOPOLOGY + TOOLS[:1]),
    "tools.bftrace": ("tools/bftrace", (), BASE + TOOLS[:1]),
    "python": ("python", (), LIBRARIES),
    "python.c10d": ("python/c10d", (), (*RUNTIME, *TOPOLOGY, *OPS, "optimizers.buckets",
                                       "nn.stores")),
    "examples": ("examples", (), LIBRARIES + TOOLS[:1]),
    "benchmarks": ("benchmarks", (), (*LIBRARIES, "examples")),
    "tests": ("tests", (), LIBRARIES + TOOLS + ("python", "python.c10d", "examples", "benchmarks")),
}
FLOOR = {room: floor for floor, room in enumerate(ROOMS)}
HOME = {header: room for room, (_, headers, _) in ROOMS.items() for header in headers}
# Folder of a room of the libraries: those of the same room that it may use beside itself. A room's
# own files stand outside of this: they may use any of its folders, and be used by them.
FOLDERS = {
    "bluefog_cpp/base/files": (),
    "bluefog_cpp/base/settings": (),
    "bluefog_cpp/base/trace": ("files",),
    "bluefog_cpp/bootstrap/mpi": (),
    "bluefog_cpp/bootstrap/store": (),
    "bluefog_cpp/transport/shm": (),
    "bluefog_cpp/transport/mpi": (),
    "bluefog_cpp/transport/tcp": (),
    "bluefog_cpp/engine/records": (),
    "bluefog_cpp/engine/progress": ("records",),
    "bluefog_cpp/engine/exchange": (),
    "bluefog_cpp/device/cuda": (),
    "bluefog_cpp/device/calls": ("cuda",),
    "bluefog_cpp/device/nccl": ("cuda",),
    "bluefog_cpp/device/peer": ("cuda", "calls"),
    "bluefog_cpp/device/links": ("cuda", "nccl", "peer"),
    "ops/sums/cuda": (),
    "ops/calls/exchanges": (),
    "ops/window/device": (),
    "optimizers/buckets/windows": (),
    "optimizers/algorithms/registry": (),
    "optimizers/algorithms/codes": (),
    "optimizers/algorithms/consensus": ("registry",),
    "optimizers/algorithms/gradients": ("codes",),
    "optimizers/algorithms/momentum": ("registry",),
    "optimizers/algorithms/outer": ("codes", "registry"),
    "optimizers/algorithms/windows": ("registry",),
    "optimizers/wrapper/states": (),
    "optimizers/wrapper/steps": (),
}
# Folders of a room that are as open to others as the room itself.
OPEN_FOLDERS = ("bluefog_cpp/base/files", "bluefog_cpp/base/trace")
# Folders whose headers at the top level are public. Headers below are private: those of
# bluefog_cpp's rooms to the libraries of this project, others to their own room.
PUBLIC_FOLDERS = ("bluefog_cpp", "topology", "ops", "optimizers", "nn", "pipeline")
# Private headers that others use, by header: who.
DOORS = {
    "bluefog_cpp/base/settings/setting_values.hpp": ("python/",),
    "bluefog_cpp/bootstrap/store/exit_hooks.hpp": ("python/",),
    "bluefog_cpp/context/context_core.hpp": ("benchmarks/",),
    "bluefog_cpp/device/cuda/cuda_api.hpp": ("benchmarks/",),
    "bluefog_cpp/device/cuda/shared_object.hpp": ("benchmarks/",),
    "bluefog_cpp/device/device_channel.hpp": ("benchmarks/",),
    "bluefog_cpp/store/ended_ranks.hpp": ("tools/",),
    "bluefog_cpp/store/store_address.hpp": ("tools/",),
    "bluefog_cpp/store/store_server.hpp": ("tools/",),
    "ops/calls/allgather_parts.hpp": ("benchmarks/", "ops/window/", "optimizers/", "pipeline/",
                                      "python/"),
    "ops/calls/device_tensors.hpp": ("ops/window/",),
    "ops/calls/series.hpp": ("python/",),
    "ops/calls/start_call.hpp": ("ops/window/",),
    "ops/calls/validation.hpp": ("nn/", "ops/window/", "python/"),
    "ops/sums/arithmetic.hpp": ("ops/calls/",),
    "ops/sums/average.hpp": ("ops/calls/",),
    "ops/sums/combine.hpp": ("ops/calls/", "ops/window/"),
    "ops/sums/cuda/device_arithmetic.hpp": ("ops/window/",),
    "ops/sums/cuda/sum_kernels.hpp": ("benchmarks/",),
    "ops/sums/cuda/sum_loop.hpp": ("benchmarks/", "ops/calls/"),
    "ops/sums/fold.hpp": ("ops/calls/",),
    "ops/sums/half_lanes-inl.hpp": ("ops/codes/",),
    "ops/sums/operand.hpp": ("ops/calls/",),
    "ops/sums/result_log.hpp": ("ops/calls/",),
    "optimizers/algorithms/registry/algorithm_choice.hpp": ("optimizers/wrapper/",),
    "optimizers/algorithms/registry/algorithm_library.hpp": ("python/",),
    "optimizers/buckets/backward_passes.hpp": ("python/",),
    "optimizers/buckets/bound_values.hpp": ("optimizers/wrapper/",),
    "optimizers/buckets/bucket_memory.hpp": ("optimizers/wrapper/", "pipeline/"),
    "optimizers/buckets/bucket_readiness.hpp": ("optimizers/algorithms/", "pipeline/"),
    "optimizers/buckets/fingerprint.hpp": ("pipeline/", "python/"),
    "optimizers/buckets/flat_arithmetic.hpp": ("nn/", "optimizers/algorithms/"),
    "optimizers/buckets/flat_state.hpp": ("optimizers/algorithms/", "optimizers/wrapper/"),
    "optimizers/buckets/gradient_hooks.hpp": ("optimizers/algorithms/", "optimizers/wrapper/",
                                              "pipeline/"),
    "optimizers/buckets/gradient_placement.hpp": ("optimizers/algorithms/",),
    "optimizers/buckets/left_values.hpp": ("optimizers/algorithms/",),
    "optimizers/buckets/torch_dtype.hpp": ("python/",),
    "optimizers/buckets/weighted_sums.hpp": ("optimizers/algorithms/",),
    "optimizers/buckets/windows/bucket_windows.hpp": ("optimizers/algorithms/",),
    "optimizers/buckets/windows/late_sources.hpp": ("optimizers/algorithms/",),
    "optimizers/checks/agreement.hpp": ("optimizers/wrapper/", "pipeline/", "python/"),
    "optimizers/sampling/common_deal.hpp": ("python/",),
    "optimizers/sampling/deal.hpp": ("python/",),
    "optimizers/wrapper/newcomers.hpp": ("python/",),
    "optimizers/wrapper/states/parameter_states.hpp": ("pipeline/",),
    "optimizers/checks/mixing_requirements.hpp": ("optimizers/algorithms/",),
    "optimizers/checks/model_check.hpp": ("optimizers/wrapper/",),
    "optimizers/checks/model_statement.hpp": ("optimizers/wrapper/",),
    "optimizers/checks/rate_watch.hpp": ("optimizers/wrapper/",),
    "optimizers/checks/momentum_growth.hpp": ("optimizers/algorithms/",),
    "pipeline/runtime/activation_cache.hpp": ("python/",),
    "topology/analysis/least_eigenvalue.hpp": ("optimizers/",),
    "topology/graphs/seeded_draws.hpp": ("topology/analysis/",),
    "topology/mixing/plan_agreement.hpp": ("ops/",),
    "topology/mixing/sender_weights.hpp": ("optimizers/",),
    "topology/mixing/step_component.hpp": ("ops/",),
    "topology/mixing/step_graph.hpp": ("ops/",),
}
# MPI's own part of a room may use that of a room below.
MPI_FOLDERS = ("bluefog_cpp/bootstrap/mpi/", "bluefog_cpp/transport/mpi/")
# Headers of others, and the only folders that may include them.
CONFINED = {
    r"(\S*/)?(mpi|mpi-ext)\.h": ("bluefog_cpp/bootstrap/mpi", "bluefog_cpp/transport/mpi",
                                 "tests/mpi", "tests/hosts", "benchmarks"),
    r"(\S*/)?nccl\.h": ("bluefog_cpp/device/nccl", "tests"),
    r"(\S*/)?cu(da|blas|dnn|fft|rand|solver|sparse)\w*\.h": (
        "bluefog_cpp/device/cuda", "bluefog_cpp/device/nccl", "ops/sums/cuda", "tests"),
    r"(torch|ATen|c10)/.*": ("optimizers", "nn", "pipeline", "examples", "python", "tests",
                             "benchmarks"),
    r"boost/graph/.*": ("topology", "tests"),
    r"(Eigen|Spectra)/.*": ("topology/analysis", "examples/least_squares", "tests"),
    r"pybind11/.*": ("python",),
}
SUFFIXES = {".hpp", ".cpp", ".h", ".cc", ".cu", ".cuh", ".inl", ".cxx", ".c++", ".hh", ".hxx",
            ".ipp", ".inc", ".tpp", ".tcc", ".txx", ".ixx", ".cppm", ".c", ".cl", ".h++", ".m",
            ".mm", ".def"}
# `import` with a header, and `%:`, which is another way to write `#`, include as well.
DIRECTIVE = (r"^\s*(?:(?:#|%:)\s*(?:include_next|include|import)\b"
             r"|(?:export\s+)?import\b(?=\s*[\"<]))\s*")
INCLUDE = re.compile(DIRECTIVE + r'(["<])([^">]+)[">]')
BY_MACRO = re.compile(DIRECTIVE + r'([^"<\s].*)')
# Quoted headers that a build makes.
MADE = ()


def room_of(path):
    if path in HOME:
        return HOME[path]
    fitting = [(len(folder), name) for name, (folder, _, _) in ROOMS.items()
               if path.startswith(folder + "/")]
    return max(fitting)[1] if fitting else None


def folder_of(path):
    """The inner folder of a library's room that a file lies in, or None."""
    parts = path.split("/")
    return "/".join(parts[:3]) if len(parts) > 3 and parts[0] in PUBLIC_FOLDERS else None


def is_public(path):
    parts = path.split("/")
    return len(parts) == 2 and parts[0] in PUBLIC_FOLDERS


def is_hidden(path, included):
    """Whether `included` is private to a folder that `path` does not lie in."""
    parts = included.split("/")
    if is_public(included) or path.startswith(("tests/", *DOORS.get(included, ()))):
        return False
    if parts[0] == "bluefog_cpp":
        if path.startswith(MPI_FOLDERS) and included.startswith(MPI_FOLDERS):
            return False
        # A room is open to this project's libraries, its inner folders to the room alone.
        is_inner = (len(parts) > 3 and folder_of(included) not in OPEN_FOLDERS
                    and not path.startswith("/".join(parts[:2]) + "/"))
        if path.split("/")[0] in ("tools", "examples", "benchmarks"):
            return parts[1] != "base" or is_inner
        return is_inner
    return parts[0] in PUBLIC_FOLDERS and room_of(path) != room_of(included)


def resolved(path, quote, included, files):
    """The file of this project that a line of `path` includes, as a path from the root, or None."""
    if included in files or included in HOME:
        return included
    beside = posixpath.normpath(posixpath.join(posixpath.dirname(path), included))
    return beside if quote == '"' and (beside in files or beside in HOME) else None


def violations_of(path, text, files):
    room = room_of(path)
    if room is None:
        yield f"{path}: belongs to no room: name it in tests/package/layers.py"
        return
    folder = folder_of(path)
    if folder is not None and folder not in FOLDERS:
        yield f"{path}: lies in a folder that FOLDERS of tests/package/layers.py does not name"
        return
    allowed = ROOMS[room][2]
    for number, line in lines_of(text):
        at = f"{path}:{number}"
        if by_macro := BY_MACRO.match(line):
            yield f"{at}: an include by macro ({by_macro[1].strip()}), which no test can follow"
        match = INCLUDE.match(line)
        if not match:
            continue
        quote, written = match.groups()
        plain = posixpath.normpath(written).removeprefix("../")
        if plain != written and (quote == "<" or "//" in written):
            yield f"{at}: <{written}>: expected the path of a header from the root, as {plain}"
        included = resolved(path, quote, written, files)
        if included is None:
            if quote == '"' and written not in MADE:
                yield f"{at}: no file of this project is {written}: others stand in <>"
            for pattern, folders in CONFINED.items():
                if re.fullmatch(pattern, written) and not any(
                        path.startswith(folder + "/") for folder in folders):
                    yield f"{at}: {written} belongs in {', '.join(folders)} only"
            continue
        target = room_of(included)
        if target and target != room:
            if FLOOR[target] > FLOOR[room]:
                yield f"{at}: {room} includes {target}, which stands above it ({included})"
            elif target not in allowed:
                yield f"{at}: {room} must not include {target} ({included})"
        beside = folder_of(included)
        if (folder and beside and folder != beside and target == room
                and beside.split("/")[2] not in FOLDERS[folder]):
            yield f"{at}: the folder {folder} must not include {beside} ({included})"
        if is_public(path) and not is_public(included):
            yield f"{at}: a public header includes a private one ({included})"
        elif is_hidden(path, included):
            yield f"{at}: {included} is private to its folder"


def files_below(root):
    """Every C++ source that git knows or would add; without git, every one there is."""
    if (root / ".git").exists():
        listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=root,
                                text=True, check=True, stdout=subprocess.PIPE).stdout.splitlines()
    else:
        listed = [path.relative_to(root).as_posix() for path in root.rglob("*")
                  if not path.relative_to(root).parts[0].startswith(("build", "."))]
    return sorted(name for name in listed
                  if pathlib.Path(name).suffix in SUFFIXES and (root / name).is_file())


def sources_below(root):
    for name in files_below(root):
        yield name, (root / name).read_text(errors="replace")


def check(root):
    files = set(files_below(root))
    found = [line for path, text in sources_below(root)
             for line in violations_of(path, text, files)]
    return len(files), found


def print_floors(root):
    used, counts = {room: set() for room in ROOMS}, dict.fromkeys(ROOMS, 0)
    files = set(files_below(root))
    for path, text in sources_below(root):
        room = room_of(path)
        counts[room] += 1
        includes = (INCLUDE.match(line) for _, line in lines_of(text))
        headers = (resolved(path, *match.groups(), files) for match in includes if match)
        used[room] |= {room_of(header) for header in headers if header} - {room, None}
    for room in ROOMS:
        names = ", ".join(sorted(used[room], key=FLOOR.get)) or "nothing of ours"
        print(f"{FLOOR[room]:2} {room} ({counts[room]} files): {names}")


def main():
    if sys.argv[1:2] == ["--floors"]:
        print_floors(pathlib.Path(sys.argv[2]))
        return 0
    count, found = check(pathlib.Path(sys.argv[1]))
    print("\n".join(found))
    print(f"{count} files, {len(found)} includes in a forbidden direction")
    return 1 if found or not count else 0


if __name__ == "__main__":
    sys.exit(main())
