"""Elastic pipelines over torch.distributed: a model in stages that freezes, shrinks and widens
while it trains (PipeTransformer, arXiv 2102.03161).

`ElasticPipeline` runs torch.distributed.pipelining's stages and schedules over the default process
group, whose backend "bluefog" is the one that moves them through shared memory. What freezes, and
how many stages are left, is decided by the C++ core (docs/pipeline.md).
"""

from bluefog_cpp.pipeline._cache import CacheOptions
from bluefog_cpp.pipeline._elastic import ElasticPipeline
from bluefog_cpp.pipeline._plans import (
    ElasticPlan,
    EpochShares,
    freeze_bound,
    initial_micro_batches,
    partition_layers,
    pipeline_bubble,
)
from bluefog_cpp.pipeline._times import StepTimes
from bluefog_cpp.pipeline._trials import choose_micro_batches

__all__ = ["CacheOptions", "ElasticPipeline", "ElasticPlan", "EpochShares", "StepTimes",
           "choose_micro_batches", "freeze_bound", "initial_micro_batches", "partition_layers",
           "pipeline_bubble"]
