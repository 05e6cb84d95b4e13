# moesaic_mpi_test(NAME SOURCES a_test.cpp ... DEPENDS targets ... RANKS 1 2 ... [TIMEOUT seconds])
# makes one GoogleTest executable whose main (tests/comm/mpi_test_main.cpp) starts MPI, and a ctest
# case NAME_N for every number N of ranks, also where there are fewer cores than ranks.
function(moesaic_mpi_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;DEPENDS;RANKS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 400)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  moesaic_test_flags(${name})
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS} moesaic_mpi_test_main)
  moesaic_starts_mpi(${name})
  foreach(ranks IN LISTS ARG_RANKS)
    add_test(NAME ${name}_${ranks}
             COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks} ${MPIEXEC_PREFLAGS}
                     $<TARGET_FILE:${name}> --gtest_brief=1 ${MPIEXEC_POSTFLAGS})
    moesaic_mpi_environment(${name}_${ranks} ${ARG_TIMEOUT})
    set_tests_properties(${name}_${ranks} PROPERTIES LABELS mpi TIMEOUT ${ARG_TIMEOUT}
                         PROCESSORS ${ranks})
  endforeach()
endfunction()

# moesaic_mpi_environment(TEST SECONDS): what a ctest case that calls mpirun needs in containers and
# on machines with fewer cores than ranks. mpirun itself ends all ranks just before ctest would end
# mpirun alone.
function(moesaic_mpi_environment test timeout)
  math(EXPR mpi_timeout "${timeout} - 5")
  set_tests_properties(${test} PROPERTIES ENVIRONMENT
    "MPIEXEC_TIMEOUT=${mpi_timeout};OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1;OMPI_MCA_rmaps_base_oversubscribe=1;OMPI_MCA_hwloc_base_binding_policy=none;OMP_NUM_THREADS=1")
endfunction()
