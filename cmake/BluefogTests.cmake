# How test programs are registered. Every rung of docs/architecture.md's ladder
# is a label; a case that skips is counted as skipped, never as passed.
find_package(GTest REQUIRED)
find_package(Python3 REQUIRED COMPONENTS Interpreter)

# Deadlines are short, so that a stall ends with an error that names it.
set(BLUEFOG_TEST_ENVIRONMENT
    "BLUEFOG_TIMEOUT=5" "OMP_NUM_THREADS=1" "GTEST_COLOR=no"
    "TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:allocator_may_return_null=1:suppressions=${PROJECT_SOURCE_DIR}/tests/thread_sanitizer.supp"
    "ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1:allocator_may_return_null=1"
    "UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1")
set(BLUEFOG_LAUNCH_TIMEOUT 300)
set(BLUEFOG_COUNTS_LINES OFF)
if("${CMAKE_CXX_FLAGS_DEBUG}" MATCHES "--coverage")
  set(BLUEFOG_COUNTS_LINES ON)
endif()
if(BLUEFOG_SANITIZE)
  list(REMOVE_ITEM BLUEFOG_TEST_ENVIRONMENT "BLUEFOG_TIMEOUT=5")
  list(APPEND BLUEFOG_TEST_ENVIRONMENT "BLUEFOG_TIMEOUT=15")
  set(BLUEFOG_LAUNCH_TIMEOUT 900)
  list(APPEND BLUEFOG_TEST_ENVIRONMENT "BLUEFOG_SHM_CHUNK_BYTES=16384")
elseif(BLUEFOG_COUNTS_LINES)
  set(BLUEFOG_LAUNCH_TIMEOUT 900)  # counting takes time too
endif()
set(BLUEFOG_TEST_PATHS "PATH=path_list_prepend:${BLUEFOG_VENV}/bin")
if(NOT BLUEFOG_LONG_TESTS)
  # Programs of many starts load torch once.
  list(APPEND BLUEFOG_TEST_ENVIRONMENT TESTS_PRELOAD=1)
  # Python begins without torch's compiler where nothing is compiled.
  list(APPEND BLUEFOG_TEST_PATHS
       "PYTHONPATH=path_list_append:${PROJECT_SOURCE_DIR}/tests/support/python")
endif()

# Properties of all test targets. They run for moments: a quarter of their compile time is worth
# more.
function(bluefog_set_test_properties target)
  bluefog_set_common_properties(${target})
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()

# A test program RUNG_NAME; each rung links its own main.
function(bluefog_add_test_program target)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${target} ${arg_SOURCES})
  bluefog_set_test_properties(${target})
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}")
  target_link_libraries(${target} PRIVATE ${arg_LIBS} GTest::gtest GTest::gmock Threads::Threads)
endfunction()

# bluefog_slots_of(OUT NAME RANKS): how many of CTest's slots, of which there are two a core (what
# tests/run_suites.py begins side by side), the launch NAME of so many processes takes. Most ranks
# wait for each other, and some for most of their time. Failures have deadlines of a second.
set(BLUEFOG_WAITING_TESTS shrink window device)
function(bluefog_slots_of out name ranks)
  if(name STREQUAL failure)
    set(slots 2)
    if(ranks GREATER 4)
      set(slots 4)
    endif()
    set(${out} ${slots} PARENT_SCOPE)
  elseif(name IN_LIST BLUEFOG_WAITING_TESTS OR ranks LESS 3)
    set(${out} 1 PARENT_SCOPE)
  elseif(ranks LESS 5)
    set(${out} 2 PARENT_SCOPE)
  else()
    set(${out} 3 PARENT_SCOPE)
  endif()
endfunction()

# All cases in one process: one process for each, LibTorch with it, took longer than the cases.
# They are counted one by one all the same (tests/run_ranks.py).
# STAND_IN: tests of the product on a stand-in for a GPU alone. They run in the release preset: the
# stand-in itself finds what touches device memory that it may not, and what no event orders. What is
# left are races of the library's threads, which ThreadSanitizer looks for with BLUEFOG_LONG_TESTS.
# CI_WITHOUT: cases that run with BLUEFOG_LONG_TESTS alone, as GoogleTest filters name them.
if(NOT BLUEFOG_SANITIZE OR (BLUEFOG_LONG_TESTS AND BLUEFOG_SANITIZE MATCHES "thread"))
  set(BLUEFOG_STAND_IN_TESTS ON)
