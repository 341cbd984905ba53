# Fuzzing by libFuzzer, clang's, of code that g++ has instrumented (tests/fuzz/coverage.cpp).
file(GLOB fuzzers "/usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.fuzzer-${CMAKE_SYSTEM_PROCESSOR}.a")
if(fuzzers)
  list(SORT fuzzers COMPARE NATURAL)
  list(GET fuzzers -1 fuzzers)
endif()
set(BLUEFOG_FUZZER_LIBRARY "${fuzzers}" CACHE FILEPATH "libFuzzer (Debian: libclang-rt-dev)")
set(BLUEFOG_FUZZ_SECONDS 10)

set(BLUEFOG_FUZZ_STATUS "")
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(BLUEFOG_FUZZ_STATUS "fuzzing is set up for g++, not for ${CMAKE_CXX_COMPILER_ID}")
elseif(NOT EXISTS "${BLUEFOG_FUZZER_LIBRARY}")
  set(BLUEFOG_FUZZ_STATUS "no libFuzzer was found (Debian: libclang-rt-dev)")
endif()

add_custom_target(fuzz)
if(NOT BLUEFOG_FUZZ_STATUS)
  add_library(bluefog_fuzz_coverage OBJECT "${PROJECT_SOURCE_DIR}/tests/fuzz/coverage.cpp")
  bluefog_set_common_properties(bluefog_fuzz_coverage)
  target_compile_options(bluefog_fuzz_coverage PRIVATE -fno-sanitize=all)
endif()

# bluefog_add_fuzz_test(NAME PARSER … [LIBS …]): NAME_fuzz.cpp, with the sources of the parser,
# which are compiled once more, instrumented. LIBS must not have them too.
function(bluefog_add_fuzz_test name)
  cmake_parse_arguments(arg "" "" "PARSER;LIBS" ${ARGN})
  if(BLUEFOG_FUZZ_STATUS)
    bluefog_add_skipped_test(fuzz.${name} fuzz "${BLUEFOG_FUZZ_STATUS}")
    return()
  endif()
  list(TRANSFORM arg_PARSER PREPEND "${PROJECT_SOURCE_DIR}/")
  bluefog_add_test_program(
    fuzz_${name} SOURCES ${name}_fuzz.cpp ${arg_PARSER} $<TARGET_OBJECTS:bluefog_fuzz_coverage>
    LIBS ${arg_LIBS} fmt::fmt "${BLUEFOG_FUZZER_LIBRARY}")
  # A number that does not fit an integer is a finding, which neither sanitizer looks for by itself.
  target_compile_options(fuzz_${name} PRIVATE -fsanitize-coverage=trace-pc,trace-cmp
                                              -fsanitize=float-cast-overflow)
  target_link_options(fuzz_${name} PRIVATE -Wl,--wrap=__sanitizer_cov_trace_pc)
  set_target_properties(fuzz_${name} PROPERTIES UNITY_BUILD OFF)
  add_dependencies(fuzz fuzz_${name})
  set(inputs "${CMAKE_CURRENT_BINARY_DIR}/inputs/${name}")
  file(MAKE_DIRECTORY "${inputs}")
  # libFuzzer's own exit code for a finding, 77, is CTest's for a skipped test.
  bluefog_add_script_test(
    fuzz.${name} LABELS fuzz
    COMMAND fuzz_${name} -max_total_time=${BLUEFOG_FUZZ_SECONDS} -seed=1 -timeout=30
            -malloc_limit_mb=256 -error_exitcode=1
            "-artifact_prefix=${CMAKE_CURRENT_BINARY_DIR}/found-${name}-" "${inputs}"
            "${CMAKE_CURRENT_SOURCE_DIR}/seeds/${name}")
endfunction()
