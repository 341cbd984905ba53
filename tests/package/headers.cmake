# Every public header compiles alone: one source per header, which includes it
# twice and nothing else. The objects are built by the test, not by default.
# Files named *-inl.hpp are parts of one source and no headers in this sense.
function(bluefog_add_header_check name)
  cmake_parse_arguments(arg "TORCH" "" "FOLDERS;LIBS" ${ARGN})
  set(sources "")
  foreach(folder ${arg_FOLDERS})
    file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}"
         "${PROJECT_SOURCE_DIR}/${folder}/*.hpp")
    list(FILTER headers EXCLUDE REGEX "-inl\\.hpp$")
    if(NOT BLUEFOG_HAVE_MPI)
      list(FILTER headers EXCLUDE REGEX "^bluefog_cpp/transport/mpi/")
    endif()
    foreach(header ${headers})
      set(source "${CMAKE_CURRENT_BINARY_DIR}/headers/${header}.cpp")
      file(CONFIGURE OUTPUT "${source}" CONTENT "#include \"${header}\"\n#include \"${header}\"\n")
      list(APPEND sources "${source}")
    endforeach()
  endforeach()
  if(NOT sources)
    return()
  endif()
  add_library(headers_${name} OBJECT EXCLUDE_FROM_ALL ${sources})
  bluefog_set_common_properties(headers_${name})
  target_link_libraries(headers_${name} PRIVATE ${arg_LIBS})
  # Only whether it compiles matters here: the cheapest way to find out.
  target_compile_options(headers_${name} PRIVATE -O0 -g0)
  if(arg_TORCH)
    set_target_properties(headers_${name} PROPERTIES JOB_POOL_COMPILE bluefog_torch)
  endif()
  bluefog_add_script_test(
    package.headers.${name} LABELS package TIMEOUT 900 PROCESSORS ${BLUEFOG_CORES}
    COMMAND ${CMAKE_COMMAND} --build "${PROJECT_BINARY_DIR}" --target headers_${name})
  # Two builds in one folder at once would disturb each other.
  set_tests_properties(package.headers.${name} PROPERTIES RESOURCE_LOCK build_folder)
endfunction()

set(third_party fmt::fmt spdlog::spdlog Boost::headers Eigen3::Eigen nlohmann_json::nlohmann_json
                hwy::hwy CLI11::CLI11 Threads::Threads)
if(BLUEFOG_HAVE_MPI)
  list(APPEND third_party MPI::MPI_CXX)
endif()
bluefog_add_header_check(base FOLDERS bluefog_cpp/base LIBS bluefog::base ${third_party})
bluefog_add_header_check(command_line FOLDERS tools/command_line LIBS bluefog::command_line)
foreach(layer transport topology ops)
  if(TARGET bluefog_${layer})
    set(folder ${layer})
    if(layer STREQUAL "transport")
      set(folder bluefog_cpp/transport)
    endif()
    bluefog_add_header_check(${layer} FOLDERS ${folder} LIBS bluefog::${layer} ${third_party})
  endif()
endforeach()
if(TARGET bluefog_optimizers)
  bluefog_add_header_check(optimizers TORCH FOLDERS optimizers nn
                           LIBS bluefog::optimizers bluefog::torch ${third_party})
endif()
