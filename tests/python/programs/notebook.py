"""`ibfrun start`, the cells of the notebook, `ibfrun stop`.

    notebook.py BFRUN RANKS
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import ipyparallel  # noqa: F401 its programs are run
    import matplotlib
except ImportError as error:
    print(f"SKIPPED: {error}")
    sys.exit(77)

NOTEBOOK = pathlib.Path(__file__).resolve().parents[3] / "examples/interactive_ranks.ipynb"


def ibfrun(*words):
    done = subprocess.run([sys.executable, "-m", "bluefog_cpp.ibfrun", *words], capture_output=True,
                          text=True, check=False)
    print(done.stdout, done.stderr)
    return done


def run_cells():
    """The variables of the notebook after its cells have run."""
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config
    config = Config()
    config.HistoryManager.enabled = False  # its folder goes before it does
    shell = InteractiveShell.instance(config=config)
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        if cell["cell_type"] == "code":
            shell.run_cell(cell["source"]).raise_error()
    return shell.user_ns


def main():
    bfrun, ranks = sys.argv[1], int(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(IPYTHONDIR=folder,
                          PATH=f"{pathlib.Path(bfrun).parent}:{os.environ['PATH']}")
        matplotlib.use("agg")
        assert "no ranks were running" in ibfrun("stop").stdout
        assert "found 0" in ibfrun("start", "-np", "0").stderr
        try:
            started = ibfrun("start", "-np", str(ranks))
            assert started.returncode == 0 and f"{ranks} ranks are there" in started.stdout
            assert "running already" in ibfrun("start", "-np", str(ranks)).stderr
            variables = run_cells()
            assert variables["means"] == [(ranks - 1) / 2] * ranks, variables["means"]
            assert variables["engines"].apply_sync(os.getenv,
                                                   "RANK") == [str(r) for r in range(ranks)]
            variables["client"].close()
        finally:
            log = pathlib.Path(folder, "profile_bluefog/log/ibfrun.log")
            print(log.read_text() if log.exists() else "no log")
            stopped = ibfrun("stop")
        assert "the ranks have ended" in stopped.stdout
        assert "no ranks were running" in ibfrun("stop").stdout


if __name__ == "__main__":
    main()
