# cmake [-DTORCH_DIR=…] -P cuda_architectures.cmake: the GPUs that kernels are compiled for, given
# the wanted ones and those that nvcc knows.
cmake_minimum_required(VERSION 3.28)
include("${CMAKE_CURRENT_LIST_DIR}/../../cmake/BluefogCudaArchitectures.cmake")

function(expect what found expected)
  if(NOT found STREQUAL expected)
    message(SEND_ERROR "${what}: expected '${expected}', found '${found}'")
  endif()
endfunction()

function(expect_read words expected)
  bluefog_read_architectures(numbers problem "${words}")
  expect("problem of '${words}'" "${problem}" "")
  expect("'${words}'" "${numbers}" "${expected}")
endfunction()

function(expect_refused words named)
  bluefog_read_architectures(numbers problem "${words}")
  if(NOT problem MATCHES "^TORCH_CUDA_ARCH_LIST must have .*Hopper.*, not '(.*)'$")
    message(SEND_ERROR "'${words}' was not refused: '${problem}', ${numbers}")
  endif()
  expect("what is refused of '${words}'" "${CMAKE_MATCH_1}" "${named}")
endfunction()

function(expect_selected wanted known chosen left_out)
  bluefog_select_architectures(found left "${wanted}" "${known}")
  expect("of '${wanted}' from '${known}'" "${found}" "${chosen}")
  expect("left out of '${wanted}'" "${left}" "${left_out}")
endfunction()

function(expect_options architectures)
  bluefog_cuda_code_options(options "${architectures}")
  expect("options of '${architectures}'" "${options}" "${ARGN}")
endfunction()

# Numbers in torch's spelling and in nvcc's, with torch's separators; suffixes go.
expect_read("" "")
expect_read("8.0;9.0+PTX" "80;90")
expect_read(" 8.0  12.1 ;9.0 " "80;121;90")
expect_read("9.0a;12.0f;10.3a+PTX;90" "90;120;103;90")
# torch's names, of which some are parts of others.
expect_read("Hopper" "90")
expect_read("Ampere+Tegra;Ampere+PTX" "87;80;86")
expect_read("Volta;Turing Ada" "70;75;89")
expect_read("Blackwell" "100;103;120;121")
expect_read("All" "All")
foreach(word Auto Common native)
  expect_read(${word} "")
endforeach()
expect_refused("Hoper" "Hoper")
expect_refused("9.0;hopper;9;8.6+PTXX;9.0(8.0)" "hopper', '9', '8.6+PTXX', '9.0(8.0)")
expect_refused("8.0,9.0" "8.0,9.0")
expect_refused("(;9.0;*+" "(', '*+")

# Chosen ones rise by number, each once; the others come with their reason.
expect_selected("120;90;90;100;80" "75;80;90;100;110;103;120" "80;90;100;120" "")
expect_selected("50;90" "75;90" "90" "sm_50 (kernels need sm_70)")
expect_selected("90;60;130" "60;70;90" "90" "sm_60 (kernels need sm_70), sm_130 (unknown to nvcc)")
expect_selected("50" "75;90" "" "sm_50 (kernels need sm_70)")
expect_selected("70" "60;70" "70" "")
expect_selected("All" "60;110;103;75;90" "75;90;103;110" "")
expect_selected("All;50" "60;75" "75" "sm_50 (kernels need sm_70)")
# Nothing is wanted: the first of each generation that is new enough.
expect_selected("" "75;80;86;90;100;110;103;120;121" "75;80;90;100;110;120" "")
expect_selected("" "50;52;60;70;72;75;80" "70;80" "")

# Machine code for each, PTX for the lowest and the highest.
expect_options("80;90;120" -gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_90,code=sm_90
               -gencode=arch=compute_120,code=sm_120 -gencode=arch=compute_80,code=compute_80
               -gencode=arch=compute_120,code=compute_120)
expect_options("90" -gencode=arch=compute_90,code=sm_90 -gencode=arch=compute_90,code=compute_90)

# Every name that the torch in use has.
set(table "${TORCH_DIR}/utils/cpp_extension.py")
if(TORCH_DIR AND EXISTS "${table}")
  file(STRINGS "${table}" lines REGEX "^ *\\('[A-Z][A-Za-z+]*', '[0-9.+PTX;]*'\\),?$")
  list(LENGTH lines count)
  if(count EQUAL 0)
    message(SEND_ERROR "${table} has no table of names: expected named_arches")
  endif()
  string(REGEX MATCHALL "\\('[A-Za-z+]*'" names "${lines}")
  string(REGEX REPLACE "[(']" "" names "${names}")
  foreach(name ${names})
    bluefog_read_architectures(numbers problem "${name}")
    expect("torch's ${name}" "${problem}" "")
  endforeach()
endif()
