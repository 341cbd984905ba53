# Every option a user may set, in one place. docs/building.md explains them.
option(BLUEFOG_BUILD_TESTS "Build the test suites" ${PROJECT_IS_TOP_LEVEL})
set(BLUEFOG_TEST_FOLDERS "" CACHE STRING "Folders of tests/ to build; empty: all that fit the build")
option(BLUEFOG_LONG_TESTS "Build the tests of make test LEVEL=long too, where that takes long" OFF)
option(BLUEFOG_BUILD_EXAMPLES "Build the examples (need LibTorch) and the benchmarks" ${PROJECT_IS_TOP_LEVEL})
option(BLUEFOG_BUILD_TOOLS "Build the commands bfrun, bftopo and bftrace" ON)
option(BLUEFOG_INSTALL "Write install rules for the package" ON)
option(BLUEFOG_CCACHE "Compile through ccache where it is installed" ON)
option(BLUEFOG_WARNINGS_AS_ERRORS "Treat compiler warnings as errors (presets set it)" OFF)
set(BLUEFOG_SANITIZE "" CACHE STRING "Sanitizers for every target: thread, or address,undefined")
set(sanitizers "" thread address undefined address,undefined)
set_property(CACHE BLUEFOG_SANITIZE PROPERTY STRINGS ${sanitizers})
if(NOT "${BLUEFOG_SANITIZE}" IN_LIST sanitizers)
  message(FATAL_ERROR "BLUEFOG_SANITIZE must be empty, thread, address, undefined or "
                      "address,undefined, not '${BLUEFOG_SANITIZE}'")
endif()

# Unoptimised sums are many times slower: nobody should get them by saying nothing.
get_property(is_multi_config GLOBAL PROPERTY GENERATOR_IS_MULTI_CONFIG)
if(PROJECT_IS_TOP_LEVEL AND NOT is_multi_config AND NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release, RelWithDebInfo or MinSizeRel" FORCE)
endif()

# ON: must be there. OFF: not used. AUTO: used when found.
set(BLUEFOG_WITH_MPI "AUTO" CACHE STRING "MPI transport: ON, OFF or AUTO")
set(BLUEFOG_WITH_TORCH "AUTO" CACHE STRING "Optimizers on LibTorch: ON, OFF or AUTO")
set(BLUEFOG_WITH_CUDA "AUTO" CACHE STRING "GPU transport: ON, OFF or AUTO")
set(BLUEFOG_PYTHON "AUTO" CACHE STRING "Python package: ON, OFF or AUTO")
foreach(option BLUEFOG_WITH_MPI BLUEFOG_WITH_TORCH BLUEFOG_WITH_CUDA BLUEFOG_PYTHON)
  set_property(CACHE ${option} PROPERTY STRINGS ON OFF AUTO)
  string(TOUPPER "${${option}}" value)
  if(NOT value MATCHES "^(ON|OFF|AUTO)$")
    message(FATAL_ERROR "${option} must be ON, OFF or AUTO, not '${${option}}'")
  endif()
  set(${option} ${value})
endforeach()

option(BLUEFOG_MPI_AT_RUN_TIME "Link no MPI: load Open MPI in the processes whose ranks join over it" OFF)

set(BLUEFOG_TORCH_ROOT "" CACHE PATH
    "Folder of a LibTorch with include/ and lib/; empty: the one of BLUEFOG_VENV, or CMAKE_PREFIX_PATH")

# The virtual environment that `make` sets up: torch, Open MPI, Python.
set(venv "")
foreach(candidate "$ENV{BLUEFOG_VENV}" "${PROJECT_SOURCE_DIR}/.venv" "$ENV{VIRTUAL_ENV}")
  if(NOT venv AND candidate AND EXISTS "${candidate}/bin/python")
    set(venv "${candidate}")
  endif()
endforeach()
set(BLUEFOG_VENV "${venv}" CACHE PATH "Virtual environment to take torch, MPI and Python from")
