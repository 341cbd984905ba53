"""The manifests of examples/clusters/kubernetes."""

import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLUSTERS = ROOT / "examples/clusters"
FILES = sorted((CLUSTERS / "kubernetes").glob("*.yaml"))


def documents(path):
    yaml = pytest.importorskip("yaml", reason="the package PyYAML is not installed")
    return list(yaml.safe_load_all(path.read_text()))


def document(name, kind):
    found, = (each for each in documents(CLUSTERS / "kubernetes" / name) if each["kind"] == kind)
    return found
