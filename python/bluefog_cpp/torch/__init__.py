"""Decentralized averaging of torch tensors, in BlueFog's vocabulary: `import bluefog_cpp.torch as
bf`."""

from bluefog_cpp import _c10d_backend
from bluefog_cpp._graphs import (
    ExponentialGraph,
    ExponentialTwoGraph,
    FullyConnectedGraph,
    GetDynamicOnePeerSendRecvRanks,
    GetExp2DynamicSendRecvMachineRanks,
    GetInnerOuterExpo2DynamicSendRecvRanks,
    GetInnerOuterRingDynamicSendRecvRanks,
    GetRecvWeights,
    GetSendWeights,
    IsRegularGraph,
    IsTopologyEquivalent,
    MeshGrid2DGraph,
    RingGraph,
    StarGraph,
    SymmetricExponentialGraph,
)
from bluefog_cpp.torch._accum_adam import AccumAdam, AccumAdamW
from bluefog_cpp.torch._algorithms import DecentralizedOptimizer
from bluefog_cpp.torch._batch_norm import SyncBatchNorm
from bluefog_cpp.torch._collectives import (
    allgather,
    allgather_nonblocking,
    allreduce,
    allreduce_,
    allreduce_nonblocking,
    allreduce_nonblocking_,
    barrier,
    broadcast,
    broadcast_,
    broadcast_nonblocking,
    broadcast_nonblocking_,
    poll,
    synchronize,
    wait,
)
from bluefog_cpp.torch._ddp import decentralize
from bluefog_cpp.torch._devices import use_device
from bluefog_cpp.torch._elastic_sampler import ElasticSampler
from bluefog_cpp.torch._inference import (
    InferDestinationFromSourceRanks,
    InferSourceFromDestinationRanks,
)
from bluefog_cpp.torch._membership import (
    Entry,
    Loss,
    Membership,
    enter,
    has_left,
    leave,
    membership,
    on_shrink,
    shrink,
    survive,
    waits_to_join,
)
from bluefog_cpp.torch._memory import shared_zeros
from bluefog_cpp.torch._neighbor_collectives import (
    hierarchical_neighbor_allreduce,
    hierarchical_neighbor_allreduce_nonblocking,
    neighbor_allgather,
    neighbor_allgather_nonblocking,
    neighbor_allreduce,
    neighbor_allreduce_,
    neighbor_allreduce_multi_,
    neighbor_allreduce_nonblocking,
    neighbor_allreduce_nonblocking_,
    pair_gossip,
    pair_gossip_nonblocking,
)
from bluefog_cpp.torch._optimizers import CommunicationType
from bluefog_cpp.torch._own.algorithms import (
    Algorithm,
    Average,
    Bucket,
    Mixing,
    Option,
    OuterSteps,
    Round,
)
from bluefog_cpp.torch._own.compressions import Compression, register_compression
from bluefog_cpp.torch._own.rows import register_algorithm
from bluefog_cpp.torch._own.schedules import Schedule, register_schedule
from bluefog_cpp.torch._parameters import (
    allreduce_parameters,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from bluefog_cpp.torch._process import (
    check_build,
    get_skip_negotiate_stage,
    in_neighbor_machine_ranks,
    in_neighbor_ranks,
    init,
    is_homogeneous,
    is_initialized,
    is_machine_topo_weighted,
    is_topo_weighted,
    load_machine_topology,
    load_topology,
    local_rank,
    local_size,
    machine_rank,
    machine_size,
    mpi_threads_supported,
    nccl_built,
    out_neighbor_machine_ranks,
    out_neighbor_ranks,
    rank,
    resume,
    resync,
    set_machine_topology,
    set_skip_negotiate_stage,
    set_topology,
    shutdown,
    size,
    suspend,
    unified_mpi_window_model_supported,
)
from bluefog_cpp.torch._timeline import (
    timeline_context,
    timeline_end_activity,
    timeline_start_activity,
)
from bluefog_cpp.torch._window_optimizers import (
    DistributedPullGetOptimizer,
    DistributedWinPutOptimizer,
)
from bluefog_cpp.torch._windows import (
    get_current_created_window_names,
    get_win_version,
    neighbor_win_accumulate,
    neighbor_win_accumulate_nonblocking,
    neighbor_win_get,
    neighbor_win_get_nonblocking,
    neighbor_win_put,
    neighbor_win_put_nonblocking,
    turn_off_win_ops_with_associated_p,
    turn_on_win_ops_with_associated_p,
    win_accumulate,
    win_accumulate_nonblocking,
    win_associated_p,
    win_create,
    win_free,
    win_get,
    win_get_nonblocking,
    win_lock,
    win_mutex,
    win_poll,
    win_publish,
    win_put,
    win_put_nonblocking,
    win_update,
    win_update_then_collect,
    win_wait,
)
from bluefog_cpp.torch._wrapped.giving_up import give_up
from bluefog_cpp.torch._wrapped.handing_over import hand_to_newcomers
from bluefog_cpp.torch._wrapped.makers import (
    DistributedAdaptThenCombineOptimizer,
    DistributedAdaptWithCombineOptimizer,
    DistributedAllreduceOptimizer,
    DistributedGradientAllreduceOptimizer,
    DistributedHierarchicalNeighborAllreduceOptimizer,
    DistributedNeighborAllreduceOptimizer,
    DistributedPushSumOptimizer,
)
from bluefog_cpp.util import check_extension

__all__ = [
    "AccumAdam", "AccumAdamW", "Algorithm", "Average", "Bucket", "CommunicationType", "Compression",
    "DecentralizedOptimizer", "DistributedAdaptThenCombineOptimizer",
    "DistributedAdaptWithCombineOptimizer", "DistributedAllreduceOptimizer",
    "DistributedGradientAllreduceOptimizer", "DistributedHierarchicalNeighborAllreduceOptimizer",
    "DistributedNeighborAllreduceOptimizer", "DistributedPullGetOptimizer",
    "DistributedPushSumOptimizer", "DistributedWinPutOptimizer", "ElasticSampler", "Entry",
    "ExponentialGraph", "ExponentialTwoGraph", "FullyConnectedGraph",
    "GetDynamicOnePeerSendRecvRanks", "GetExp2DynamicSendRecvMachineRanks",
    "GetInnerOuterExpo2DynamicSendRecvRanks", "GetInnerOuterRingDynamicSendRecvRanks",
    "GetRecvWeights", "GetSendWeights", "InferDestinationFromSourceRanks",
    "InferSourceFromDestinationRanks", "IsRegularGraph", "IsTopologyEquivalent", "Loss",
    "Membership", "MeshGrid2DGraph", "Mixing", "Option", "OuterSteps", "RingGraph", "Round",
    "Schedule", "StarGraph", "SymmetricExponentialGraph", "SyncBatchNorm", "allgather",
    "allgather_nonblocking", "allreduce", "allreduce_", "allreduce_nonblocking",
    "allreduce_nonblocking_", "allreduce_parameters", "barrier", "broadcast", "broadcast_",
    "broadcast_nonblocking", "broadcast_nonblocking_", "broadcast_optimizer_state",
    "broadcast_parameters", "check_build", "check_extension", "decentralize", "enter",
    "get_current_created_window_names", "get_skip_negotiate_stage", "get_win_version", "give_up",
    "hand_to_newcomers", "has_left", "hierarchical_neighbor_allreduce",
    "hierarchical_neighbor_allreduce_nonblocking", "in_neighbor_machine_ranks", "in_neighbor_ranks",
    "init", "is_homogeneous", "is_initialized", "is_machine_topo_weighted", "is_topo_weighted",
    "leave", "load_machine_topology", "load_topology", "local_rank", "local_size", "machine_rank",
    "machine_size", "membership", "mpi_threads_supported", "nccl_built", "neighbor_allgather",
    "neighbor_allgather_nonblocking", "neighbor_allreduce", "neighbor_allreduce_",
    "neighbor_allreduce_multi_", "neighbor_allreduce_nonblocking",
    "neighbor_allreduce_nonblocking_", "neighbor_win_accumulate",
    "neighbor_win_accumulate_nonblocking", "neighbor_win_get", "neighbor_win_get_nonblocking",
    "neighbor_win_put", "neighbor_win_put_nonblocking", "on_shrink", "out_neighbor_machine_ranks",
    "out_neighbor_ranks", "pair_gossip", "pair_gossip_nonblocking", "poll", "rank",
    "register_algorithm", "register_compression", "register_schedule", "resume", "resync",
    "set_machine_topology", "set_skip_negotiate_stage", "set_topology", "shared_zeros", "shrink",
    "shutdown", "size", "survive", "suspend", "synchronize", "timeline_context",
    "timeline_end_activity", "timeline_start_activity", "turn_off_win_ops_with_associated_p",
    "turn_on_win_ops_with_associated_p", "unified_mpi_window_model_supported", "use_device", "wait",
    "waits_to_join", "win_accumulate", "win_accumulate_nonblocking", "win_associated_p",
    "win_create", "win_free", "win_get", "win_get_nonblocking", "win_lock", "win_mutex", "win_poll",
    "win_publish", "win_put", "win_put_nonblocking", "win_update", "win_update_then_collect",
    "win_wait",
]

_c10d_backend.register()
