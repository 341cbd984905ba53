"""Ranks that come and go by bfrun --host-discovery, and those of torchrun with an agent for each.

coming_and_going.py BFRUN [CASE...]     runs the cases: discovery, agents, one_agent
coming_and_going.py --rank CASE         is one rank of a job
"""

import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "support" / "python"))
import preloaded

STEPS = 60
DIES_IN = 20
VICTIM = 1
LONGEST_S = 120


def rank_of(case: str) -> None:
    """Trains until the ranks have come and gone as the case wants them to."""
    import torch

    import bluefog_cpp.torch as bf

    bf.init()
    torch.manual_seed(1)
    model = torch.nn.Linear(4, 1)
    bf.broadcast_parameters(model.state_dict(), 0)
    optimizer = bf.DistributedAdaptThenCombineOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.01), model)
    signal.signal(signal.SIGTERM, lambda *_: bf.leave())
    bf.enter()
    folder = pathlib.Path(os.environ.get("HOSTS_FOLDER", "."))
    begin = time.monotonic()
    step = 0
    while time.monotonic() - begin < LONGEST_S:
        if case != "discovery":
            if step == DIES_IN and bf.size() == 3 and bf.rank() == VICTIM:
                os.kill(os.getpid(), signal.SIGKILL)
            if step == STEPS:
                break
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
        step += 1
        time.sleep(0.01)
        if bf.has_left():
            print("a rank has left", flush=True)
            return
        members = bf.membership()
        if case == "discovery" and bf.rank() == 0:
            has_grown = bool(members.joined)
            (folder / "hosts").write_text(f"localhost:{2 if has_grown else 3}\n")
        if case == "discovery" and members.lost and members.joined:
            break
    members = bf.membership()
    optimizer.finish()
    print(f"rank {members.ranks[bf.rank()]} of {bf.size()}: lost "
          f"{[each.rank for each in members.lost]}, joined "
          f"{[each.rank for each in members.joined]}", flush=True)


def check_discovery(bfrun: str, server: preloaded.Server) -> str | None:
    """A third slot comes, a rank joins; the slot vanishes, and the rank leaves in good order."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "hosts").write_text("localhost:2\n")
        script = folder / "discover"
        script.write_text(f"#!/bin/sh\ncat {folder}/hosts\n")
        script.chmod(0o755)
        job = subprocess.run(
            [bfrun, "-np", "2", "--min-np", "2", "--max-np", "3", "--host-discovery", str(script),
             *server.command(__file__, "--rank", "discovery")],
            capture_output=True, text=True, timeout=LONGEST_S + 30, check=False,
            env={**server.environment, "HOSTS_FOLDER": name})
    lines = sorted(job.stdout.splitlines())
    expected = ["a rank has left", "rank 0 of 2: lost [2], joined [2]",
                "rank 1 of 2: lost [2], joined [2]"]
    if job.returncode != 0 or lines != expected or "rank 2 has left" not in job.stderr:
        return (f"expected {expected} and code 0, found {lines} and {job.returncode}\n"
                f"{job.stderr}")
    return None


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def run_agents(server: preloaded.Server, count: int, ranks_each: int, is_over) -> list[str]:
    """What the ranks of torchrun's agents say, until `is_over(words)`. Agents whose ranks have
    ended well wait for five minutes for those of others, and are ended."""
    port = free_port()
    environment = {**server.environment, "BLUEFOG_ON_FAILURE": "shrink", "BLUEFOG_TIMEOUT": "30",
                   "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as name:
        paths = [pathlib.Path(name) / f"agent{number}" for number in range(count)]
        agents = []
        for number, path in enumerate(paths):
            with path.open("w") as out:
                agents.append(subprocess.Popen(
                    [*server.command("-m", "torch.distributed.run"), f"--nnodes={count}",
                     f"--nproc-per-node={ranks_each}", f"--node-rank={number}",
                     "--master-addr=127.0.0.1", f"--master-port={port}", "--no-python",
                     *server.command(__file__, "--rank", "agents")], stdout=out,
                    stderr=subprocess.STDOUT, env=environment))
        begin = time.monotonic()
        try:
            while True:
                words = [path.read_text() for path in paths]
                has_ended = all(agent.poll() is not None for agent in agents)
                if is_over(words) or has_ended or time.monotonic() - begin > LONGEST_S:
                    return words
                time.sleep(0.2)
        finally:
            for agent in agents:
                agent.terminate()
            for agent in agents:
                agent.wait(60)


def ends_in(words: list[str]) -> list[str]:
    return sorted(re.findall(r"rank \d of \d: .*", "\n".join(words)))


def check_agents(_: str, server: preloaded.Server) -> str | None:
    """A rank is killed, its agent ends, and the ranks of the other agents go on to the end."""
    words = run_agents(server, 3, 1, lambda words: len(ends_in(words)) == 2)
    expected = ["rank 0 of 2: lost [1], joined []", "rank 2 of 2: lost [1], joined []"]
    return None if ends_in(words) == expected else (
        f"expected {expected}, found {ends_in(words)}\n" + "\n".join(words))


def check_one_agent(_: str, server: preloaded.Server) -> str | None:
    """An agent ends all of its ranks when one fails: nobody comes to the end."""
    words = run_agents(server, 1, 3, lambda _: False)
    is_so = not ends_in(words) and "Signal 9" in words[0]
    return None if is_so else f"expected that nobody comes to the end\n{words[0]}"


def main() -> None:
    checks = {"discovery": check_discovery, "agents": check_agents, "one_agent": check_one_agent}
    with preloaded.Server() as server:
        for case in sys.argv[2:] or checks:
            problem = checks[case](sys.argv[1], server)
            if problem is not None:
                sys.exit(f"{case}: {problem}")
            print(f"{case}: passed", flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "--rank":
        rank_of(sys.argv[2])
    else:
        main()