else()
  set(BLUEFOG_STAND_IN_TESTS OFF)
endif()
function(bluefog_run_cases label name processors)
  cmake_parse_arguments(arg "STAND_IN" "CI_WITHOUT" "" ${ARGN})
  set(labels ${label})
  if(arg_STAND_IN)
    list(APPEND labels stand_in)
  endif()
  set(target ${label}_${name})
  target_link_libraries(${target} PRIVATE GTest::gtest_main)
  set(filter)
  if(arg_CI_WITHOUT AND NOT BLUEFOG_LONG_TESTS)
    set(filter "--gtest_filter=*-${arg_CI_WITHOUT}")
  endif()
  bluefog_add_ranks_test(${label}.${name} LABELS ${labels} PROCESSORS ${processors} RANKS 1
                         COMMAND $<TARGET_FILE:${target}> ${filter})
  # On 2 and 4 threads a sanitizer finds what it finds on more, and so does the stand-in; lines are
  # reached on these. On 8 the bodies run as processes.
  if(NOT BLUEFOG_LONG_TESTS)
    if(BLUEFOG_SANITIZE OR BLUEFOG_COUNTS_LINES OR arg_STAND_IN)
      set(thread_ranks 2,4)
    else()
      set(thread_ranks 1,2,3,4)
    endif()
    set_property(TEST ${label}.${name} APPEND PROPERTY ENVIRONMENT THREAD_RANKS=${thread_ranks})
  endif()
endfunction()

# bluefog_add_ranks_test(NAME LABELS … PROCESSORS n RANKS n [LAUNCHER …] COMMAND …):
# a GoogleTest program on so many ranks.
function(bluefog_add_ranks_test name)
  cmake_parse_arguments(arg "" "PROCESSORS;RANKS" "LABELS;LAUNCHER;COMMAND" ${ARGN})
  math(EXPR inner_timeout "${BLUEFOG_LAUNCH_TIMEOUT} - 20")
  bluefog_add_script_test(
    ${name}
    LABELS ${arg_LABELS}
    PROCESSORS ${arg_PROCESSORS}
    COMMAND ${Python3_EXECUTABLE} "${PROJECT_SOURCE_DIR}/tests/run_ranks.py" --ranks ${arg_RANKS}
            --name ${name} --results "${PROJECT_BINARY_DIR}/Testing/ranks"
            --timeout ${inner_timeout} ${arg_LAUNCHER} -- ${arg_COMMAND})
endfunction()

# bluefog_add_unit_test(NAME [STAND_IN] SOURCES … [LIBS …]): one rank.
function(bluefog_add_unit_test name)
  bluefog_add_test_program(unit_${name} ${ARGN})
  bluefog_run_cases(unit ${name} 1 ${ARGN})
endfunction()

# bluefog_add_fabric_test(NAME [STAND_IN] SOURCES … [LIBS …]): threads of one process are
# the ranks, up to four.
function(bluefog_add_fabric_test name)
  bluefog_add_test_program(fabric_${name} ${ARGN})
  bluefog_slots_of(slots ${name} 4)
  bluefog_run_cases(fabric ${name} ${slots} ${ARGN})
endfunction()

