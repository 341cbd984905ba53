import itertools
import sys

import networkx as nx
import numpy
import pytest

from bluefog_cpp import topology_util


def dense(graph):
    return nx.to_numpy_array(graph, nodelist=range(graph.number_of_nodes()))


BUILDERS = (topology_util.ExponentialTwoGraph, topology_util.ExponentialGraph,
            topology_util.SymmetricExponentialGraph, topology_util.MeshGrid2DGraph,
            topology_util.StarGraph, topology_util.RingGraph, topology_util.FullyConnectedGraph)


@pytest.mark.parametrize("build", BUILDERS)
@pytest.mark.parametrize("size", (1, 2, 5, 12))
def test_graphs_are_doubly_stochastic(build, size):
    graph = build(size)
    assert isinstance(graph, nx.DiGraph) and set(graph.nodes) == set(range(size))
    assert numpy.allclose(dense(graph).sum(axis=0), 1)
    assert numpy.allclose(dense(graph).sum(axis=1), 1)


def test_edges_point_from_sender_to_receiver():
    assert set(topology_util.RingGraph(4, connect_style=2).successors(0)) == {0, 1}
    assert set(topology_util.RingGraph(4, connect_style=1).successors(0)) == {0, 3}
    assert set(topology_util.ExponentialGraph(8).successors(0)) == {0, 1, 2, 4}
    assert set(topology_util.ExponentialGraph(12, base=3).successors(0)) == {0, 1, 3, 9}
    assert set(topology_util.StarGraph(5, center_rank=2).predecessors(0)) == {0, 2}


def test_a_file_of_edges_is_a_graph(tmp_path):
    file = tmp_path / "graph\udc80.txt"
    file.write_text("# i sends to j\n0 1 0.5\n1 1 0.5\n1 0 0.25\n0 0 0.75\n")
    graph = topology_util.EdgeListGraph(file)
    assert isinstance(graph, nx.DiGraph)
    assert dense(graph).tolist() == [[0.75, 0.5], [0.25, 0.5]]
    assert topology_util.EdgeListGraph(str(file), 3).number_of_nodes() == 3
    file.write_text("0 1\n1 0\n")
    assert dense(topology_util.EdgeListGraph(file)).tolist() == [[0.5, 0.5], [0.5, 0.5]]
    with pytest.raises(ValueError, match="line 1: '1' is not a rank, expected 0 to 0"):
        topology_util.EdgeListGraph(file, size=1)
    with pytest.raises(ValueError, match="absent"):
        topology_util.EdgeListGraph(tmp_path / "absent")


@pytest.mark.parametrize("build", BUILDERS)
@pytest.mark.parametrize("lost", ([3], [0, 5], (4, 1, 2)))
def test_ranks_that_are_lost(build, lost):
    graph = build(7)
    w = dense(graph).T
    left = [rank for rank in range(7) if rank not in lost]
    lost = list(lost)
    within, out, back = (w[numpy.ix_(rows, columns)]
                         for rows, columns in ((lost, lost), (left, lost), (lost, left)))
    expected = w[numpy.ix_(left, left)] + out @ numpy.linalg.solve(numpy.eye(len(lost)) - within,
                                                                   back)
    found = topology_util.WithoutRanksGraph(graph, iter(lost), renumber=True)
    assert isinstance(found, nx.DiGraph) and set(found.nodes) == set(range(len(left)))
    assert numpy.allclose(dense(found).T, expected, rtol=0, atol=1e-12)
    stays = topology_util.WithoutRanksGraph(graph, lost)
    assert numpy.allclose(dense(stays).T[numpy.ix_(left, left)], expected, rtol=0, atol=1e-12)
    for rank in lost:
        assert list(stays.in_edges(rank, data="weight")) == [(rank, rank, 1.0)]
        assert list(stays.successors(rank)) == [rank]


def test_nobody_is_lost():
    ring = topology_util.RingGraph(4)
    assert topology_util.IsTopologyEquivalent(topology_util.WithoutRanksGraph(ring, []), ring)


def test_a_rank_whose_weights_sum_to_nothing_cannot_be_left_out():
    graph = nx.DiGraph()
    graph.add_weighted_edges_from([(0, 0, 0.5), (1, 1, 0.3), (0, 1, 0.3), (1, 0, 0.2)])
    with pytest.raises(ValueError, match="1"):
        topology_util.WithoutRanksGraph(graph, [1])


def test_wrong_arguments():
    for call in (lambda: topology_util.RingGraph(0), lambda: topology_util.RingGraph(3, 7),
                 lambda: topology_util.StarGraph(3, 5),
                 lambda: topology_util.ExponentialGraph(4, 1),
                 lambda: topology_util.MeshGrid2DGraph(6, (2, 2))):
        with pytest.raises(ValueError):
            call()
    with pytest.raises(TypeError):
        topology_util.to_mixing_matrix(nx.Graph())
    with pytest.raises(TypeError, match="ranks"):
        topology_util.to_mixing_matrix(nx.DiGraph([(1, 2)]))


