# libbluefog_mpi.so: the folders mpi of bluefog_cpp, with copies of the little that they use of other
# rooms. The runtime loads it (docs/decisions/0029-mpi-is-loaded.md), and so links no MPI.
set(mpi_target bluefog_mpi)
add_library(bluefog_mpi MODULE transport/mpi/exported_functions.cpp transport/message.cpp)
bluefog_set_common_properties(bluefog_mpi)
target_include_directories(bluefog_mpi PRIVATE "${PROJECT_SOURCE_DIR}")
# The library without the wrapper's flags, which write down where it lies on this machine.
target_link_libraries(bluefog_mpi PRIVATE bluefog::base Boost::headers ${MPI_CXX_LIBRARIES} fmt::fmt)
# Nothing in it takes the place of what a program has by the same name, nor the other way round.
set(exports "${CMAKE_CURRENT_SOURCE_DIR}/transport/mpi/exports.map")
target_link_options(bluefog_mpi PRIVATE "-Wl,--version-script=${exports}")
set_target_properties(bluefog_mpi PROPERTIES LINK_DEPENDS "${exports}")

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
