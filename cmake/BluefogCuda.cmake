# The CUDA toolkit and NCCL's headers, and kernels as images inside a library.
#
# Nothing links CUDA's or NCCL's libraries, so that what is built here also runs where there are
# none (docs/decisions/0011-gpu-libraries-are-loaded.md). Sets BLUEFOG_HAVE_CUDA,
# BLUEFOG_CUDA_STATUS, BLUEFOG_CUDA_INCLUDE_DIRS, BLUEFOG_NCCL_LIBRARY (beside nccl.h, or empty),
# for tests BLUEFOG_CUDA_STUB and for bluefog_add_kernels BLUEFOG_NVCC and BLUEFOG_NVCC_OPTIONS.

# The folder of nccl.h: NCCL_ROOT, the one that torch's package brings, or the system's.
function(bluefog_find_nccl out)
  set(hints "")
  foreach(root "${NCCL_ROOT}" "$ENV{NCCL_ROOT}")
    if(root)
      list(APPEND hints "${root}/include")
    endif()
  endforeach()
  set(packages "")
  if(BLUEFOG_TORCH_DIR)
    list(APPEND packages "${BLUEFOG_TORCH_DIR}/..")
  endif()
  if(BLUEFOG_VENV)
    file(GLOB in_venv "${BLUEFOG_VENV}/lib/python3*/site-packages")
    list(APPEND packages ${in_venv})
  endif()
  foreach(folder ${packages})
    list(APPEND hints "${folder}/nvidia/nccl/include")
  endforeach()
  find_path(BLUEFOG_NCCL_INCLUDE_DIR nccl.h HINTS ${hints}
            DOC "Folder of nccl.h")
  mark_as_advanced(BLUEFOG_NCCL_INCLUDE_DIR)
  set(${out} "${BLUEFOG_NCCL_INCLUDE_DIR}" PARENT_SCOPE)
endfunction()

