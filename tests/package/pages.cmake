# C++ blocks of pages, compiled as they stand there and run on two ranks.

# bluefog_add_page_test(NAME PAGE COUNT): tests package.NAME_0, … of the COUNT programs on PAGE.
function(bluefog_add_page_test name page count)
  file(READ "${PROJECT_SOURCE_DIR}/${page}" text)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${page}")
  string(REPLACE ";" "<semicolon>" text "${text}")
  string(REGEX MATCHALL "```cpp\n[^`]*```" blocks "${text}")
  list(LENGTH blocks found)
  if(NOT found EQUAL count)
    message(FATAL_ERROR "${page}: expected ${count} C++ blocks, found ${found}")
  endif()
  set(index 0)
  foreach(block ${blocks})
    string(REGEX REPLACE "^```cpp\n(.*)```$" "\\1" code "${block}")
    string(REPLACE "<semicolon>" ";" code "${code}")
    set(program ${name}_${index})
    set(source "${CMAKE_CURRENT_BINARY_DIR}/${program}.cpp")
    file(CONFIGURE OUTPUT "${source}" CONTENT "${code}" @ONLY)
    if(code MATCHES "pipeline/")
      set(library bluefog::pipeline)
    elseif(code MATCHES "nn/")
      set(library bluefog::nn)
    elseif(code MATCHES "optimizers/")
      set(library bluefog::optimizers)
    else()
      set(library bluefog::ops)
    endif()
    if(TARGET ${library} AND TARGET bfrun)
      add_executable(${program} "${source}")
      bluefog_set_test_properties(${program})
      target_link_libraries(${program} PRIVATE ${library})
      if(NOT library STREQUAL "bluefog::ops" AND NOT BLUEFOG_LONG_TESTS)
        bluefog_use_torch_pch(${program})  # LEVEL=long sees whether they include what they use
      endif()
      # In a folder of its own, which is empty: programs write files.
      bluefog_add_script_test(
        package.${program} LABELS package PROCESSORS 2
        COMMAND sh -c "rm -rf \"$1\" && mkdir \"$1\" && cd \"$1\" && exec \"$2\" -np 2 \"$3\"" sh
                "${CMAKE_CURRENT_BINARY_DIR}/${program}.files" $<TARGET_FILE:bfrun>
                $<TARGET_FILE:${program}>)
    else()
      bluefog_add_skipped_test(package.${program} package "LibTorch or MPI is missing in this build")
    endif()
    math(EXPR index "${index} + 1")
  endforeach()
endfunction()

bluefog_add_page_test(readme README.md 2)
bluefog_add_page_test(cpp_page docs/cpp.md 6)
bluefog_add_page_test(pipeline_page docs/pipeline.md 1)
