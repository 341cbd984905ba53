# The findings and choices of configure, for the reader of its output.
message(STATUS "bluefog_cpp ${PROJECT_VERSION}")
message(STATUS "  build type  ${CMAKE_BUILD_TYPE}")
if(BLUEFOG_SANITIZE)
  message(STATUS "  sanitizers  ${BLUEFOG_SANITIZE}")
endif()
message(STATUS "  MPI         ${BLUEFOG_MPI_STATUS}")
message(STATUS "  LibTorch    ${BLUEFOG_TORCH_STATUS}")
message(STATUS "  Python      ${BLUEFOG_PYTHON_STATUS}")
message(STATUS "  CUDA        ${BLUEFOG_CUDA_STATUS}")
message(STATUS "  jobs        ${BLUEFOG_COMPILE_JOBS} compilers at once, "
               "${BLUEFOG_TORCH_JOBS} on torch sources (${BLUEFOG_CORES} cores, "
               "${memory_mib} MiB of memory free)")
