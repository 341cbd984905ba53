"""Starts without MPI: torchrun, variables alone, torch's default group, a store handed over."""

import os
import pathlib
import re
import socket
import subprocess
import sys

import pytest
from torch.distributed import HashStore

import bluefog_cpp.torch as bf
from bluefog_cpp.errors import ArgumentTypeError, InvalidArgument, StateError, TransportError

BUILD = pathlib.Path(os.environ["PYTHONPATH"].split(os.pathsep)[0]).parent
BFRUN = str(BUILD / "tools/bfrun/bfrun")
PROGRAM = str(pathlib.Path(__file__).resolve().parents[1] / "programs/starting.py")
OF_LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR",
                "MASTER_PORT")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def environment(**variables):
    own = {name: value for name, value in os.environ.items()
           if name not in OF_LAUNCHERS and not name.startswith(("BFRUN_", "OMPI_COMM", "PMIX_"))}
    return {**own, "BLUEFOG_TIMEOUT": "60", **variables}


def started(command, variables):
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=environment(**variables))


def words_of(job):
    """Output and errors of a job, which is ended where it takes too long: torchrun, told to end,
    ends its ranks, which are sessions of their own."""
    try:
        return job.communicate(timeout=300)
    except subprocess.TimeoutExpired:
        job.terminate()
        job.communicate(timeout=60)
        raise


def launched(ranks, *program, options=(), **variables):
    """(exit code, sorted lines of output, standard error) of a program under torchrun."""
    job = started([sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}",
                   f"--master-port={free_port()}", *options, *map(str, program)], variables)
    output, errors = words_of(job)
    return job.returncode, sorted(output.splitlines()), errors


def torchrun(ranks, *ways, options=(), **variables):
    """The same of the program of this file."""
    return launched(ranks, PROGRAM, *ways, options=options, **variables)


def by_variables(places, *ways, **variables):
    """The same of processes that a launcher has given these variables each."""
    jobs = [started([sys.executable, PROGRAM, *ways], {**variables, **place}) for place in places]
    words = [words_of(job) for job in jobs]
    return (max(job.returncode for job in jobs), sorted(out.strip() for out, _ in words),
            "".join(errors for _, errors in words))


def places(ranks, size=None, host="127.0.0.1"):
    port = free_port()
    return [{"RANK": str(rank), "WORLD_SIZE": str(size or len(ranks)), "MASTER_ADDR": host,
             "MASTER_PORT": port} for rank in ranks]


def lines_of(size):
    return [f"rank {rank} of {size}: {(size - 1) / 2}" for rank in range(size)]


def expect_success(found, size):
    code, lines, errors = found
    assert code == 0, errors
    assert lines == lines_of(size), errors


@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.long), 4])
def test_torchrun(ranks):
    found = torchrun(ranks, BLUEFOG_LOG_LEVEL="info")
    expect_success(found, ranks)
    if ranks > 1:
        by = f"torchrun (RANK=0 and WORLD_SIZE={ranks}), over the store of torchrun at "
        assert f"{ranks} ranks, started by {by}" in found[2]


@pytest.mark.parametrize("ways", [
    ["group_first", "ddp"],
    pytest.param(["group_first", "backend"], marks=pytest.mark.long),
    pytest.param(["group_after", "twice"], marks=pytest.mark.long)])
def test_torchrun_beside_torchs_group(ways):
    expect_success(torchrun(2, *ways), 2)


@pytest.mark.long
def test_a_rendezvous_of_torchrun():
    expect_success(torchrun(2, options=["--rdzv-backend=c10d", "--rdzv-id=job",
                                        f"--rdzv-endpoint=localhost:{free_port()}"]), 2)


@pytest.mark.long
@pytest.mark.parametrize(("launcher", "ways"), [
    ("own", ["group_first", "backend"]), ("own", ["group_after"]), ("mpirun", ["group_first"])])
def test_bfrun_beside_torchs_group(launcher, ways):
    job = started([BFRUN, "-np", "2", "--launcher", launcher, sys.executable, PROGRAM, *ways], {})
    output, errors = words_of(job)
    expect_success((job.returncode, sorted(output.splitlines()), errors), 2)


