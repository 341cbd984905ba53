# The GPU transport has no sources in this version; the option tells the truth.
set(BLUEFOG_HAVE_CUDA OFF)
set(BLUEFOG_CUDA_STATUS "off (BLUEFOG_WITH_CUDA=OFF)")
if(BLUEFOG_WITH_CUDA STREQUAL "ON")
  message(FATAL_ERROR "BLUEFOG_WITH_CUDA=ON, and this version has no GPU transport. Set it to AUTO "
                      "or OFF.")
elseif(BLUEFOG_WITH_CUDA STREQUAL "AUTO")
  find_package(CUDAToolkit QUIET)
  if(CUDAToolkit_FOUND)
    set(BLUEFOG_CUDA_STATUS "toolkit ${CUDAToolkit_VERSION} found; no GPU transport in this version")
  else()
    set(BLUEFOG_CUDA_STATUS "no toolkit found; no GPU transport in this version")
  endif()
endif()
