"""Large results take over the memory of earlier ones that are no longer in use."""

import torch

import bluefog_cpp.torch as bf

COUNT = 1 << 20  # 4 MiB: whole large pages


def average(rank, count=COUNT):
    return bf.neighbor_allreduce(torch.full((count,), float(rank)))


def test_memory_of_a_result_that_has_gone_is_used_again(rank):
    first = average(rank)
    address = first.data_ptr()
    mean = first[0].item()
    view = first[5:7]
    del first
    second = average(rank)
    assert second.data_ptr() != address, "a view keeps the memory"
    del view
    third = average(rank)
    assert third.data_ptr() == address
    assert (second == mean).all() and (third == mean).all()


def test_results_of_other_sizes_are_whole(rank, size):
    for count in (COUNT - 1, COUNT, COUNT + 1, 3 * COUNT):
        result = bf.allreduce(torch.full((count,), float(rank)))
        assert result.shape == (count,) and (result == (size - 1) / 2).all()
        gathered = bf.allgather(torch.full((count,), float(rank)))
        assert gathered.view(size, count)[:, -1].tolist() == list(range(size))


def test_results_are_ordinary_tensors(rank):
    result = average(rank)
    mean = result[0].item()
    assert result.is_contiguous() and not result.requires_grad and result.device.type == "cpu"
    result.resize_(2 * COUNT)
    assert (result[:COUNT] == mean).all()
    result.requires_grad_().sum().backward()
    assert result.grad.eq(1).all()
    assert average(rank).numpy()[-1] == mean