# bluefog_add_mpi_test(NAME SOURCES … [LIBS …] [RANKS 2 8] [CI_WITHOUT CASES]): processes are the
# ranks. One launch per number of ranks; its cases are counted one by one (tests/run_ranks.py). The
# fabric rung runs shared bodies on 1, 2, 3 and 4 threads, so that RANKS are those on which processes
# make the difference; LEVEL=long has all of 1, 2, 3, 4 and 8. CI_WITHOUT as in bluefog_run_cases.
# The program brings its own main (SOURCES or LIBS).
function(bluefog_add_mpi_test name)
  cmake_parse_arguments(arg "" "CI_WITHOUT" "SOURCES;LIBS;RANKS" ${ARGN})
  set(filter)
  if(arg_CI_WITHOUT AND NOT BLUEFOG_LONG_TESTS)
    set(filter "--gtest_filter=*-${arg_CI_WITHOUT}")
  endif()
  if(NOT BLUEFOG_HAVE_MPI)
    if(NOT BLUEFOG_WITH_MPI STREQUAL "OFF")
      bluefog_add_skipped_test(mpi.${name} mpi "no MPI was found")
    endif()
    return()
  endif()
  if(BLUEFOG_SANITIZE)
    set(arg_RANKS 2)  # more ranks are other sums and orders, not other ways of using memory
  elseif(NOT arg_RANKS)
    set(arg_RANKS 2 8)
  endif()
  set(all_ranks ${arg_RANKS})
  if(BLUEFOG_LONG_TESTS AND NOT BLUEFOG_SANITIZE)
    list(APPEND all_ranks 1 2 3 4 8)
    list(REMOVE_DUPLICATES all_ranks)
  endif()
  if(TARGET bfrun)
    set(launcher $<TARGET_FILE:bfrun> "--launcher-args=--launcher mpirun")
  else()
    set(launcher mpirun)
  endif()
  bluefog_add_test_program(mpi_${name} SOURCES ${arg_SOURCES} LIBS ${arg_LIBS})
  if(TARGET bfrun)
    add_dependencies(mpi_${name} bfrun)
  endif()
  foreach(ranks ${all_ranks})
    set(long)
    if(NOT ranks IN_LIST arg_RANKS)
      set(long long)
    endif()
    bluefog_slots_of(slots ${name} ${ranks})
    bluefog_add_ranks_test(mpi.${name}.np${ranks} LABELS mpi ${long} PROCESSORS ${slots} RANKS ${ranks}
                           LAUNCHER --launcher ${launcher}
                           COMMAND $<TARGET_FILE:mpi_${name}> ${filter})
    # Memory that MPI may still use after a time-out is kept on purpose, and MPI keeps its own.
    set_property(TEST mpi.${name}.np${ranks} APPEND PROPERTY ENVIRONMENT_MODIFICATION
                                                             "ASAN_OPTIONS=string_append::detect_leaks=0")
  endforeach()
endfunction()

# bluefog_add_script_test(NAME LABELS … COMMAND … [TIMEOUT s] [PROCESSORS n] [COST s] [ENV …])
# COST: about how many seconds of two cores it takes, where these are many. The longest begin first,
# so that none is left alone at the end.
# Any command; exit code 77 means skipped, and it must print the reason in a
# line that starts with "SKIPPED: ".
function(bluefog_add_script_test name)
  cmake_parse_arguments(arg "" "TIMEOUT;PROCESSORS;COST" "LABELS;COMMAND;ENV" ${ARGN})
  add_test(NAME ${name} COMMAND ${arg_COMMAND})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT ${BLUEFOG_LAUNCH_TIMEOUT})
  endif()
  if(NOT arg_PROCESSORS)
    set(arg_PROCESSORS 1)
  endif()
  set_tests_properties(
    ${name} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT} PROCESSORS ${arg_PROCESSORS}
                       SKIP_RETURN_CODE 77 ENVIRONMENT "${BLUEFOG_TEST_ENVIRONMENT};${arg_ENV}"
                       ENVIRONMENT_MODIFICATION "${BLUEFOG_TEST_PATHS}")
  if(arg_COST)
    set_tests_properties(${name} PROPERTIES COST ${arg_COST})
  endif()
endfunction()

# bluefog_add_skipped_test(NAME LABEL REASON): something that cannot run here.
function(bluefog_add_skipped_test name label reason)
  add_test(NAME ${name} COMMAND sh -c "echo \"SKIPPED: $1\"; exit 77" sh "${reason}")
  set_tests_properties(${name} PROPERTIES LABELS "${label}" SKIP_RETURN_CODE 77)
endfunction()

# bluefog_look_for_pytest(NAME LABEL OUT): whether the package and a pytest for it are there. Without
# them, NAME stands for the tests that cannot run.
function(bluefog_look_for_pytest name label out)
  set(${out} OFF PARENT_SCOPE)
  if(NOT BLUEFOG_HAVE_PYTHON)
    bluefog_add_skipped_test(${name} ${label} "Python: ${BLUEFOG_PYTHON_STATUS}")
    return()
  endif()
  bluefog_python_package("${Python_EXECUTABLE}" pytest folder)
  if(NOT folder)
    bluefog_add_skipped_test(${name} ${label} "${Python_EXECUTABLE} has no pytest")
    return()
  endif()
  set(${out} ON PARENT_SCOPE)
endfunction()
