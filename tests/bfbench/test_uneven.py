"""bfbench uneven: what it makes of its starts, and a short run."""

import pytest

from bfbench import uneven
from commands import run


def start(way, iteration_ms, share, spread=0.3):
    return {"ranks": 4, "bytes": 1 << 20, "graph": "ring", "spread": spread, "slow": 1.0,
            "way": way, "compute_ms": 50.0, "iteration_ms": iteration_ms,
            "share_of_messages": share}


def test_medians_over_starts_with_the_share_of_each():
    records = uneven.merge([start("auto", 60.0, 0.9), start("messages", 70.0, 1.0),
                            start("auto", 80.0, 0.8), start("auto", 61.0, 0.7),
                            start("auto", 10.0, 0.5, spread=0.6)])
    assert [(r["way"], r["spread"], r["iteration_ms"], r["share_of_messages"], r["starts_share"])
            for r in records] == [("auto", 0.3, 61.0, 0.8, [0.9, 0.8, 0.7]),
                                  ("messages", 0.3, 70.0, 1.0, [1.0]),
                                  ("auto", 0.6, 10.0, 0.5, [0.5])]


def test_a_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(uneven, "GRAPHS", ("ring",))
    monkeypatch.setattr(uneven, "CASES", ((0.3, 2.0),))
    found, _, page = run(tmp_path, "uneven", "--ranks", "3", "--bytes", "262144",
                         "--compute-ms", "1", "--iterations", "3")
    assert [record["way"] for record in found["records"]] == ["messages", "in place", "auto"]
    for record in found["records"]:
        assert (record["ranks"], record["bytes"], record["graph"]) == (3, 262144, "ring")
        assert (record["spread"], record["slow"]) == (0.3, 2.0)
        assert record["iteration_ms"] > 1
    assert found["records"][0]["share_of_messages"] == pytest.approx(1)
    assert "3 ranks, 256 KiB, compute 1 ms" in page
    assert "in place" in capsys.readouterr().out
