# bluefog_add_library(NAME SOURCES … [PUBLIC …] [PRIVATE …])
# Makes the library target bluefog_NAME with the alias bluefog::NAME, and
# installs it as part of the package.
function(bluefog_add_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(bluefog_${name} ${arg_SOURCES})
  add_library(bluefog::${name} ALIAS bluefog_${name})
  target_include_directories(
    bluefog_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                           $<INSTALL_INTERFACE:${BLUEFOG_INSTALL_INCLUDEDIR}>)
  target_link_libraries(bluefog_${name} PUBLIC ${arg_PUBLIC} PRIVATE ${arg_PRIVATE})
  bluefog_set_common_properties(bluefog_${name})
  bluefog_install_library(${name})
endfunction()

# bluefog_add_part(NAME SOURCES … [LIBS …] [INTO TARGET])
# Sources of bluefog_runtime, or of TARGET, that alone see the headers of LIBS.
function(bluefog_add_part name)
  cmake_parse_arguments(arg "" "INTO" "SOURCES;LIBS" ${ARGN})
  if(NOT arg_INTO)
    set(arg_INTO bluefog_runtime)
  endif()
  add_library(bluefog_${name} OBJECT ${arg_SOURCES})
  add_library(bluefog::${name} ALIAS bluefog_${name})
  target_include_directories(bluefog_${name} PRIVATE "${PROJECT_SOURCE_DIR}")
  target_link_libraries(bluefog_${name} PRIVATE bluefog::base Boost::headers fmt::fmt ${arg_LIBS})
  bluefog_set_common_properties(bluefog_${name})
  target_sources(${arg_INTO} PRIVATE $<TARGET_OBJECTS:bluefog_${name}>)
endfunction()

# Properties that all our targets share: language level, warnings, floating-point rules (products
# and sums round separately on every device), sanitizers.
function(bluefog_set_common_properties target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion
                                           -ffp-contract=off)
  if(BLUEFOG_WARNINGS_AS_ERRORS)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(BLUEFOG_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${BLUEFOG_SANITIZE} -fno-omit-frame-pointer
                                             -fno-sanitize-recover=all)
    if(BLUEFOG_SANITIZE MATCHES "undefined" AND NOT BLUEFOG_LONG_TESTS)
      # A quarter of the time to compile. Of these AddressSanitizer finds what reaches memory.
      target_compile_options(${target} PRIVATE -fno-sanitize=null,vptr,object-size)
    endif()
    target_link_options(${target} PUBLIC -fsanitize=${BLUEFOG_SANITIZE})
    if(BLUEFOG_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      # gcc cannot instrument std::atomic_thread_fence and says so; code under
      # ThreadSanitizer must not rely on fences alone.
      target_compile_options(${target} PRIVATE -Wno-error=tsan)
    endif()
  endif()
endfunction()

# Tuning for code that runs in every call, however short: gcc's generic tuning clears structures
# with `rep stos`, which costs more than a short call can spare. The instruction set stays as it is.
function(bluefog_tune_for_short_calls target)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    target_compile_options(${target} PRIVATE -mtune=skylake)
  endif()
endfunction()
