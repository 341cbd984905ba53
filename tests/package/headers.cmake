# Every header compiles alone: one source per header, which includes it
# twice and nothing else. The objects are built by the test, not by default.
# Files named *-inl.hpp are parts of one source and no headers in this sense.
# bluefog_add_header_check(NAME [TORCH] [PUBLIC|PRIVATE] [LONG] FOLDERS … LIBS …)
# PUBLIC: those at the top of each folder alone; PRIVATE: those below; LONG: with LEVEL=long alone.
function(bluefog_add_header_check name)
  cmake_parse_arguments(arg "TORCH;PUBLIC;PRIVATE;LONG" "" "FOLDERS;LIBS" ${ARGN})
  set(sources "")
  foreach(folder ${arg_FOLDERS})
    file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}"
         "${PROJECT_SOURCE_DIR}/${folder}/*.hpp")
    list(FILTER headers EXCLUDE REGEX "-inl\\.hpp$")
    if(arg_PUBLIC)
      list(FILTER headers INCLUDE REGEX "^${folder}/[^/]+$")
    elseif(arg_PRIVATE)
      list(FILTER headers EXCLUDE REGEX "^${folder}/[^/]+$")
    endif()
    if(NOT BLUEFOG_HAVE_MPI)
      list(FILTER headers EXCLUDE REGEX "^bluefog_cpp/[a-z]+/mpi/")
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
  # In a unity build the first of eight alone would be alone. Torch's headers are read once for
  # eight all the same, but for LEVEL=long.
  if(NOT arg_TORCH OR BLUEFOG_LONG_TESTS)
    set_target_properties(headers_${name} PROPERTIES UNITY_BUILD OFF)
  endif()
  if(arg_TORCH)
    set_target_properties(headers_${name} PROPERTIES JOB_POOL_COMPILE bluefog_torch)
  endif()
  set(labels package)
  if(arg_LONG)
    list(APPEND labels long)
  endif()
  bluefog_add_script_test(
    package.headers.${name} LABELS ${labels} TIMEOUT 900 PROCESSORS ${BLUEFOG_CORES} COST 120
    COMMAND ${CMAKE_COMMAND} --build "${PROJECT_BINARY_DIR}" --target headers_${name})
  # Two builds in one folder at once would disturb each other.
  set_tests_properties(package.headers.${name} PROPERTIES RESOURCE_LOCK build_folder)
endfunction()

set(third_party fmt::fmt spdlog::spdlog Boost::headers Eigen3::Eigen nlohmann_json::nlohmann_json
                hwy::hwy CLI11::CLI11 Threads::Threads)
if(BLUEFOG_HAVE_MPI)
  list(APPEND third_party MPI::MPI_CXX)
endif()
# A source includes its own private header first, which shows most of what is checked here.
set(runtime FOLDERS bluefog_cpp LIBS bluefog::runtime ${third_party})
set(topology FOLDERS topology LIBS bluefog::topology ${third_party})
set(ops FOLDERS ops LIBS bluefog::ops ${third_party})
foreach(layer runtime topology ops)
  bluefog_add_header_check(${layer} PUBLIC ${${layer}})
  bluefog_add_header_check(${layer}_private PRIVATE LONG ${${layer}})
endforeach()
bluefog_add_header_check(tools LONG FOLDERS tools LIBS bluefog::command_line
                         bluefog::topology_analysis ${third_party})
if(TARGET bluefog_optimizers)
  set(with_torch FOLDERS optimizers nn pipeline LIBS bluefog::optimizers bluefog::torch ${third_party})
  bluefog_add_header_check(optimizers TORCH PUBLIC ${with_torch})
  bluefog_add_header_check(optimizers_private TORCH PRIVATE LONG ${with_torch})
endif()