@pytest.mark.long
def test_two_jobs_at_once():
    jobs = [started([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2",
                     f"--master-port={free_port()}", PROGRAM], {}) for _ in range(2)]
    for job in jobs:
        output, errors = words_of(job)
        expect_success((job.returncode, sorted(output.splitlines()), errors), 2)


def test_torchrun_starts_ranks_again():
    code, lines, errors = torchrun(2, "fail_once", options=["--max-restarts=1"])
    assert code == 0, errors
    assert lines[-2:] == lines_of(2)


@pytest.mark.long
def test_children_under_torchrun_are_refused():
    found = torchrun(2, "spawn", "fork", "forkserver")
    expect_success(found, 2)
    assert found[2].count("is process") >= 4
    assert found[2].count("was forked from process") >= 2


@pytest.mark.parametrize("ways", [
    ["group_first"], pytest.param(["group_after", "twice"], marks=pytest.mark.long)])
def test_variables_alone(ways):
    expect_success(by_variables(places([1, 0]), *ways), 2)


@pytest.mark.long
def test_variables_name_a_host():
    expect_success(by_variables(places([1, 0, 2], host="localhost")), 3)


@pytest.mark.long
def test_ranks_on_several_hosts():
    expect_success(by_variables(places([0, 1]), "hosts"), 2)


def test_a_store_that_the_program_hands_over(tmp_path):
    found = by_variables([{"PLACE": str(rank), "PLACES": "2"} for rank in range(2)], "store",
                         str(tmp_path / "store"), BLUEFOG_LOG_LEVEL="info")
    expect_success(found, 2)
    by = "the program (a store handed over), over the store that init was given"
    assert f"2 ranks, started by {by}" in found[2]


def test_a_store_and_a_launcher_that_disagree(tmp_path):
    """The program says rank 0 of 1, and torchrun another place: either would train alone."""
    code, _, errors = by_variables(
        [{"PLACE": "0", "PLACES": "1", "RANK": "1", "WORLD_SIZE": "2",
          "TORCHELASTIC_RUN_ID": "none"}], "store", str(tmp_path / "store"))
    assert code == 1
    assert ("rank 0 of 1, by the program beside the store that it hands over, and RANK=1 and "
            "WORLD_SIZE=2, by torchrun: expected both to name the same rank and number") in errors


def test_a_store_beside_a_launcher_that_agrees(tmp_path):
    expect_success(by_variables(
        [{"PLACE": str(rank), "PLACES": "2", "RANK": str(rank), "WORLD_SIZE": "2"}
         for rank in range(2)], "store", str(tmp_path / "store")), 2)


def test_a_rank_that_never_comes_is_named():
    code, _, errors = by_variables(places([0, 2], size=3), BLUEFOG_TIMEOUT="3")
    assert code == 1
    # The store goes with rank 0: the other one hears of either.
    assert "on rank 0, over the store of rank 0 at 127.0.0.1:" in errors
    assert "rank 1 has not come" in errors
    assert "on rank 2, over the store of rank 0 at 127.0.0.1:" in errors
    assert "expected all 3 ranks within 3 s (BLUEFOG_TIMEOUT)" in errors


@pytest.mark.parametrize(("rank", "words"), [
    ("0", "rank 0, init: cannot keep the store of rank 0 at 127.0.0.1:"),
    ("1", "rank 1, init: cannot reach the store of rank 0 at 127.0.0.1:")])
