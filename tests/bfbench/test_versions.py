"""Descriptions of the machine."""

import os

from bfbench import versions

TWO_PACKAGES = """Machine (64GB total)
  Package L#0
    NUMANode L#0 (P#0 32GB)
    L3 L#0 (32MB)
      L2 L#0 (1024KB) + L1d L#0 (32KB) + Core L#0
        PU L#0 (P#0)
        PU L#1 (P#4)
      L2 L#1 (1024KB) + L1d L#1 (32KB) + Core L#1
        PU L#2 (P#1)
        PU L#3 (P#5)
  Package L#1
    NUMANode L#1 (P#1 32GB)
    L3 L#1 (16MB)
      L2 L#2 (1024KB) + L1d L#2 (32KB) + Core L#2 + PU L#4 (P#2)
"""


def test_parts_of_a_machine_that_are_alike_are_counted():
    assert versions.compact(TWO_PACKAGES.splitlines()) == [
        "Machine (64GB total)",
        "  Package",
        "    NUMANode (32GB)",
        "    L3 (32MB)",
        "      2 × L2 (1024KB) + L1d (32KB) + Core",
        "        2 × PU",
        "  Package",
        "    NUMANode (32GB)",
        "    L3 (16MB)",
        "      L2 (1024KB) + L1d (32KB) + Core + PU"]


def test_the_topology_is_that_of_hwloc_under_either_name(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/no/such/folder")
    assert "no lstopo found" in versions.topology_of_machine()
    for name in ("lstopo", "lstopo-no-graphics"):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\necho 'Machine L#0 {name}'\n")
        program.chmod(0o755)
        assert versions.topology_of_machine() == f"Machine {name}"
