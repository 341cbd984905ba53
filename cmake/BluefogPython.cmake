# The Python package: BLUEFOG_HAVE_PYTHON, bluefog::torch_python, pybind11_add_module.
# It needs a torch that is a Python package, that Python with its headers, and pybind11.
set(BLUEFOG_HAVE_PYTHON OFF)
set(BLUEFOG_PYTHON_STATUS "off (BLUEFOG_PYTHON=OFF)")

# The folder from which `python` imports a package, or nothing.
function(bluefog_python_package python name out)
  execute_process(
    COMMAND "${python}" -c
            "import importlib.util, os, sys; spec = importlib.util.find_spec(sys.argv[1]); print(os.path.realpath(os.path.dirname(spec.origin)) if spec and spec.origin else '')"
            ${name}
    OUTPUT_VARIABLE folder OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  set(${out} "${folder}" PARENT_SCOPE)
endfunction()

if(NOT BLUEFOG_PYTHON STREQUAL "OFF")
  set(reason "")
  if(NOT BLUEFOG_HAVE_TORCH)
    set(reason "LibTorch is not used")
  elseif(NOT EXISTS "${BLUEFOG_TORCH_DIR}/lib/libtorch_python.so")
    set(reason "${BLUEFOG_TORCH_DIR} has no libtorch_python.so: it is no Python package")
  else()
    if(NOT Python_EXECUTABLE AND EXISTS "${BLUEFOG_VENV}/bin/python")
      set(Python_EXECUTABLE "${BLUEFOG_VENV}/bin/python" CACHE FILEPATH "Python of the package")
    endif()
    find_package(Python 3.10 QUIET COMPONENTS Interpreter Development.Module)
    if(NOT Python_FOUND)
      set(reason "no Python 3.10 or newer with its headers was found")
    endif()
  endif()
  if(NOT reason)
    file(REAL_PATH "${BLUEFOG_TORCH_DIR}" torch_folder)
    bluefog_python_package("${Python_EXECUTABLE}" torch its_torch)
    bluefog_python_package("${Python_EXECUTABLE}" pybind11 its_pybind11)
    set(PYBIND11_FINDPYTHON ON)
    find_package(pybind11 CONFIG QUIET HINTS "${its_pybind11}/share/cmake/pybind11")
    if(NOT its_torch STREQUAL torch_folder)
      set(reason "${Python_EXECUTABLE} imports torch from '${its_torch}', not ${torch_folder}")
    elseif(NOT pybind11_FOUND)
      set(reason "${Python_EXECUTABLE} has no pybind11")
    endif()
  endif()
  if(NOT reason)
    set(BLUEFOG_HAVE_PYTHON ON)
    set(BLUEFOG_PYTHON_STATUS "Python ${Python_VERSION}, pybind11 ${pybind11_VERSION}")
    add_library(bluefog::torch_python INTERFACE IMPORTED GLOBAL)
    set_target_properties(
      bluefog::torch_python PROPERTIES INTERFACE_LINK_LIBRARIES
                                       "bluefog::torch;${BLUEFOG_TORCH_DIR}/lib/libtorch_python.so")
  elseif(BLUEFOG_PYTHON STREQUAL "ON")
    message(FATAL_ERROR "BLUEFOG_PYTHON=ON, and the Python package cannot be built: ${reason}.")
  else()
    set(BLUEFOG_PYTHON_STATUS "not built: ${reason}")
  endif()
endif()
