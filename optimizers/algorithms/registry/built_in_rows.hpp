#pragma once

#include <array>

#include "optimizers/algorithm_row.hpp"

namespace bluefog::optimizers {

// Each stands in the file of its algorithm.
AlgorithmRow adapt_then_combine_row();
AlgorithmRow adapt_with_combine_row();
AlgorithmRow gradient_allreduce_row();
AlgorithmRow extra_row();
AlgorithmRow exact_diffusion_row();
AlgorithmRow d2_row();
AlgorithmRow gradient_tracking_row();
AlgorithmRow push_sum_row();
AlgorithmRow gossip_pga_row();
AlgorithmRow ceca_row();
AlgorithmRow choco_row();
AlgorithmRow power_gossip_row();
AlgorithmRow local_sgd_row();
AlgorithmRow slowmo_row();
AlgorithmRow diloco_row();
AlgorithmRow streaming_diloco_row();
AlgorithmRow gossip_diloco_row();
AlgorithmRow sparse_loco_row();
AlgorithmRow noloco_row();
AlgorithmRow accelerated_gossip_row();
AlgorithmRow dmsgd_row();
AlgorithmRow decent_lam_row();
AlgorithmRow quasi_global_momentum_row();
AlgorithmRow win_put_row();
AlgorithmRow pull_get_row();
AlgorithmRow async_push_sum_row();
AlgorithmRow none_row();

/// The algorithms of this library, in the order in which docs list them.
inline constexpr std::array kBuiltInRows{&adapt_then_combine_row,
                                         &adapt_with_combine_row,
                                         &gradient_allreduce_row,
                                         &extra_row,
                                         &exact_diffusion_row,
                                         &d2_row,
                                         &gradient_tracking_row,
                                         &push_sum_row,
                                         &gossip_pga_row,
                                         &ceca_row,
                                         &choco_row,
                                         &power_gossip_row,
                                         &local_sgd_row,
                                         &slowmo_row,
                                         &diloco_row,
                                         &streaming_diloco_row,
                                         &gossip_diloco_row,
                                         &sparse_loco_row,
                                         &noloco_row,
                                         &accelerated_gossip_row,
                                         &dmsgd_row,
                                         &decent_lam_row,
                                         &quasi_global_momentum_row,
                                         &win_put_row,
                                         &pull_get_row,
                                         &async_push_sum_row,
                                         &none_row};

}  // namespace bluefog::optimizers
