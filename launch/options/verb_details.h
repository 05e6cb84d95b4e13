#pragma once

#include <string_view>

namespace moesaic {

// What the help of a verb says beside its options: lines that end in \n.

inline constexpr std::string_view kChatDetails =
    R"(
What is typed goes to the model, through its chat template; /help lists commands. On a terminal
lines can be edited, and Ctrl-C stops an answer; otherwise lines are read as they come, and mean the
same. Answers go to the standard output, all else to the standard error output. A turn costs its own
tokens: what was said before is in the cache. Sampling starts from the model's
generation_config.json, as in moesaic generate.
)";
inline constexpr std::string_view kGenerateDetails =
    R"(
What the model's generation_config.json says of sampling (do_sample, temperature, top_k, top_p,
min_p, repetition_penalty) comes before the defaults below; an option that is given comes before
both. The banner tells which counted.
)";
inline constexpr std::string_view kServeDetails =
    R"(
Rank 0 listens; all ranks work on the texts of all clients at once, --parallel of each rank. There
are POST /v1/chat/completions and /v1/completions, whole or as a stream, GET /v1/models, /health
(status 503 until the model is loaded) and /metrics (Prometheus), POST /tokenize, /detokenize and
/apply-template; docs/server.md has all of it. Where a call says nothing of sampling the options
below count, and before them the model's generation_config.json. SIGINT, SIGTERM, SIGUSR1 or the end
of --max-time end it, with exit code 0; answers that are under way end with an error.
)";
inline constexpr std::string_view kScoreDetails =
    R"(
A line for each text, as soon as it and those before it are scored, then one for all. Every token
but the first of a text counts once, in the window that has most before it (with a stride as long as
the context, but the first of each window).
)";
inline constexpr std::string_view kKernelsDetails =
    R"(
A line for each shape, format, instruction set, number of rows and of threads. Products run as users
get them: all threads on one matrix, bf16 rows packed on the way (and quantised, for int8 and int4),
weights cold in memory. us is the time that a quarter of the runs do not exceed; gops 2 x rows x N x
K operations in it, in 10^9 a second; weight_gbs the packed bytes of the weights in it. roof is what
limits such a product more, as measured in the same run with as many threads: compute (the kernel's
own instruction on registers) or memory (reads, with prefetch); roof_share is how near it comes.
error is mean |difference| / mean |result| against fp64 on the same quantised weights, with the rows
as they were given. Products of --op transposed and outer are those of a backward pass through the
matrix NxK: gradients of N results a row in, of K inputs or of the matrix out. Lines with isa onednn
are the rival's, whose rows are ready to multiply.

--op attention has a line for each shape QxKVxD (query heads, KV heads, elements of a head; or
qwen3-30b, mixtral, granite), number of keys and of rows: the last rows of so many positions attend
to those before and themselves, all heads, on all threads, keys and values cold in memory. --formats
are those of the cache (bf16; f32). gops counts both products for the keys that a row sees, read_gbs
the bytes of keys and values once. Queries of error are as given. --op attention-backward: rows are
tokens of samples of so many keys, each seen by itself and those after it; gops counts the five
products of its gradients, error the three gradients against fp64 on numbers as given.
)";
inline constexpr std::string_view kPlanDetails =
    R"(
Reads the headers of the model alone; DIR may also be a directory with a config.json and no weights
yet, or that file. Besides its own it takes those options of the verb that --job names which change
memory, bytes or time; it refuses others. The memory is counted as that verb counts it when it
starts. --shape plans one layer of experts, of which nothing has to be there, over --batch-size
tokens of each rank. Ends with exit code 4 if a node has too little.
)";
inline constexpr std::string_view kLayerDetails =
    R"(
