# docs/your_own_algorithm.md as it stands: its two C++ blocks as a program, the first one alone as a
# shared object that a Python program trains with.
set(page "${PROJECT_SOURCE_DIR}/docs/your_own_algorithm.md")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${page}")
if(NOT TARGET bluefog::optimizers OR NOT TARGET bfrun)
  bluefog_add_skipped_test(package.own_algorithm package "LibTorch or MPI is missing in this build")
  bluefog_add_skipped_test(python.own_algorithm python "LibTorch or MPI is missing in this build")
  return()
endif()
file(READ "${page}" text)
string(REPLACE ";" "<semicolon>" text "${text}")
string(REGEX MATCHALL "```cpp\n[^`]*```" blocks "${text}")
list(LENGTH blocks block_count)
if(NOT block_count EQUAL 2)
  message(FATAL_ERROR "${page}: expected 2 C++ blocks, found ${block_count}")
endif()
set(sources "")
foreach(index 0 1)
  list(GET blocks ${index} code)
  string(REGEX REPLACE "^```cpp\n(.*)```$" "\\1" code "${code}")
  string(REPLACE "<semicolon>" ";" code "${code}")
  set(source "${CMAKE_CURRENT_BINARY_DIR}/own_algorithm_${index}.cpp")
  file(CONFIGURE OUTPUT "${source}" CONTENT "${code}" @ONLY)
  list(APPEND sources "${source}")
endforeach()
add_executable(own_algorithm ${sources})
bluefog_set_test_properties(own_algorithm)
target_link_libraries(own_algorithm PRIVATE bluefog::optimizers)
if(NOT BLUEFOG_LONG_TESTS)
  bluefog_use_torch_pch(own_algorithm)
endif()
bluefog_add_script_test(package.own_algorithm LABELS package PROCESSORS 2
                        COMMAND bfrun -np 2 $<TARGET_FILE:own_algorithm>)

if(NOT TARGET bluefog_core)
  bluefog_add_skipped_test(python.own_algorithm python "the Python package is not built")
  return()
endif()
list(GET sources 0 source)
add_library(own_algorithm_object MODULE "${source}")
bluefog_set_common_properties(own_algorithm_object)
target_link_libraries(own_algorithm_object PRIVATE $<COMPILE_ONLY:bluefog::optimizers>
                                                   "-Wl,$<TARGET_FILE:bluefog_core>")
add_dependencies(own_algorithm_object bluefog_core)
bluefog_add_script_test(
  python.own_algorithm LABELS python PROCESSORS 2
  ENV "PYTHONPATH=${PROJECT_BINARY_DIR}/python" PYTHONDONTWRITEBYTECODE=1 BLUEFOG_TIMEOUT=30
  COMMAND bfrun -np 2 ${Python_EXECUTABLE}
          "${PROJECT_SOURCE_DIR}/tests/python/programs/own_algorithm.py"
          $<TARGET_FILE:own_algorithm_object>)
