"""The Dockerfile installs what setting up installs, and its small image has what programs need."""

import importlib.util
import pathlib
import re
import shlex
import shutil
import subprocess

import pytest

from manifests import ROOT

IMAGE = ROOT / "examples/clusters/image"


def stages():
    """The instructions of each stage, as (instruction, value)."""
    parser = pytest.importorskip("dockerfile_parse",
                                 reason="the package dockerfile-parse is not installed")
    found = []
    for part in parser.DockerfileParser(str(IMAGE), cache_content=True).structure:
        if part["instruction"] == "FROM":
            found.append([])
        if part["instruction"] != "COMMENT":
            found[-1].append((part["instruction"], part["value"]))
    return found


def values(stage, instruction):
    return [value for name, value in stage if name == instruction]


def commands(stage):
    return [shlex.split(command) for value in values(stage, "RUN") for command in value.split("&&")]


def packages(stage):
    return [word for command in commands(stage) if command[:2] == ["apt-get", "install"]
            for word in command[2:] if not word.startswith("-")]


def test_both_stages_are_debian_12():
    build, run = stages()
    assert values(build, "FROM") == ["debian:12 AS build"]
    assert values(run, "FROM") == ["debian:12-slim"]


def test_the_build_is_set_up_by_the_projects_own_script():
    build, _ = stages()
    assert ["cmake/setup/install.sh", "requirements.txt"] in commands(build)
    # README asks for these beforehand.
    assert {"g++", "git", "make", "python3"} <= set(packages(build))
    install, = (command for command in commands(build) if command[:2] == ["pip", "install"])
    assert {"--no-build-isolation", "."} <= set(install)


def test_files_that_the_image_takes_are_there():
    for stage in stages():
        for value in values(stage, "COPY"):
            sources = [word for word in shlex.split(value)[:-1] if not word.startswith("--from")]
            for source in sources if not value.startswith("--from") else []:
                assert (ROOT / source).exists(), source
        for command in commands(stage):
            if "/" in command[0]:
                assert (ROOT / command[0]).is_file(), command[0]


def test_the_environment_is_at_the_same_place_in_both_stages():
    build, run = stages()
    assert "BLUEFOG_VENV=/opt/venv" in values(build, "ENV")
    assert "--from=build /opt/venv /opt/venv" in values(run, "COPY")
    for stage in (build, run):
        assert "PATH=/opt/venv/bin:$PATH" in values(stage, "ENV")
    assert "SetEnv PATH=/opt/venv/bin:" in (IMAGE / "sshd_config").read_text()


def test_packages_of_the_small_image_are_debians():
    if not shutil.which("apt-cache"):
        pytest.skip("there is no apt-cache")
    if "bookworm" not in pathlib.Path("/etc/os-release").read_text():
        pytest.skip("this is not Debian 12")
    for stage in stages():
        for package in packages(stage):
            shown = subprocess.run(["apt-cache", "show", package], capture_output=True, text=True,
                                   check=False)
            assert shown.stdout.startswith("Package:"), f"{package}: {shown.stderr}"


def test_libraries_of_the_package_are_in_the_small_image():
    core = importlib.util.find_spec("bluefog_cpp._core")
    if core is None:
        pytest.skip("the Python package is not built")
    if not shutil.which("dpkg-query"):
        pytest.skip("there is no dpkg-query")
    if "bookworm" not in pathlib.Path("/etc/os-release").read_text():
        pytest.skip("this is not Debian 12")
    linked = subprocess.run(["ldd", core.origin], capture_output=True, text=True, check=True).stdout
    owners = set()
    for path in re.findall(r"=> (/(?:usr/)?lib/\S+)", linked):
        real = str(pathlib.Path(path).resolve())
        # Some packages own their files below /lib, which is a link.
        found = subprocess.run(["dpkg-query", "-S", real, real.removeprefix("/usr")],
                               capture_output=True, text=True, check=False)
        owners.add(found.stdout.partition(":")[0])
    # The C and C++ libraries and zlib are part of Debian's smallest system.
    base = {"libc6", "libgcc-s1", "libstdc++6", "zlib1g"}
    _, run = stages()
    assert owners - base <= set(packages(run))
    assert owners - base, linked
