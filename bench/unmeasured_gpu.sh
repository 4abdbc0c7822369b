#!/usr/bin/env bash
# unmeasured_gpu.sh SNUG OUT [PART...] - every figure that the documentation says has not been measured on a card yet, in one
# go: JSON lines in OUT/*.jsonl, by the scripts that make the other rows of these tables. Each part takes 2 to 8 minutes
# of an H200.
#
#   kernels      test-cuda of what has run on a processor only: a head by terms, corrections, gathered attention
#   sparse       gsa-1.7b with exactly 2,048 keys beside its dense twin: rows of 4,096 to 131,072 tokens, a prompt as
#                long, 16 answers behind it (docs/sparse-attention.md)
#   unlearn      Llama-3.2-3B's shape with the correction on the device and on the host, 8B on the host
#                (docs/unlearning.md, "At the scale of 3B and 8B")
#   grpo         8B QLoRA with 20k tokens in 54 GB; --exact-policy for a policy that has learned (docs/grpo.md)
#   tofu         rmu, pdu and undial on all splits: TOFU=DIR TOKENIZER=DIR TEXT=FILE (docs/unlearning.md)
set -u
cd "$(dirname "$0")/.."
snug=$1 out=$2; shift 2
mkdir -p "$out"
for part in ${*:-kernels sparse unlearn grpo tofu}; do
    case $part in
    kernels) tests=$(dirname "$snug")/build/cuda1-debug0/test-cuda
             for name in terms distances correction gathered; do "$tests" $name; done 2>&1 | tee "$out/kernels.txt" ;;
    sparse)  for row in train-4096 train-32768 train-131072 answer-131072; do
                 FIXED=1 PROFILE=1 STEPS=3 bench/gsa_long_gpu.sh "$snug" "$out/sparse.jsonl" $row
             done ;;
    unlearn) bench/unlearn_scale_gpu.sh "$snug" "$out/unlearn.jsonl"
             MODEL=llama-3.1-8b ROWS=16 MICRO=8 BUDGET=24GiB WINDOWS=1 CORRECTION=host \
                 bench/unlearn_scale_gpu.sh "$snug" "$out/unlearn.jsonl" 3 ;;
    grpo)    bench/grpo_gpu.sh "$snug" exact-off exact-on 8b-20k >> "$out/grpo.jsonl" ;;
    tofu)    [ -n "${TOFU:-}" ] || { echo "tofu: TOFU=DIR is not set" >&2; continue; }
             bench/unlearn_story.py --snug "$snug" --tofu "$TOFU" --tokenizer "$TOKENIZER" --text "$TEXT" \
                 --work "$out/tofu" --device cuda --runs adamw --updates 20 \
                 --splits forget01:rmu,pdu,undial forget05:rmu,pdu,undial forget10:rmu,pdu,undial >> "$out/tofu.jsonl" ;;
    esac
done
