"""The process groups of pipelines and of their replicas."""

from dataclasses import dataclass

import torch.distributed as dist


@dataclass(frozen=True)
class Groups:
    """This rank's, of one number of stages."""

    pipeline: dist.ProcessGroup
    replicas: dist.ProcessGroup


def make_groups(stages: int) -> Groups:
    """Collective. All ranks make all groups, in one order."""
    ranks, own = range(dist.get_world_size()), dist.get_rank()
    pipelines = [dist.new_group([rank for rank in ranks if rank // stages == replica])
                 for replica in range(len(ranks) // stages)]
    replicas = [dist.new_group([rank for rank in ranks if rank % stages == stage])
                for stage in range(stages)]
    return Groups(pipelines[own // stages], replicas[own % stages])
