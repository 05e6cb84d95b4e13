#!/usr/bin/env bash
# The templates of slurm/ on a Slurm of two hosts: what they write is what one rank writes, their exit codes are those
# of the ranks. Runs where `hosts.sh with 2` has made hosts.
# usage: templates_test.sh MOESAIC DATA_DIR
set -euo pipefail
# shellcheck source=tests/cluster/slurm/jobs.sh
source "$(dirname "$(readlink -f "$0")")/jobs.sh"

alone generate -m "$model" -f "$data/demo-prompts.txt" --out one.jsonl "${greedy[@]}" -n 16
"$MOESAIC" score -m "$model" -f "$data/demo-prompts.txt" --threads 1 --json >score.json 2>/dev/null
sft=(--max-steps 2 --global-batch-size 2 --eval-split 0 --lora-targets attention --seed 1)
alone sft -m "$model" --data "$data/demo-sft.jsonl" -o one "${sft[@]}"

# All of these at the same time.
short=(generate "$model" "$data/demo-prompts.txt" "${greedy[@]}" -n 16)
with=("--export=ALL,MOESAIC_LAUNCHER=srun")
by_srun=$(submit "${short[@]}")
with=("--export=ALL,MOESAIC_LAUNCHER=mpirun")
by_mpirun=$(submit "${short[@]}")
with=()
scored=$(submit score "$model" "$data/demo-prompts.txt")
tuned=$(submit sft "$model" "$data/demo-sft.jsonl" "$work/adapter" "${sft[@]}")
check_job "generate with srun" ended_with "$by_srun" 0
check "its texts" same_texts one.jsonl "generate-$by_srun.jsonl"
check "no words of what the template alone reads" says_nothing_of "$by_srun" "MOESAIC_LAUNCHER"
check_job "generate with mpirun" ended_with "$by_mpirun" 0
check "its texts" same_texts one.jsonl "generate-$by_mpirun.jsonl"
check_job "score" ended_with "$scored" 0
check "its sums" cmp <(without_statistics score.json) <(without_statistics "score-$scored.jsonl")
check_job "sft" ended_with "$tuned" 0
check "its adapter" cmp one/adapter_model.safetensors adapter/adapter_model.safetensors

# A study starts the ranks of its points itself.
cat >study.ini <<END
kind = weak
job = prompt
model = $model
text = $data/demo-heldout.txt
out = $work/study
ranks = 1,2
ranks-per-node = 1
threads = 1
repetitions = 1
n-prompt = 8
no-roofs = true
END
studied=$(submit study "$work/study.ini")
check_job "study" ended_with "$studied" 0
measured_on() { grep -qE "\"ranks\": ?$1, ?\"nodes\": ?$1,.*\"status\": ?\"measured\"" study/study.jsonl; } # NODES
check "its point on one node" measured_on 1
check "its point on two nodes" measured_on 2

# A server answers on the first node, those who have its key, until its time is over or somebody ends it.
with=("--export=ALL,MOESAIC_LAUNCHER=srun")
served=$(submit serve "$model" --port 8080 --temp 0)
with=()
call_server() { # WORDS OF THE HEADER PATH BODY
  "$here/../hosts.sh" on node1 bash -c 'exec 3<>/dev/tcp/127.0.0.1/8080
    printf "POST %s HTTP/1.1\r\nHost: node1\r\nConnection: close\r\n%sContent-Length: %s\r\n\r\n%s" "$2" "$1" "${#3}" "$3" >&3
    cat <&3' - "$@"
}
server_says() { [[ $(call_server "$1" /v1/completions '{"prompt": "In", "max_tokens": 3}') == *"$2"* ]]; } # HEADER WORDS
answers() { says "$1" " answers; context" 2>/dev/null || job_is "$1" "$over"; } # JOB
check_job "serve" wait_until answers "$served"
check "it asks for a key" server_says "" " 401 "
check "its answer" server_says "Authorization: Bearer $(<"serve-$served.key")"$'\r\n' '"completion_tokens": 3'
check "its key is nobody else's" [ "$(stat -c %a "serve-$served.key")" = 600 ]
scancel --batch --signal=USR1 "$served" # as Slurm does before the time is over
check_job "serve, when its time is over" ended_with "$served" 0

# Where srun has no PMIx mpirun starts them, on nodes of the job.
mkdir poor
cat >poor/srun <<END
#!/bin/sh
case "\$*" in *--mpi=list*) echo "MPI plugin types are... none pmi2" ;; *) exec $(type -P srun) "\$@" ;; esac
END
chmod +x poor/srun
rm -r study
with=("--export=ALL,PATH=$work/poor:$PATH")
studied=$(submit study "$work/study.ini")
with=()
check_job "study without PMIx" ended_with "$studied" 0
check_job "study without PMIx: it says so" says "$studied" "srun has no PMIx"
check "its point on one node" measured_on 1
check "its point on two nodes" measured_on 2

bad_option=$(submit generate "$model" "$data/demo-prompts.txt" --no-such-option)
no_model=$(submit generate "$work/nothing" "$data/demo-prompts.txt")
no_memory=$(submit "${short[@]}" --memory-limit 1M)
no_words=$(submit generate)
no_outdir=$(submit sft "$model" "$data/demo-sft.jsonl" --max-steps 2)
env_folder=$work/nowhere
no_folder=$(submit "${short[@]}")
env_folder=
with=(--export="ALL,MOESAIC=no-such-program")
no_program=$(submit "${short[@]}")
with=()
check_job "a bad option" ended_with "$bad_option" 2
check_job "a missing model" ended_with "$no_model" 3
check_job "no memory" ended_with "$no_memory" 4
check_job "no memory: one line says so" says_once "$no_memory" "error: not enough memory"
check_job "no words" ended_with "$no_words" 2
check_job "no words: the usage" says "$no_words" "usage: sbatch"
check_job "no output directory" ended_with "$no_outdir" 2
check_job "no output directory: the usage" says "$no_outdir" "usage: sbatch"
check_job "no env.sh" ended_with "$no_folder" 2
check_job "no env.sh: it says so" says_once "$no_folder" "no $work/nowhere/env.sh: submit from"
check_job "no program" ended_with "$no_program" 2
check "no program: one line" [ "$(wc -l <"generate-$no_program.log")" = 1 ]
check_job "no program: how to name it" says "$no_program" "set MOESAIC"

# Without a process manager no task knows of the others: the first says what to type.
code=0
srun --nodes=2 --ntasks=2 --mpi=none "$MOESAIC" generate -m "$model" -p In -n 1 >none.out 2>none.err || code=$?
check "srun --mpi=none" [ "$code" = 2 ]
check "srun --mpi=none: one task says so" [ "$(grep -c "use srun --mpi=pmix" none.err)" = 1 ]
exit $((failures > 0))
