#!/bin/bash
# netns_rate.sh RATE: limits the traffic that its host (netns.sh) can send, in tc's words (400mbit);
# may be called again with another rate.
set -euo pipefail
# TBF wants at least this: a smaller bucket wakes the shaper so often that it eats the CPU.
readonly kBurstBytes=262144
exec tc qdisc replace dev eth0 root tbf rate "${1:?netns_rate.sh: no rate given}" \
  burst "$kBurstBytes" latency 100ms
