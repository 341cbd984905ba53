# LibTorch for this build: BLUEFOG_HAVE_TORCH, bluefog::torch, one precompiled
# header that all torch sources share.
include(BluefogTorch)
set(BLUEFOG_HAVE_TORCH OFF)
set(BLUEFOG_TORCH_STATUS "off (BLUEFOG_WITH_TORCH=OFF)")
if(NOT BLUEFOG_WITH_TORCH STREQUAL "OFF")
  bluefog_find_torch()
  if(BLUEFOG_TORCH_FOUND)
    set(BLUEFOG_HAVE_TORCH ON)
    set(BLUEFOG_TORCH_STATUS "LibTorch ${BLUEFOG_TORCH_VERSION} (CPU), ${BLUEFOG_TORCH_DIR}")
    if(SKBUILD)  # the place of the build is not that of the package
      set(BLUEFOG_TORCH_STATUS "LibTorch ${BLUEFOG_TORCH_VERSION} (CPU), of the Python package torch")
    endif()
  elseif(BLUEFOG_WITH_TORCH STREQUAL "ON" OR BLUEFOG_TORCH_ROOT)
    message(FATAL_ERROR "LibTorch is wanted and cannot be used: ${BLUEFOG_TORCH_REASON}. Install "
                        "it ('pip install torch==2.11.0' in ${PROJECT_SOURCE_DIR}/.venv), or point "
                        "BLUEFOG_TORCH_ROOT at a folder with include/ and lib/, or set "
                        "BLUEFOG_WITH_TORCH=OFF.")
  else()
    set(BLUEFOG_TORCH_STATUS "not found (${BLUEFOG_TORCH_REASON}): no optimizers, no examples")
  endif()
endif()

# Properties that must be equal in all users of the precompiled header.
function(bluefog_set_torch_properties target)
  target_link_libraries(${target} PRIVATE bluefog::torch)
  set_target_properties(${target} PROPERTIES JOB_POOL_COMPILE bluefog_torch
                                             POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${target} PRIVATE -fPIC $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
endfunction()

# bluefog_use_torch_pch(TARGET): TARGET's sources compile with <torch/torch.h>
# precompiled, in the pool for large compilations. Links bluefog::torch.
# TARGET must have bluefog_set_common_properties (bluefog_add_library sets it).
function(bluefog_use_torch_pch target)
  bluefog_set_torch_properties(${target})
  target_precompile_headers(${target} REUSE_FROM bluefog_torch_pch)
  target_link_libraries(${target} PRIVATE bluefog::torch_fmt)
endfunction()

if(BLUEFOG_HAVE_TORCH)
  # LibTorch's include folder has an fmt of its own, found before the system's, without the library.
  # Made once, here: each source that has it from the headers takes three seconds more.
  set(fmt_source "${PROJECT_BINARY_DIR}/torch_fmt.cpp")
  configure_file(cmake/torch_fmt.cpp.in "${fmt_source}" COPYONLY)
  bluefog_add_library(torch_fmt SOURCES "${fmt_source}" PRIVATE bluefog::torch)
  set(pch_source "${PROJECT_BINARY_DIR}/torch_pch.cpp")
  file(CONFIGURE OUTPUT "${pch_source}" CONTENT "// Carries the precompiled <torch/torch.h>.\n")
  add_library(bluefog_torch_pch OBJECT EXCLUDE_FROM_ALL "${pch_source}")
  bluefog_set_common_properties(bluefog_torch_pch)
  bluefog_set_torch_properties(bluefog_torch_pch)
  target_precompile_headers(bluefog_torch_pch PRIVATE <torch/torch.h>)
endif()
