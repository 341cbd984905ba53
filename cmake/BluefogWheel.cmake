# A build that pip started (scikit-build-core): torch and Open MPI are those of the Python that
# builds, or of pip's own build environment.
if(NOT BLUEFOG_TORCH_ROOT)
  execute_process(
    COMMAND "${Python_EXECUTABLE}" -c
            "import os, importlib.util as u; print(os.path.dirname(u.find_spec('torch').origin))"
    OUTPUT_VARIABLE torch_folder OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE code)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${Python_EXECUTABLE} has no torch to build against: 'pip install torch', "
                        "then 'pip install --no-build-isolation .'")
  endif()
  set(BLUEFOG_TORCH_ROOT "${torch_folder}" CACHE PATH "LibTorch of the Python package torch" FORCE)
endif()
# PREFIX/lib/pythonX.Y/site-packages/torch
get_filename_component(prefix "${BLUEFOG_TORCH_ROOT}/../../../.." ABSOLUTE)
set(BLUEFOG_VENV "${prefix}" CACHE PATH "Virtual environment to take torch, MPI and Python from"
                             FORCE)

# A wheel runs where Debian's libraries are not: fmt and spdlog are taken from their headers alone,
# so that their libraries are left out as not needed. auditwheel copies in what is left, Highway's.
function(bluefog_build_for_other_machines)
  set_target_properties(fmt::fmt PROPERTIES INTERFACE_COMPILE_DEFINITIONS FMT_HEADER_ONLY=1)
  set_target_properties(spdlog::spdlog PROPERTIES INTERFACE_COMPILE_DEFINITIONS SPDLOG_FMT_EXTERNAL)
  add_link_options(-Wl,--as-needed)
  # torch's checks write down the files that they stand in.
  add_compile_options("-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/="
                      "-fmacro-prefix-map=${BLUEFOG_TORCH_ROOT}/=torch/")
endfunction()
