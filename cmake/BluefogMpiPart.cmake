# libbluefog_mpi.so: the folders mpi of bluefog_cpp, with copies of the little that they use of other
# rooms. The runtime loads it (docs/decisions/0029-mpi-is-loaded.md), and so links no MPI.
# bluefog_add_mpi_part(TARGET): the library without the objects of the folders mpi.
function(bluefog_add_mpi_part target)
  set(folder "${PROJECT_SOURCE_DIR}/bluefog_cpp")
  set(exports "${folder}/transport/mpi/exports.map")
  add_library(${target} MODULE "${folder}/transport/mpi/exported_functions.cpp"
                               "${folder}/transport/message.cpp" "${folder}/bootstrap/bootstrap.cpp")
  bluefog_set_common_properties(${target})
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}")
  # The library without the wrapper's flags, which write down where it lies on this machine.
  target_link_libraries(${target} PRIVATE bluefog::base Boost::headers ${MPI_CXX_LIBRARIES} fmt::fmt)
  # Nothing in it takes the place of what a program has by the same name, nor the other way round,
  # and it lacks nothing.
  target_link_options(${target} PRIVATE "-Wl,--version-script=${exports}" -Wl,-z,defs)
  set_target_properties(${target} PROPERTIES LINK_DEPENDS "${exports}")
endfunction()
if(NOT BLUEFOG_MPI_AT_RUN_TIME)
  return()
endif()

set(mpi_target bluefog_mpi)
bluefog_add_mpi_part(bluefog_mpi)
add_dependencies(bluefog_runtime bluefog_mpi)
if(NOT SKBUILD)
  # Programs find it where it was built or installed; in the Python package it lies beside.
  set(installed "$<INSTALL_PREFIX>/${CMAKE_INSTALL_LIBDIR}")
  target_link_options(
    bluefog_runtime INTERFACE $<BUILD_INTERFACE:-Wl,-rpath,$<TARGET_FILE_DIR:bluefog_mpi>>
                              $<INSTALL_INTERFACE:-Wl,-rpath,${installed}>)
endif()
if(BLUEFOG_INSTALL)
  add_dependencies(bluefog_package bluefog_mpi)
  install(TARGETS bluefog_mpi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT bluefog_cpp)
endif()
if(SKBUILD)
  # The MPI in PREFIX/lib goes first, as where the loader of the part looks for it.
  set_target_properties(bluefog_mpi PROPERTIES INSTALL_RPATH "$ORIGIN/../../..")
  install(TARGETS bluefog_mpi LIBRARY DESTINATION bluefog_cpp COMPONENT python)
endif()
