#pragma once

/// @file
/// All that a program needs to train with this library: the context, graphs and
/// schedules, operations and windows, the distributed optimizer with its algorithms, checkpoints
/// and averages of models. Layers are apart (`nn/sync_batch_norm.hpp`, target `bluefog::nn`), as
/// are analysis (`bluefog::topology_analysis`) and what algorithms of one's own stand on
/// (`optimizers/algorithm.hpp`). The page docs/cpp.md goes through it.
#include "bluefog_cpp/buffer_view.hpp"
#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/settings.hpp"
#include "bluefog_cpp/work.hpp"
#include "ops/collectives.hpp"
#include "ops/hierarchical_neighbor_allreduce.hpp"
#include "ops/neighbor_allgather.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "ops/pair_gossip.hpp"
#include "ops/window.hpp"
#include "optimizers/accum_adam.hpp"
#include "optimizers/algorithm_row.hpp"
#include "optimizers/buffer_policy.hpp"
#include "optimizers/checkpoint.hpp"
#include "optimizers/consensus.hpp"
#include "optimizers/distributed_optimizer.hpp"
#include "optimizers/elastic_sampler.hpp"
#include "optimizers/muon.hpp"
#include "optimizers/optimizer_state.hpp"
#include "optimizers/options.hpp"
#include "optimizers/parameter.hpp"
#include "optimizers/parameter_collectives.hpp"
#include "topology/edge_list.hpp"
#include "topology/families.hpp"
#include "topology/schedule.hpp"
#include "topology/static_graphs.hpp"
