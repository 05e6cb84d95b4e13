# `cmake --install` gives the program, the libraries with their public headers, and a CMake package.
# A header that is not listed may change at any time. Those listed include each other and nothing else
# of ours (tests/package).
set(public_headers
    base/dtype.h base/error.h base/json.h
    comm/comm_options.h comm/communicator.h comm/mpi_communicator.h comm/pending.h comm/row_label.h
    comm/shared_memory_communicator.h comm/thread_communicator.h
    src/checkpoint/mapped_file.h src/checkpoint/read_faults.h src/checkpoint/safetensors.h
    src/checkpoint/safetensors_writer.h
    src/generate/text_model.h
    src/tokenizer/decoder.h src/tokenizer/encoded_text.h src/tokenizer/tokenizer.h)
include(CMakePackageConfigHelpers)

get_property(libraries GLOBAL PROPERTY MOESAIC_LIBRARIES)
install(TARGETS ${libraries} EXPORT moesaicTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT moesaicTargets NAMESPACE moesaic:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/moesaic)
foreach(header IN LISTS public_headers)
  cmake_path(GET header PARENT_PATH folder)
  install(FILES ${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/moesaic/${folder})
endforeach()
configure_package_config_file(cmake/moesaicConfig.cmake.in ${CMAKE_BINARY_DIR}/moesaicConfig.cmake
                              INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/moesaic)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/moesaicConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/moesaicConfig.cmake ${CMAKE_BINARY_DIR}/moesaicConfigVersion.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/moesaic)
# README and all that it points to.
install(FILES LICENSE README.md CHANGELOG.md CONTRIBUTING.md DESTINATION ${CMAKE_INSTALL_DOCDIR}
        OPTIONAL)
install(DIRECTORY docs configs slurm DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY tests/package/example DESTINATION ${CMAKE_INSTALL_DOCDIR}/tests/package)
