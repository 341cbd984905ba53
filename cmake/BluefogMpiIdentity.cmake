# Tells one MPI from another: libraries that were compiled with one implementation's headers need
# its symbols, and fail with others at the link or at run time. Used by the build and by the
# package.

# The name and version of the MPI whose mpi.h lies in the folder: "Open MPI" and "5.0.11"; both
# empty where it says neither.
function(bluefog_mpi_identity folder out_name out_version)
  set(name "")
  set(version "")
  if(EXISTS "${folder}/mpi.h")
    file(STRINGS "${folder}/mpi.h" lines
         REGEX "define +(OMPI_(MAJOR|MINOR|RELEASE)_VERSION|MPICH_VERSION|MVAPICH2_VERSION|I_MPI_VERSION) ")
    foreach(part MAJOR MINOR RELEASE)
      if(lines MATCHES "OMPI_${part}_VERSION +([0-9]+)")
        set(name "Open MPI")
        list(APPEND version ${CMAKE_MATCH_1})
      endif()
    endforeach()
    string(REPLACE ";" "." version "${version}")
    # Implementations that stand on MPICH define its version too, and go first.
    foreach(other I_MPI MVAPICH2 MPICH)
      if(NOT name AND lines MATCHES "${other}_VERSION +\"([^\"]+)\"")
        set(name "${other}")
        set(version "${CMAKE_MATCH_1}")
      endif()
    endforeach()
  endif()
  set(${out_name} "${name}" PARENT_SCOPE)
  set(${out_version} "${version}" PARENT_SCOPE)
endfunction()

# Why libraries built with one MPI cannot be linked with another; empty where they can, which is
# with the same implementation and major version, not older than theirs up to the minor one, and
# where either says nothing of itself.
function(bluefog_mpi_difference built_name built_version found_name found_version out)
  set(difference "")
  if(built_name AND found_name)
    string(REGEX REPLACE "^([0-9]+)\\..*" "\\1" built_major "${built_version}")
    string(REGEX REPLACE "^([0-9]+)\\..*" "\\1" found_major "${found_version}")
    string(REGEX REPLACE "^([0-9]+\\.[0-9]+).*" "\\1" built_minor "${built_version}")
    if(NOT built_name STREQUAL found_name OR NOT built_major EQUAL found_major
       OR found_version VERSION_LESS built_minor)
      set(difference "bluefog_cpp was built with ${built_name} ${built_version}, and the MPI found is \
${found_name} ${found_version}")
    endif()
  endif()
  set(${out} "${difference}" PARENT_SCOPE)
endfunction()
