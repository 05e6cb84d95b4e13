// Preloaded into a program: MPI cannot make another group of ranks, which is the first that a job
// asks of it (tests/launch/refused_group_test.cpp).

extern "C" int MPI_Comm_dup(void* /*ranks*/, void* /*copy*/) noexcept {
  return 1;  // an error, of whatever kind
}
