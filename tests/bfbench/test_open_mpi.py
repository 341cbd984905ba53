"""Open MPI's components, settings and ways."""

import pytest

from bfbench import open_mpi, operations
from bfbench.launch import Launcher
from test_jobs import operations_arguments

SAID = """package:Open MPI root@x Distribution
mca:coll:tuned:version:"mca:2.1.0"
mca:coll:tuned:version:"component:5.0.11"
mca:coll:xhc:version:"component:5.0.11"
mca:coll:xhc:param:coll_xhc_priority:value:0
mca:smsc:cma:version:"component:5.0.11"
mca:io:ompio:version:"component:5.0.11"
"""


@pytest.fixture
def said(monkeypatch):
    """A function that has ompi_info say something else."""
    def say(text):
        open_mpi.components.cache_clear()
        monkeypatch.setattr(open_mpi, "words_of", lambda *_: text)
    yield say
    open_mpi.components.cache_clear()


def test_components_are_those_that_tell_in_times(said):
    said(SAID)
    assert open_mpi.components() == {"smsc": ["cma"], "coll": ["tuned", "xhc"]}
    said("")
    assert open_mpi.components() == {}


def test_settings_are_of_the_jobs_environment():
    assert open_mpi.settings({"OMPI_MCA_btl": "self,sm", "PATH": "x", "OMPI_COMM": "y"}) == {
        "OMPI_MCA_btl": "self,sm"}


def test_a_single_copy_needs_a_component_and_leave_to_read(said, monkeypatch):
    said(SAID)
    monkeypatch.setattr(open_mpi, "reads_other_processes", lambda: True)
    if open_mpi.single_copy() != "cma":
        assert "ptrace_scope" in open_mpi.single_copy()
    monkeypatch.setattr(open_mpi, "reads_other_processes", lambda: False)
    assert open_mpi.single_copy().startswith("none: ")
    said(SAID.replace("smsc:cma", "smsc:knem"))
    assert "no component of smsc" in open_mpi.single_copy()


def test_xhc_is_measured_where_open_mpi_has_it(said, monkeypatch):
    def side_and_reason():
        found, = [side for side in operations.sides_of(args) if side.way]
        return found, operations.why_not_here(None, found, 2)

    args = operations_arguments()
    said(SAID.replace("xhc", "han"))
    assert side_and_reason()[1] == "this Open MPI has no component xhc of coll"
    said(SAID)
    side, reason = side_and_reason()
    assert reason == "" and side.who == "Open MPI with xhc"
    told = {}

    def run(self, *words):
        told["xhc"] = self.environment.get("OMPI_MCA_coll_xhc_priority")
        told["ops"] = words[words.index("--ops") + 1]
        return [{"peer": peer, "op": op} for peer, op in (("Open MPI", "MPI_Allreduce"),
                                                          ("memcpy", "memcpy, own"))]

    monkeypatch.setattr(Launcher, "run", run)
    monkeypatch.setattr(Launcher, "require", lambda self, _: None)
    jobs = operations.Jobs()
    assert operations.measure_side(args, Launcher(operations.hosts.ROOT), side, 2, "float32", jobs
                                   ) == [{"peer": "Open MPI", "op": "MPI_Allreduce, xhc",
                                          "settings": {"OMPI_MCA_coll_xhc_priority": "100"}}]
    assert told == {"xhc": "100", "ops": "MPI_Allreduce"}
    args.without = ["mpi"]
    assert not any(side.way for side in operations.sides_of(args))
