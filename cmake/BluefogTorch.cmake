# bluefog::torch: LibTorch's CPU part as an imported target of our own.
# torch's own CMake package stops where torch was built with CUDA and no CUDA
# toolkit is installed; the CPU libraries need none. Used by the build and, as
# installed, by the package. Reads BLUEFOG_TORCH_ROOT, BLUEFOG_VENV, Torch_DIR
# and CMAKE_PREFIX_PATH; sets BLUEFOG_TORCH_FOUND, _DIR, _VERSION and _REASON.
set(BLUEFOG_TORCH_MINIMUM 2.7)

# Folders that may hold LibTorch, the user's wish first.
function(bluefog_torch_candidates out)
  if(BLUEFOG_TORCH_ROOT)
    set(${out} "${BLUEFOG_TORCH_ROOT}" PARENT_SCOPE)
    return()
  endif()
  set(found "")
  if(Torch_DIR)
    list(APPEND found "${Torch_DIR}/../../..")
  endif()
  foreach(prefix ${CMAKE_PREFIX_PATH} "$ENV{CMAKE_PREFIX_PATH}")
    # torch.utils.cmake_prefix_path ends in torch/share/cmake.
    list(APPEND found "${prefix}" "${prefix}/../..")
  endforeach()
  if(BLUEFOG_VENV)
    file(GLOB in_venv "${BLUEFOG_VENV}/lib/python3*/site-packages/torch")
    list(APPEND found ${in_venv})
  endif()
  list(APPEND found "$ENV{LIBTORCH}" "${BLUEFOG_TORCH_HINT}")
  list(REMOVE_ITEM found "")
  set(${out} ${found} PARENT_SCOPE)
endfunction()

function(bluefog_torch_version root out)
  set(version "")
  foreach(header torch/headeronly/version.h torch/version.h
                 torch/csrc/api/include/torch/version.h)
    if(NOT version AND EXISTS "${root}/include/${header}")
      file(READ "${root}/include/${header}" text)
      if(text MATCHES "TORCH_VERSION_MAJOR ([0-9]+).*TORCH_VERSION_MINOR ([0-9]+).*TORCH_VERSION_PATCH ([0-9]+)")
        set(version "${CMAKE_MATCH_1}.${CMAKE_MATCH_2}.${CMAKE_MATCH_3}")
      endif()
    endif()
  endforeach()
  set(${out} "${version}" PARENT_SCOPE)
endfunction()

function(bluefog_torch_target root)
  add_library(bluefog::torch INTERFACE IMPORTED GLOBAL)
  set(libraries "${root}/lib/libtorch_cpu.so" "${root}/lib/libc10.so")
  set_target_properties(
    bluefog::torch
    PROPERTIES
      INTERFACE_INCLUDE_DIRECTORIES "${root}/include;${root}/include/torch/csrc/api/include"
      INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${root}/include;${root}/include/torch/csrc/api/include"
      INTERFACE_LINK_LIBRARIES "${libraries}"
      INTERFACE_COMPILE_FEATURES cxx_std_20)
  # The C++ ABI that torch was built with decides how std::string is laid out.
  set(config "${root}/share/cmake/Torch/TorchConfig.cmake")
  if(EXISTS "${config}")
    file(READ "${config}" text)
    if(text MATCHES "_GLIBCXX_USE_CXX11_ABI=([01])")
      set_target_properties(bluefog::torch PROPERTIES INTERFACE_COMPILE_DEFINITIONS
                                                      "_GLIBCXX_USE_CXX11_ABI=${CMAKE_MATCH_1}")
    endif()
  endif()
endfunction()

function(bluefog_find_torch)
  set(BLUEFOG_TORCH_FOUND OFF)
  set(BLUEFOG_TORCH_REASON "no LibTorch found")
  bluefog_torch_candidates(candidates)
  foreach(candidate ${candidates})
    if(NOT BLUEFOG_TORCH_FOUND AND EXISTS "${candidate}/lib/libtorch_cpu.so"
       AND EXISTS "${candidate}/include/ATen/ATen.h")
      get_filename_component(BLUEFOG_TORCH_DIR "${candidate}" ABSOLUTE)
      bluefog_torch_version("${BLUEFOG_TORCH_DIR}" BLUEFOG_TORCH_VERSION)
      if(NOT BLUEFOG_TORCH_VERSION OR BLUEFOG_TORCH_VERSION VERSION_LESS BLUEFOG_TORCH_MINIMUM)
        set(BLUEFOG_TORCH_REASON "LibTorch '${BLUEFOG_TORCH_VERSION}' in ${BLUEFOG_TORCH_DIR} is \
older than ${BLUEFOG_TORCH_MINIMUM}")
      else()
        set(BLUEFOG_TORCH_FOUND ON)
      endif()
    endif()
  endforeach()
  if(BLUEFOG_TORCH_FOUND AND NOT TARGET bluefog::torch)
    bluefog_torch_target("${BLUEFOG_TORCH_DIR}")
  elseif(BLUEFOG_TORCH_ROOT AND NOT BLUEFOG_TORCH_FOUND)
    string(APPEND BLUEFOG_TORCH_REASON "; looked for lib/libtorch_cpu.so in BLUEFOG_TORCH_ROOT "
           "(${BLUEFOG_TORCH_ROOT})")
  endif()
  foreach(result FOUND DIR VERSION REASON)
    set(BLUEFOG_TORCH_${result} "${BLUEFOG_TORCH_${result}}" PARENT_SCOPE)
  endforeach()
endfunction()
