# How every target of the project is declared: one function a kind, no directory-level flags.

find_program(MOESAIC_CCACHE ccache)
if(MOESAIC_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${MOESAIC_CCACHE})
endif()
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

# Adds those of the named folders that have a CMakeLists.txt.
function(moesaic_subdirectories)
  foreach(folder IN LISTS ARGN)
    if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/CMakeLists.txt)
      add_subdirectory(${folder})
    endif()
  endforeach()
endfunction()

# Warnings, language level and floating-point rules shared by all own targets.
# -ffp-contract=off: the same bits on every CPU need every fused multiply-add to be written out.
function(moesaic_flags target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wshadow -Wpedantic -Werror
                         -ffp-contract=off -fno-math-errno
                         -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=  # for file:line in messages
                         # g++ 12 sees overlaps in std::string concatenations that are none (-O3)
                         $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
  if(MOESAIC_JOIN_SOURCES)  # g++ collects garbage later: an eighth off the largest joined files, for 0.25 GB
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=600000>)
  endif()
  if(MOESAIC_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${MOESAIC_SANITIZE}
                           -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_link_options(${target} PUBLIC -fsanitize=${MOESAIC_SANITIZE})
  endif()
endfunction()

# Has the sources of a target compiled so many in a file, where MOESAIC_JOIN_SOURCES.
function(moesaic_join target size)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${MOESAIC_JOIN_SOURCES} UNITY_BUILD_BATCH_SIZE ${size})
endfunction()

# moesaic_library(NAME SOURCES a.cpp ... [ALONE b.cpp ...] [DEPENDS targets ...] [PRIVATE_DEPENDS targets ...])
# makes the static library moesaic_NAME with the alias moesaic::NAME. With MOESAIC_JOIN_SOURCES it is
# compiled in files of 24 sources, which takes a quarter of the time: what stands in anonymous
# namespaces must not have a name twice in a library, or its sources are ALONE; so are those whose classes have members
# of such types, for which g++ takes a joined source for a header.
function(moesaic_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;ALONE;DEPENDS;PRIVATE_DEPENDS" ${ARGN})
  add_library(moesaic_${name} STATIC ${ARG_SOURCES})
  add_library(moesaic::${name} ALIAS moesaic_${name})
  set_target_properties(moesaic_${name} PROPERTIES EXPORT_NAME ${name})
  moesaic_join(moesaic_${name} 24)
  set_source_files_properties(${ARG_ALONE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  moesaic_flags(moesaic_${name})
  target_compile_options(moesaic_${name} PRIVATE -Wconversion)
  if(name IN_LIST MOESAIC_ONLY_LINKED)
    target_compile_options(moesaic_${name} PRIVATE -O0)
  endif()
  target_include_directories(moesaic_${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/moesaic>)
  target_link_libraries(moesaic_${name} PUBLIC ${ARG_DEPENDS} PRIVATE ${ARG_PRIVATE_DEPENDS})
  set_property(GLOBAL APPEND PROPERTY MOESAIC_LIBRARIES moesaic_${name})
endfunction()

# What all programs and libraries of tests have in common.
function(moesaic_test_flags target)
  moesaic_join(${target} 12)
  moesaic_flags(${target})
  target_compile_options(${target} PRIVATE -O1)  # what is tested is optimised; a test compiles sooner
  target_compile_definitions(${target} PRIVATE MOESAIC_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data")
endfunction()

# moesaic_test_library(NAME SOURCES a.cpp ... DEPENDS targets ...): what several tests share.
function(moesaic_test_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  moesaic_test_flags(${name})
  target_link_libraries(${name} PUBLIC ${ARG_DEPENDS})
endfunction()

# moesaic_starts_mpi(TARGET): a program whose leaks are those of MPI.
function(moesaic_starts_mpi target)
  if(MOESAIC_SANITIZE MATCHES address)
    target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests/support/leaks_of_mpi.cpp)
  endif()
endfunction()

# moesaic_test(NAME SOURCES a_test.cpp ... DEPENDS targets ... [LABELS labels ...] [TIMEOUT seconds]
#              [ONE_THREAD b_test.cpp ...] [TSAN_SKIPS patterns ...])
# makes one GoogleTest executable and a ctest case that runs it. The target tests_LABEL builds all tests
# of a label. Sources are joined as those of libraries. ThreadSanitizer leaves out the sources of ONE_THREAD, whose cases
# start no threads, and the cases of TSAN_SKIPS, whose threads others have too, unless MOESAIC_THOROUGH.
function(moesaic_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;DEPENDS;LABELS;ONE_THREAD;TSAN_SKIPS" ${ARGN})
  if(NOT MOESAIC_SANITIZE STREQUAL thread OR MOESAIC_THOROUGH)
    list(APPEND ARG_SOURCES ${ARG_ONE_THREAD})
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 900)
  endif()
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  moesaic_test_flags(${name})
  # clang's sanitizers have an operator new of their own in the program, which then stands in for
  # one that counts or refuses: such tests show what they have to show in builds without sanitizers.
  if(MOESAIC_SANITIZE AND CMAKE_CXX_COMPILER_ID MATCHES Clang)
    target_link_options(${name} PRIVATE -Wl,-z,muldefs)
  endif()
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS} GTest::gtest_main)
  set(filter "")
  if(ARG_TSAN_SKIPS AND MOESAIC_SANITIZE STREQUAL thread AND NOT MOESAIC_THOROUGH)
    list(JOIN ARG_TSAN_SKIPS ":" filter)
    set(filter --gtest_filter=-${filter})
  endif()
  add_test(NAME ${name} COMMAND ${name} --gtest_brief=1 ${filter})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT}
                       COST ${ARG_TIMEOUT})  # long ones start first
  foreach(label IN LISTS ARG_LABELS)
    if(NOT TARGET tests_${label})
      add_custom_target(tests_${label})
    endif()
    add_dependencies(tests_${label} ${name})
  endforeach()
endfunction()