A line for each layer, format, routing and number of tokens: router, exchange, experts and combine
of the layer that models run, on all ranks, weights cold in memory. us is the time that a quarter of
the runs do not exceed; gops the operations of all ranks' experts in it, in 10^9 a second.
roof_share compares it with what their multiply-adds, or reading the chosen experts' weights, would
take at the roofs measured in the same run. predicted_us is what the parts take one by one, run in
turn with the layer: router, each expert's gate, up and down, weighted sums, of the rank that takes
the longest, without exchange; share_of_parts is that by us. exchange_us is what the same rows take
there and back without experts, of the slowest rank (moesaic bench exchange measures that alone);
exposed_us is us - predicted_us, what of it is not hidden behind work, and hidden_share 1 -
exposed_us / exchange_us. gpu_experts: how many of a layer's experts are on GPUs (--gpu-experts).
Roofs are then those of both, each for its share of the experts, and isa names both; what parts take
is the CPU's all the same. Where some are on GPUs and some on CPUs, the layer also runs with those
of one place alone at work, the others' products being left out: gpu_only_us and cpu_only_us;
of_slower is us by the larger of the two, 1 for what hides the other wholly.
)";

inline constexpr std::string_view kExchangeDetails =
    R"(
A line for each layer, wire, routing and number of tokens: the exchange of an MoE layer without its
experts, rows there and results back, with every byte checked (wrong: how many were not right). us
is the time of the slowest rank that a quarter of the runs do not exceed, us_p99 that of 99 in a
hundred; dispatch_us the plan and the rows of it, combine_us the results. messages: those to other
nodes of the rank that sends most; bytes_near, bytes_far: in and between nodes, of all ranks;
bytes_far_expected: what the routing asks for; dedup: choices of other ranks' experts for each row
sent. With --transport mpi all that goes from rank to rank counts as between nodes. With --combine
fast (a key then, too) as many results travel as that sends, though nothing is added. In turn with
it run memcpy_us, all ranks copying at once, row by row, what they send in the node; alltoallv_us,
the same rows packed, and MPI_Alltoallv there and back; stream_us, the bytes between nodes there and
back, an MPI_Isend and MPI_Irecv for each pair of ranks; pingpong_us, 8 bytes one way, between nodes
if there are two. null is what there is nothing of.
)";
inline constexpr std::string_view kBenchSftDetails =
    R"(
One line: a step of moesaic sft on all ranks, forward, backward and optimizer, the same tokens in
every step; it is the step that a quarter of all do not exceed. tokens are those of a step on all
ranks, in samples of sample_tokens, of which a rank takes batch_size at once (--batch-size). Seconds
of its parts are means over the ranks; exchange_seconds, of rows between ranks, is part of forward
and backward; sum_seconds is the time from the first sum of gradients over ranks, which begins while
the backward pass goes on, until all are there; exposed_sum_seconds what of it ranks did nothing
else in, and no part of backward_seconds. gops counts forward products and gradients of inputs, of
the model's own weights and of attention, in 10^9 operations a second, and roof_share compares it
with what the products' instructions reach on registers in the same run. peak_bytes is the resident
memory of all ranks.
)";

inline constexpr std::string_view kStudyDetails =
    R"(
CONFIG has lines `name = value`: kind, out, launcher, ranks, and any option of moesaic study point,
whose values may be lists with commas; docs/scaling.md tells all. Each combination is a point: a job
of its own, whose result is one file in OUT/points. Points that can never run are named at the
start and refused, or skipped with impossible = skip. Run again, the same command goes on where it
was, also after kill -9. The exit code is that of the first point that failed.
)";
inline constexpr std::string_view kSmpiDetails =
    R"(
For each group of points and each number of ranks a folder OUT/smpi/N-RANKS: a trace of one pass for
every rank, a platform with the links of the fit, and run.sh, which replays them; told.json has what
the fit tells of it. It needs OUT/model.json of moesaic study predict.
)";
inline constexpr std::string_view kPointDetails =
    R"(
Prints one JSON object: time, phases, memory and balance of --repetitions runs. Runs in which others
took the cores are thrown away and repeated, as many as are wanted at most.
)";

}  // namespace moesaic
