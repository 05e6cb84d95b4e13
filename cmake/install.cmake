# `cmake --install` gives the program, the libraries with their headers, and a CMake package.
include(CMakePackageConfigHelpers)

get_property(libraries GLOBAL PROPERTY MOESAIC_LIBRARIES)
install(TARGETS ${libraries} EXPORT moesaicTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT moesaicTargets NAMESPACE moesaic:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/moesaic)
install(DIRECTORY base comm kernels src DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/moesaic
        FILES_MATCHING PATTERN "*.h")
configure_package_config_file(cmake/moesaicConfig.cmake.in ${CMAKE_BINARY_DIR}/moesaicConfig.cmake
                              INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/moesaic)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/moesaicConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/moesaicConfig.cmake ${CMAKE_BINARY_DIR}/moesaicConfigVersion.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/moesaic)
install(FILES LICENSE README.md DESTINATION ${CMAKE_INSTALL_DOCDIR} OPTIONAL)