def test_round_trip_through_a_mixing_matrix():
    graph = topology_util.MeshGrid2DGraph(6)
    again = topology_util.from_mixing_matrix(topology_util.to_mixing_matrix(graph))
    assert topology_util.IsTopologyEquivalent(graph, again)


def test_equivalence():
    ring = topology_util.RingGraph(4)
    assert topology_util.IsTopologyEquivalent(ring, topology_util.RingGraph(4))
    assert not topology_util.IsTopologyEquivalent(ring, topology_util.RingGraph(5))
    assert not topology_util.IsTopologyEquivalent(ring, topology_util.RingGraph(4, 1))
    assert not topology_util.IsTopologyEquivalent(ring, None)
    heavier = ring.copy()
    heavier.edges[0, 1]["weight"] = 0.5
    assert not topology_util.IsTopologyEquivalent(ring, heavier)


def test_regularity():
    assert topology_util.IsRegularGraph(topology_util.RingGraph(5))
    assert not topology_util.IsRegularGraph(topology_util.StarGraph(5))


def test_weights_of_a_rank():
    graph = nx.DiGraph()
    graph.add_weighted_edges_from([(0, 0, 0.5), (1, 0, 0.25), (2, 0, 0.125), (0, 2, 1.5)])
    assert topology_util.GetRecvWeights(graph, 0) == (0.5, {1: 0.25, 2: 0.125})
    assert topology_util.GetSendWeights(graph, 0) == (0.5, {2: 1.5})
    assert topology_util.GetRecvWeights(graph, 1) == (0.0, {})


def steps(make, size, count):
    """By step, every rank's (send_ranks, recv_ranks)."""
    return list(zip(*(itertools.islice(make(rank), count) for rank in range(size))))


def check_agreement(step):
    for rank, (sends, receives) in enumerate(step):
        assert rank not in sends
        assert sorted(r for r, (theirs, _) in enumerate(step) if rank in theirs) == receives


def test_one_peer_goes_round_the_out_neighbors_clockwise():
    graph = topology_util.ExponentialGraph(8)
    found = steps(lambda r: topology_util.GetDynamicOnePeerSendRecvRanks(graph, r), 8, 6)
    assert [step[6][0] for step in found] == [[7], [0], [2]] * 2
    for step in found:
        check_agreement(step)


@pytest.mark.parametrize("make", (topology_util.GetInnerOuterRingDynamicSendRecvRanks,
                                  topology_util.GetInnerOuterExpo2DynamicSendRecvRanks))
@pytest.mark.parametrize("size,local_size", ((8, 4), (9, 3), (12, 4)))
def test_inner_outer(make, size, local_size):
    for t, step in enumerate(steps(lambda r: make(size, local_size, r), size, 12)):
        check_agreement(step)
        for rank, (sends, _) in enumerate(step):
            leaves = rank % local_size == t % local_size
            assert all((peer // local_size != rank // local_size) == leaves for peer in sends)


def test_machines():
    found = steps(lambda r: topology_util.GetExp2DynamicSendRecvMachineRanks(10, 2, r, r % 2), 10,
                  4)
    assert [step[0] for step in found] == [([1], [4]), ([2], [3]), ([4], [1]), ([1], [4])]
    assert all(step[0] == step[1] for step in found)
    alone = topology_util.GetExp2DynamicSendRecvMachineRanks(8, 8, 3, 3)
    assert [next(alone) for _ in range(3)] == [([], [])] * 3
    for wrong in ((10, 3, 0, 0), (10, 2, 3, 0), (10, 0, 0, 0)):
        with pytest.raises(ValueError):
            topology_util.GetExp2DynamicSendRecvMachineRanks(*wrong)


def test_graphs_are_drawn(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib").use("agg")
    graph = nx.DiGraph()
    graph.add_weighted_edges_from([(0, 1, 0.5), (1, 0, 0.25), (1, 2, 0.125), (0, 0, 0.5)])
    axes = topology_util.draw(graph, weights=True)
    words = {text.get_text() for text in axes.texts}
    assert {"0", "1", "2"} <= words and {"0.5", "0.25", "0.125"} <= words
    from matplotlib.patches import FancyArrowPatch
    assert len([patch for patch in axes.patches if isinstance(patch, FancyArrowPatch)]) == 3
    axes.figure.savefig(tmp_path / "graph.png")
    assert topology_util.draw(topology_util.RingGraph(1), axes) is axes
    with pytest.raises(TypeError):
        topology_util.draw(nx.Graph())
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(NotImplementedError, match="matplotlib"):
        topology_util.draw(graph)
