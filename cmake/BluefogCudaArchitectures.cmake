# The GPUs that kernels are compiled for: numbers as in nvcc's names, 90 for sm_90. Functions alone,
# without a project (tests/package/cuda_architectures.cmake).

# The kernels' __grid_constant__ needs it.
set(BLUEFOG_CUDA_LEAST_ARCHITECTURE 70)

# torch's names of generations, as in its torch/utils/cpp_extension.py.
set(BLUEFOG_CUDA_GENERATIONS
    Kepler+Tesla=37 Kepler=35 Maxwell+Tegra=53 Maxwell=50,52 Pascal=60,61 Volta+Tegra=72 Volta=70
    Turing=75 Ampere+Tegra=87 Ampere=80,86 Ada=89 Hopper=90 Blackwell+Tegra=110
    Blackwell=100,103,120,121)

function(bluefog_generation_architectures out name)
  set(numbers "")
  foreach(entry ${BLUEFOG_CUDA_GENERATIONS})
    if(entry MATCHES "^(.*)=(.*)$" AND CMAKE_MATCH_1 STREQUAL name)
      string(REPLACE "," ";" numbers "${CMAKE_MATCH_2}")
    endif()
  endforeach()
  set(${out} "${numbers}" PARENT_SCOPE)
endfunction()

# bluefog_read_architectures(NUMBERS PROBLEM WORDS): the numbers of a list in torch's spelling:
# "8.0;9.0+PTX", "Hopper", also with blanks. Suffixes are dropped ("9.0a" is 90): the kernels use
# nothing that needs them. "All" stays a word; empty for words that leave the choice to others.
function(bluefog_read_architectures numbers_out problem_out words)
  string(REGEX REPLACE "[; \t]+" ";" words "${words}")
  list(REMOVE_ITEM words "")
  set(numbers "")
  set(unknown "")
  foreach(word ${words})
    string(REGEX REPLACE "\\+PTX$" "" name "${word}")
    bluefog_generation_architectures(generation "${name}")
    if(name MATCHES "^([0-9]+)\\.?([0-9])[af]?$")
      list(APPEND numbers "${CMAKE_MATCH_1}${CMAKE_MATCH_2}")
    elseif(generation)
      list(APPEND numbers ${generation})
    elseif(word STREQUAL "All")
      list(APPEND numbers All)
    elseif(NOT word MATCHES "^(Auto|Common|native)$")
      list(APPEND unknown "${word}")
    endif()
  endforeach()
  set(${numbers_out} "${numbers}" PARENT_SCOPE)
  set(${problem_out} "" PARENT_SCOPE)
  if(unknown)
    list(TRANSFORM BLUEFOG_CUDA_GENERATIONS REPLACE "=.*" "" OUTPUT_VARIABLE names)
    list(JOIN names " " names)
    list(JOIN unknown "', '" unknown)
    set(${problem_out} "TORCH_CUDA_ARCH_LIST must have compute capabilities (\"8.0;9.0\"), torch's \
names of them (${names}), All, Common, Auto or native, not '${unknown}'" PARENT_SCOPE)
  endif()
endfunction()

# bluefog_select_architectures(CHOSEN LEFT_OUT WANTED KNOWN): the wanted ones that nvcc knows and
# the kernels can be compiled for, rising and each once; the others, as text. Nothing wanted: the
# first of each generation.
function(bluefog_select_architectures chosen_out left_out_out wanted known)
  if("All" IN_LIST wanted)
    list(REMOVE_ITEM wanted All)
    foreach(number ${known})
      if(NOT number LESS BLUEFOG_CUDA_LEAST_ARCHITECTURE)
        list(APPEND wanted ${number})
      endif()
    endforeach()
  endif()
  list(SORT known COMPARE NATURAL)
  if(NOT wanted)
    set(last_major 0)
    foreach(number ${known})
      math(EXPR major "${number} / 10")
      if(NOT number LESS BLUEFOG_CUDA_LEAST_ARCHITECTURE AND NOT major EQUAL last_major)
        list(APPEND wanted ${number})
        set(last_major ${major})
      endif()
    endforeach()
  endif()
  list(REMOVE_DUPLICATES wanted)
  list(SORT wanted COMPARE NATURAL)
  set(chosen "")
  set(left_out "")
  foreach(number ${wanted})
    if(number LESS BLUEFOG_CUDA_LEAST_ARCHITECTURE)
      list(APPEND left_out "sm_${number} (kernels need sm_${BLUEFOG_CUDA_LEAST_ARCHITECTURE})")
    elseif(NOT number IN_LIST known)
      list(APPEND left_out "sm_${number} (unknown to nvcc)")
    else()
      list(APPEND chosen ${number})
    endif()
  endforeach()
  list(JOIN left_out ", " left_out)
  set(${chosen_out} "${chosen}" PARENT_SCOPE)
  set(${left_out_out} "${left_out}" PARENT_SCOPE)
endfunction()

# nvcc's options: machine code for each, and PTX, from which a driver makes code for newer GPUs: PTX
# of the lowest serves those between the listed ones too, that of the highest those after them.
function(bluefog_cuda_code_options out architectures)
  set(options "")
  foreach(number ${architectures})
    list(APPEND options -gencode=arch=compute_${number},code=sm_${number})
  endforeach()
  list(GET architectures 0 -1 ends)
  list(REMOVE_DUPLICATES ends)
  foreach(number ${ends})
    list(APPEND options -gencode=arch=compute_${number},code=compute_${number})
  endforeach()
  set(${out} ${options} PARENT_SCOPE)
endfunction()