# Numbers as in nvcc's names (90;100): TORCH_CUDA_ARCH_LIST, else those of the torch in use, else one of each
# generation.
function(bluefog_cuda_architectures out)
  set(wanted "${TORCH_CUDA_ARCH_LIST}")
  if(NOT wanted)
    set(wanted "$ENV{TORCH_CUDA_ARCH_LIST}")
  endif()
  if(NOT wanted AND BLUEFOG_HAVE_TORCH AND EXISTS "${BLUEFOG_VENV}/bin/python"
     AND NOT DEFINED CACHE{BLUEFOG_TORCH_CUDA_ARCHITECTURES})
    execute_process(
      COMMAND "${BLUEFOG_VENV}/bin/python" -c "import torch; print(torch._C._cuda_getArchFlags())"
      OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    string(REGEX MATCHALL "sm_[0-9]+[af]?" flags "${flags}")
    string(REPLACE "sm_" "" flags "${flags}")
    set(BLUEFOG_TORCH_CUDA_ARCHITECTURES "${flags}" CACHE INTERNAL "Architectures of torch's kernels")
  endif()
  if(NOT wanted)
    set(wanted "${BLUEFOG_TORCH_CUDA_ARCHITECTURES}")
  endif()
  # torch's spelling: "8.0;9.0+PTX", also with blanks.
  string(REGEX MATCHALL "[0-9]+\\.?[0-9]*[af]?" found "${wanted}")
  string(REPLACE "." "" found "${found}")
  set(${out} "${found}" PARENT_SCOPE)
endfunction()

# nvcc's options for them: code for each, and what a driver makes code for later ones of.
function(bluefog_cuda_code_options out architectures)
  if(NOT architectures)
    set(${out} -arch=all-major PARENT_SCOPE)
    return()
  endif()
  set(options "")
  foreach(number ${architectures})
    list(APPEND options -gencode=arch=compute_${number},code=sm_${number})
  endforeach()
  list(GET architectures -1 last)
  list(APPEND options -gencode=arch=compute_${last},code=compute_${last})
  set(${out} ${options} PARENT_SCOPE)
endfunction()

# Whether nvcc compiles for these architectures with this host compiler: found out once.
function(bluefog_check_nvcc out)
  string(JOIN " " key "${CUDAToolkit_NVCC_EXECUTABLE}" ${BLUEFOG_NVCC_OPTIONS})
  if(NOT BLUEFOG_NVCC_CHECKED STREQUAL key)
    set(folder "${PROJECT_BINARY_DIR}/nvcc_check")
    file(WRITE "${folder}/check.cu" "extern \"C\" __global__ void check(int* x) { *x = 1; }\n")
    execute_process(
      COMMAND "${CUDAToolkit_NVCC_EXECUTABLE}" ${BLUEFOG_NVCC_OPTIONS} -fatbin -o check.fatbin
              check.cu
      WORKING_DIRECTORY "${folder}" RESULT_VARIABLE code OUTPUT_VARIABLE text ERROR_VARIABLE text)
    if(NOT code EQUAL 0)
      string(REGEX REPLACE "\n.*" "" text "${text}")
      set(${out} "nvcc fails: ${text}" PARENT_SCOPE)
      return()
    endif()
    set(BLUEFOG_NVCC_CHECKED "${key}" CACHE INTERNAL "nvcc and options that were seen to work")
  endif()
  set(${out} "" PARENT_SCOPE)
endfunction()

# Why there is no CUDA part; empty where there is one.
function(bluefog_find_cuda out)
  find_package(CUDAToolkit QUIET)
  if(NOT CUDAToolkit_FOUND OR NOT CUDAToolkit_NVCC_EXECUTABLE)
    set(${out} "no toolkit found" PARENT_SCOPE)
    return()
  endif()
  bluefog_find_nccl(nccl)
  if(NOT nccl)
    set(${out} "toolkit ${CUDAToolkit_VERSION} found, but no nccl.h (NCCL_ROOT)" PARENT_SCOPE)
    return()
  endif()
  bluefog_cuda_architectures(architectures)
  bluefog_cuda_code_options(code "${architectures}")
  # Products and sums round separately, as on the CPU.
  set(BLUEFOG_NVCC_OPTIONS -std=c++17 -O3 -fmad=false -ccbin "${CMAKE_CXX_COMPILER}" ${code})
  bluefog_check_nvcc(problem)
  set(${out} "${problem}" PARENT_SCOPE)
  file(STRINGS "${nccl}/nccl.h" version REGEX "define NCCL_(MAJOR|MINOR|PATCH) ")
  string(REGEX MATCHALL "[0-9]+" version "${version}")
  string(JOIN "." version ${version})
  if(architectures)
    string(REPLACE ";" " sm_" names "sm_${architectures}")
  else()
    set(names "all major architectures")
  endif()
  set(BLUEFOG_CUDA_STATUS "toolkit ${CUDAToolkit_VERSION}, NCCL ${version}, ${names}" PARENT_SCOPE)
  set(BLUEFOG_NVCC_OPTIONS ${BLUEFOG_NVCC_OPTIONS} PARENT_SCOPE)
  set(BLUEFOG_CUDA_INCLUDE_DIRS "${CUDAToolkit_INCLUDE_DIRS}" "${nccl}" PARENT_SCOPE)
  file(GLOB library "${nccl}/../lib/libnccl.so.2")
  set(BLUEFOG_NCCL_LIBRARY "${library}" PARENT_SCOPE)
  file(GLOB stub "${CUDAToolkit_LIBRARY_DIR}/stubs/libcuda.so"
       "${CUDAToolkit_LIBRARY_ROOT}/lib64/stubs/libcuda.so")
  list(POP_FRONT stub first_stub)
  set(BLUEFOG_CUDA_STUB "${first_stub}" PARENT_SCOPE)
  set(BLUEFOG_NVCC "${CUDAToolkit_NVCC_EXECUTABLE}" PARENT_SCOPE)
endfunction()

set(BLUEFOG_HAVE_CUDA OFF)
set(BLUEFOG_CUDA_STATUS "off (BLUEFOG_WITH_CUDA=OFF)")
if(NOT BLUEFOG_WITH_CUDA STREQUAL "OFF")
  bluefog_find_cuda(problem)
  if(NOT problem)
    set(BLUEFOG_HAVE_CUDA ON)
  elseif(BLUEFOG_WITH_CUDA STREQUAL "ON")
    message(FATAL_ERROR "CUDA is wanted (BLUEFOG_WITH_CUDA=ON), and cannot be used: ${problem}. "
                        "Install the CUDA toolkit and NCCL's headers (torch's package brings them), "
                        "name them with CUDAToolkit_ROOT and NCCL_ROOT, or set "
                        "BLUEFOG_WITH_CUDA=AUTO or OFF.")
  else()
    set(BLUEFOG_CUDA_STATUS "${problem}")
  endif()
endif()

# bluefog_add_kernels(TARGET SYMBOL SOURCE): the kernels of SOURCE, compiled for every architecture,
# as the bytes from `SYMBOL` to `SYMBOL_end` (extern "C") inside TARGET.
function(bluefog_add_kernels target symbol source)
  cmake_path(GET source STEM name)
  set(image "${CMAKE_CURRENT_BINARY_DIR}/${name}.fatbin")
  add_custom_command(
    OUTPUT "${image}"
    COMMAND "${BLUEFOG_NVCC}" ${BLUEFOG_NVCC_OPTIONS} -I "${PROJECT_SOURCE_DIR}" -fatbin -MD
            -MF "${image}.d" -MT "${image}" -o "${image}" "${CMAKE_CURRENT_SOURCE_DIR}/${source}"
    DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${source}"
    DEPFILE "${image}.d"
    COMMENT "Compiling kernels ${source}"
    VERBATIM)
  set(wrapped "${CMAKE_CURRENT_BINARY_DIR}/${name}_image.cpp")
  set(BF_SYMBOL "${symbol}")
  set(BF_IMAGE "${image}")
  configure_file("${PROJECT_SOURCE_DIR}/cmake/kernel_image.cpp.in" "${wrapped}" @ONLY)
  set_source_files_properties("${wrapped}" PROPERTIES OBJECT_DEPENDS "${image}"
                                                      SKIP_UNITY_BUILD_INCLUSION ON)
  target_sources(${target} PRIVATE "${wrapped}")
endfunction()
