#!/bin/sh
# rank_wrapper.sh FOLDER PROGRAM …: runs PROGRAM as one rank of a launch, with
# its GoogleTest results in FOLDER/rankN.xml.
folder=$1
shift
rank=${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-${PMI_RANK:-${BFRUN_RANK:-0}}}}
export GTEST_OUTPUT="xml:$folder/rank$rank.xml" PYTEST_ADDOPTS="--junitxml=$folder/rank$rank.xml"
exec "$@"
