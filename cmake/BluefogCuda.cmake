# The CUDA toolkit and NCCL's headers, and kernels as images inside a library.
#
# Nothing links CUDA's or NCCL's libraries, so that the build also runs on machines without them
# (docs/decisions/0011-gpu-libraries-are-loaded.md). Sets BLUEFOG_HAVE_CUDA, BLUEFOG_CUDA_STATUS,
# BLUEFOG_CUDA_INCLUDE_DIRS, BLUEFOG_NCCL_LIBRARY (beside nccl.h, or empty), for tests
# BLUEFOG_CUDA_STUB and for bluefog_add_kernels BLUEFOG_NVCC and BLUEFOG_NVCC_OPTIONS.
include(BluefogCudaArchitectures)

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

# The architectures of TORCH_CUDA_ARCH_LIST. Unknown words end configure, with a toolkit or without.
function(bluefog_wanted_architectures out)
  set(words "${TORCH_CUDA_ARCH_LIST}")
  if(NOT words)
    set(words "$ENV{TORCH_CUDA_ARCH_LIST}")
  endif()
  bluefog_read_architectures(wanted problem "${words}")
  if(problem)
    message(FATAL_ERROR "${problem}")
  endif()
  set(${out} "${wanted}" PARENT_SCOPE)
endfunction()

# The architectures that the torch in use has kernels for; empty if it has none.
function(bluefog_torch_architectures out)
  if(BLUEFOG_HAVE_TORCH AND EXISTS "${BLUEFOG_VENV}/bin/python"
     AND NOT DEFINED CACHE{BLUEFOG_TORCH_CUDA_ARCHITECTURES})
    execute_process(
      COMMAND "${BLUEFOG_VENV}/bin/python" -c "import torch; print(torch._C._cuda_getArchFlags())"
      OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    string(REGEX MATCHALL "sm_[0-9]+" flags "${flags}")
    string(REPLACE "sm_" "" flags "${flags}")
    set(BLUEFOG_TORCH_CUDA_ARCHITECTURES "${flags}" CACHE INTERNAL "Architectures of torch's kernels")
  endif()
  set(${out} "${BLUEFOG_TORCH_CUDA_ARCHITECTURES}" PARENT_SCOPE)
endfunction()

# bluefog_choose_architectures(CHOSEN LEFT_OUT PROBLEM WANTED): the wanted architectures that this
# nvcc and the kernels support.
function(bluefog_choose_architectures chosen_out left_out_out problem_out wanted)
  execute_process(COMMAND "${CUDAToolkit_NVCC_EXECUTABLE}" --list-gpu-arch
                  OUTPUT_VARIABLE known ERROR_QUIET)
  string(REGEX MATCHALL "compute_[0-9]+" known "${known}")
  string(REPLACE "compute_" "" known "${known}")
  list(REMOVE_DUPLICATES known)
  list(SORT known COMPARE NATURAL)
  bluefog_select_architectures(chosen left_out "${wanted}" "${known}")
  set(problem "")
  if(NOT known)
    set(problem "nvcc --list-gpu-arch names no GPU (${CUDAToolkit_NVCC_EXECUTABLE})")
  elseif(NOT chosen)
    string(REPLACE ";" " sm_" names "sm_${known}")
    set(problem "of the GPUs wanted (TORCH_CUDA_ARCH_LIST, else torch's) none is left: \
${left_out}. Toolkit ${CUDAToolkit_VERSION} knows ${names}")
  endif()
  set(${chosen_out} "${chosen}" PARENT_SCOPE)
  set(${left_out_out} "${left_out}" PARENT_SCOPE)
  set(${problem_out} "${problem}" PARENT_SCOPE)
endfunction()

# Whether nvcc compiles the kernels' headers with this host compiler, for the lowest and the highest
# of these architectures; found out once, in a few seconds.
function(bluefog_check_nvcc out architectures)
  list(GET architectures 0 -1 ends)
  list(REMOVE_DUPLICATES ends)
  bluefog_cuda_code_options(options "${ends}")
  set(command "${CUDAToolkit_NVCC_EXECUTABLE}" ${BLUEFOG_NVCC_BASE_OPTIONS} ${options})
  string(JOIN " " key ${command})
  if(NOT BLUEFOG_NVCC_CHECKED STREQUAL key)
    set(folder "${PROJECT_BINARY_DIR}/nvcc_check")
    file(MAKE_DIRECTORY "${folder}")
    execute_process(
      COMMAND ${command} -I "${PROJECT_SOURCE_DIR}" -fatbin -o check.fatbin
              "${PROJECT_SOURCE_DIR}/ops/sums/cuda/nvcc_check.cu"
      WORKING_DIRECTORY "${folder}" RESULT_VARIABLE code OUTPUT_VARIABLE text ERROR_VARIABLE text)
    if(NOT code EQUAL 0)
      string(REGEX MATCH "[^\n]*([Ee]rror|fatal)[^\n]*" line "${text}")
      if(NOT line)
        string(REGEX REPLACE "\n.*" "" line "${text}")
      endif()
      set(${out} "nvcc fails: ${line}" PARENT_SCOPE)
      return()
    endif()
    set(BLUEFOG_NVCC_CHECKED "${key}" CACHE INTERNAL "nvcc and options that were seen to work")
  endif()
  set(${out} "" PARENT_SCOPE)
endfunction()

# The reason for having no CUDA part; empty if there is one.
function(bluefog_find_cuda out)
  bluefog_wanted_architectures(wanted)
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
  if(NOT wanted)
    bluefog_torch_architectures(wanted)
  endif()
  bluefog_choose_architectures(architectures left_out problem "${wanted}")
  if(problem)
    set(${out} "${problem}" PARENT_SCOPE)
    return()
  endif()
  # Products and sums round separately, as on the CPU.
  set(BLUEFOG_NVCC_BASE_OPTIONS -std=c++17 -O3 -fmad=false -ccbin "${CMAKE_CXX_COMPILER}")
  bluefog_check_nvcc(problem "${architectures}")
  set(${out} "${problem}" PARENT_SCOPE)
  file(STRINGS "${nccl}/nccl.h" version REGEX "define NCCL_(MAJOR|MINOR|PATCH) ")
  string(REGEX MATCHALL "[0-9]+" version "${version}")
  string(JOIN "." version ${version})
  string(REPLACE ";" " sm_" names "sm_${architectures}")
  if(left_out)
    string(APPEND names ", without ${left_out}")
  endif()
  set(BLUEFOG_CUDA_STATUS "toolkit ${CUDAToolkit_VERSION}, NCCL ${version}, ${names}" PARENT_SCOPE)
  bluefog_cuda_code_options(code "${architectures}")
  set(BLUEFOG_NVCC_OPTIONS ${BLUEFOG_NVCC_BASE_OPTIONS} ${code} PARENT_SCOPE)
  set(BLUEFOG_CUDA_INCLUDE_DIRS "${CUDAToolkit_INCLUDE_DIRS}" "${nccl}" PARENT_SCOPE)
  file(GLOB library "${nccl}/../lib/libnccl.so.2")
  if(SKBUILD)
    set(library "")  # the place of the build is not that of the package, whose torch has loaded one
  endif()
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
                        "name them with CUDAToolkit_ROOT and NCCL_ROOT, and GPUs with "
                        "TORCH_CUDA_ARCH_LIST, or set BLUEFOG_WITH_CUDA=AUTO or OFF.")
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