def test_a_stranger_at_the_port(rank, words):
    """Who listens there and says nothing holds nobody up."""
    with socket.socket() as stranger:
        stranger.bind(("", 0))
        stranger.listen()
        port = str(stranger.getsockname()[1])
        place = {"RANK": rank, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        code, _, errors = by_variables([place], BLUEFOG_TIMEOUT="5")
    assert code == 1
    assert words + port in errors


@pytest.mark.parametrize(("address", "reason"), [
    ("nowhere.invalid", "[Nn]ame|resolution"), ("127.0.0.1", "refused")])
def test_nobody_at_the_address(address, reason):
    """It is tried until the timeout, and why it failed is in the error."""
    place = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": address, "MASTER_PORT": free_port()}
    code, _, errors = by_variables([place], BLUEFOG_TIMEOUT="2")
    assert code == 1
    where = f"the store of rank 0 at {address}:{place['MASTER_PORT']}"
    assert re.search(rf"Error: rank 1, init: cannot reach {where}: .*({reason})", errors), errors


def test_a_setting_of_one_rank_that_cannot_be_read():
    """The other one hears of it at once."""
    one, other = places([0, 1])
    code, _, errors = by_variables([one, {**other, "BLUEFOG_TCP_PORTS": "abc"}])
    assert code == 1
    words = r"Context::create: (rank 1 refused: )?BLUEFOG_TCP_PORTS=abc: expected"
    assert {found for found in ("rank 0", "rank 1") if re.search(f"{found}, {words}", errors)} == {
        "rank 0", "rank 1"}, errors


@pytest.mark.long
def test_another_number_of_ranks_than_expected():
    code, _, errors = by_variables(places([0, 1]), BLUEFOG_EXPECT_SIZE="4")
    assert code == 1
    assert "BLUEFOG_EXPECT_SIZE=4: expected that many ranks, found 2" in errors


# C++ tests which variables make sense (launcher.run.launchers_of_others); here, that Python's
# start asks them too.
@pytest.mark.parametrize(("variables", "words"), [
    pytest.param({"RANK": "0", "WORLD_SIZE": "abc"},
                 "RANK=0 and WORLD_SIZE=abc: expected a number of ranks", marks=pytest.mark.long),
    ({"RANK": "1"}, "RANK=1: expected WORLD_SIZE beside it, found none"),
    ({"SLURM_NTASKS": "4", "SLURM_PROCID": "0"},
     "SLURM_NTASKS=4: expected 4 processes that a launcher started"),
    pytest.param({"MPT_MPI_RANK": "1", "MPT_MPI_SIZE": "2"},
                 "MPT_MPI_RANK=1 and MPT_MPI_SIZE=2 say that", marks=pytest.mark.long)])
def test_variables_that_make_no_sense(variables, words):
    code, _, errors = by_variables([variables])
    assert code == 1
    assert words in errors


@pytest.mark.parametrize("variables", [
    pytest.param({"RANK": "0"}, marks=pytest.mark.long),
    pytest.param({"WORLD_SIZE": "1"}, marks=pytest.mark.long),
    {"RANK": "0", "WORLD_SIZE": "1"},
    pytest.param({"SLURM_NTASKS": "4", "BLUEFOG_EXPECT_SIZE": "1"}, marks=pytest.mark.long)])
def test_variables_of_one_rank_are_quiet(variables):
    expect_success(by_variables([variables]), 1)


@pytest.mark.long
def test_a_group_names_its_ranks_itself():
    expect_success(by_variables([{"PLACE": "0", "PLACES": "1", "RANK": "1"}], "own_group"), 1)


@pytest.mark.long
def test_two_launchers_that_disagree():
    code, _, errors = by_variables(
        places([0, 1]), OMPI_COMM_WORLD_RANK="0", OMPI_COMM_WORLD_SIZE="4")
    assert code == 1
    assert "OMPI_COMM_WORLD_RANK=0 and OMPI_COMM_WORLD_SIZE=4, by Open MPI, and RANK=" in errors


def test_arguments_of_init():
    class Store:
        def set(self, key, value): ...

    with pytest.raises(ArgumentTypeError, match="^init: store: expected a torch.distributed.Store"):
        bf.init(store=5, rank=0, size=1)
    with pytest.raises(ArgumentTypeError, match=r"which has no get\(\)"):
        bf.init(store=Store(), rank=0, size=1)
    with pytest.raises(InvalidArgument, match="^init: rank: expected a store with it"):
        bf.init(rank=0, size=1)
    store = HashStore()
    with pytest.raises(InvalidArgument, match="^init: size: expected an integer beside the store"):
        bf.init(store=store, rank=0)
    with pytest.raises(InvalidArgument, match="^init: rank: expected 1 or less, found 2"):
        bf.init(store=store, rank=2, size=2)
    assert not bf.is_initialized()
    bf.init(store=store, rank=0, size=1)
    with pytest.raises(StateError, match="expected no store, rank or size after"):
        bf.init(store=store, rank=0, size=1)
    assert bf.size() == 1
    bf.shutdown()


def test_a_store_that_fails_is_an_error():
    class Failing(HashStore):
        def check(self, keys):
            raise RuntimeError("the store is gone")

    with pytest.raises(TransportError, match="the store is gone"):
        bf.init(store=Failing(), rank=1, size=2)
    assert not bf.is_initialized()
