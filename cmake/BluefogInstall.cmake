# The installed package: libraries, headers, bfrun, bftopo, bluefog_cppConfig.cmake.
# Headers keep their paths from the root below include/bluefog_cpp, so that
# "topology/…" and "ops/…" cannot collide with others in a shared prefix.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(BLUEFOG_INSTALL_INCLUDEDIR ${CMAKE_INSTALL_INCLUDEDIR}/bluefog_cpp)
set(BLUEFOG_INSTALL_CMAKEDIR ${CMAKE_INSTALL_LIBDIR}/cmake/bluefog_cpp)
if(NOT DEFINED CMAKE_INSTALL_RPATH_USE_LINK_PATH)
  set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)
endif()

if(BLUEFOG_INSTALL)
  # The installed targets alone, to be built without the tests.
  add_custom_target(bluefog_package)
endif()

function(bluefog_install_library name)
  set_target_properties(bluefog_${name} PROPERTIES EXPORT_NAME ${name})
  if(BLUEFOG_INSTALL)
    add_dependencies(bluefog_package bluefog_${name})
    install(TARGETS bluefog_${name} EXPORT bluefog_cppTargets COMPONENT bluefog_cpp)
  endif()
endfunction()

# The last call of configure: every target must be known.
function(bluefog_install_package)
  if(NOT BLUEFOG_INSTALL)
    return()
  endif()
  # Headers at the top of a folder are public; those in its rooms are not installed.
  foreach(folder bluefog_cpp topology ops optimizers nn pipeline)
    if(NOT TARGET bluefog_${folder} AND NOT folder STREQUAL "bluefog_cpp")
      continue()
    endif()
    file(GLOB headers CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${folder}/*.hpp")
    install(FILES ${headers} DESTINATION ${BLUEFOG_INSTALL_INCLUDEDIR}/${folder}
            COMPONENT bluefog_cpp)
  endforeach()
  foreach(command bfrun bftopo bftrace)
    if(TARGET ${command})
      add_dependencies(bluefog_package ${command})
      install(TARGETS ${command} COMPONENT bluefog_cpp)
    endif()
  endforeach()
  install(EXPORT bluefog_cppTargets NAMESPACE bluefog:: DESTINATION ${BLUEFOG_INSTALL_CMAKEDIR}
          COMPONENT bluefog_cpp)
  configure_package_config_file(
    "${PROJECT_SOURCE_DIR}/cmake/bluefog_cppConfig.cmake.in"
    "${PROJECT_BINARY_DIR}/bluefog_cppConfig.cmake" INSTALL_DESTINATION ${BLUEFOG_INSTALL_CMAKEDIR})
  write_basic_package_version_file("${PROJECT_BINARY_DIR}/bluefog_cppConfigVersion.cmake"
                                   COMPATIBILITY SameMinorVersion)
  install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION ${CMAKE_INSTALL_DOCDIR}
          COMPONENT bluefog_cpp)
  install(FILES "${PROJECT_BINARY_DIR}/bluefog_cppConfig.cmake"
                "${PROJECT_BINARY_DIR}/bluefog_cppConfigVersion.cmake"
                "${PROJECT_SOURCE_DIR}/cmake/BluefogMpiIdentity.cmake"
                "${PROJECT_SOURCE_DIR}/cmake/BluefogTorch.cmake"
          DESTINATION ${BLUEFOG_INSTALL_CMAKEDIR} COMPONENT bluefog_cpp)
endfunction()
