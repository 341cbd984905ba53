#pragma once

// All collectives that are no neighbour operations.
#include "ops/allgather.hpp"
#include "ops/allreduce.hpp"
#include "ops/barrier.hpp"
#include "ops/broadcast.hpp"
