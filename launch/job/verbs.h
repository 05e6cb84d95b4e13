#pragma once

#include "launch/job/runtime.h"

namespace moesaic {

// One function a verb, in the file of its name. All are collective over the runtime's ranks and
// throw for what fails.

void run_chat(Runtime& runtime);
void run_generate(Runtime& runtime);
void run_serve(Runtime& runtime);
void run_score(Runtime& runtime);
void run_sft(Runtime& runtime);
void run_convert(Runtime& runtime);
void run_tokenize(Runtime& runtime);
void run_inspect(Runtime& runtime);
void run_bench_model(Runtime& runtime);
void run_bench_kernels(Runtime& runtime);
void run_bench_layer(Runtime& runtime);
void run_bench_exchange(Runtime& runtime);
void run_bench_sft(Runtime& runtime);
void run_doctor(Runtime& runtime);
void run_study_point(Runtime& runtime);

/// The one that starts no MPI and has no ranks.
void run_plan(const Command& command);

}  // namespace moesaic
