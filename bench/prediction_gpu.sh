#!/usr/bin/env bash
# prediction_gpu.sh SNUG OUT.jsonl [SECONDS] - drawn configurations of every precision on the GPU that is here:
# predicted beside measured tokens/s as JSON lines (read by bench/prediction.py), and op by op what a step of some of
# them takes (OUT.profile.txt). No run is begun after SECONDS (330). One line before: what `snug doctor --quick`
# measures here; "with_machine" is predicted by those rates, snug.predicted_tokens_per_s by the card's row.
set -u
cd "$(dirname "$0")/.."
snug=$1 results=$2 limit=${3:-330}
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
export XDG_CONFIG_HOME="$work" # no machine file of this host is read
name=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -n 1)
bench/draw_rows.sh 160 4096 45000 > "$work/rows.jsonl"
timeout 60 "$snug" doctor --device cuda --quick --write "$work/machine.json" --json >"$work/doctor" 2>/dev/null ||
    echo "doctor: exit $?"
printf '{"bench":"gpu-prediction-doctor","machine":"%s","doctor":%s}\n' "$name" "$(tail -n 1 "$work/doctor")" \
    >> "$results"
planned() { "$snug" plan "$@" --gpu h200 --machine "$work/machine.json" --json 2>/dev/null |
    grep -o '"predicted":{[^}]*}' | sed -n 's/.*"tokens_per_s":\([0-9.e+]*\).*/\1/p'; }
one() { # steps, flags...
    local steps=$1 rc=0 profile=""; shift
    [ $SECONDS -lt "$limit" ] || { echo "no time left for: $*"; return; }
    case " $* " in *" --accum "*|*gsa*|*fp32*|*fp16*) profile=--profile ;; esac
    timeout 60 "$snug" train "$@" --init random --device cuda --pack off --no-save --steps "$steps" \
        --log-steps 1000 $profile --data "$work/rows.jsonl" --out "$work/out" --overwrite --json \
        >"$work/result" 2>"$work/log" || rc=$?
    [ $rc -eq 0 ] || { echo "exit $rc: $*: $(grep '^snug' "$work/log" | head -n 1 | cut -c1-200)"; return; }
    [ -z "$profile" ] || { echo "== $*"; sed -n '/op by op/,$p' "$work/log"; } >> "$results.profile.txt"
    printf '{"bench":"gpu-prediction","machine":"%s","flags":"%s","with_machine":%s,"snug":%s}\n' "$name" "$*" \
        "$(planned "$@" || echo null)" "$(tail -n 1 "$work/result")" | tee -a "$results" |
        sed -n 's/.*"flags":"\([^"]*\)".*"tokens_per_s":\([0-9]*\).*"predicted_tokens_per_s":\([0-9]*\).*/\2 \3 \1/p'
}
m05="--model qwen2.5-0.5b" m15="--model qwen2.5-1.5b" m7="--model qwen2.5-7b"
one 20 $m05 --precision bf16 --seq 1024 --micro-batch 8
one 20 $m05 --precision bf16 --seq 512 --micro-batch 16
one 4  $m05 --precision fp32 --seq 1024 --micro-batch 4
one 6  $m05 --precision fp32 --tf32 --seq 1024 --micro-batch 4
one 12 $m05 --precision fp16 --seq 1024 --micro-batch 8
one 12 $m05 --precision bf16 --master fp32 --seq 1024 --micro-batch 2 --accum 2
one 12 $m05 --precision bf16 --moments 8bit --seq 1024 --micro-batch 2 --accum 4
one 12 $m05 --precision bf16 --moments fp32 --seq 2048 --micro-batch 2
one 12 --model gsa-512m --precision bf16 --seq 1024 --micro-batch 2 --accum 8 --indexer-warmup none
one 6  --model gsa-512m --precision bf16 --seq 1024 --micro-batch 2 --accum 8
one 8  --model gsa-512m --precision bf16 --seq 4096 --micro-batch 1 --accum 2 --indexer-warmup none
one 3  $m15 --precision fp32 --seq 1024 --micro-batch 2
one 8  $m15 --precision bf16 --moments 8bit --seq 2048 --micro-batch 1 --accum 2
one 8  $m15 --precision bf16 --master fp32 --seq 2048 --micro-batch 1 --accum 2
one 8  --model qwen3-0.6b --precision bf16 --seq 2048 --micro-batch 4 --recompute block
one 8  --model llama-3.2-1b --precision bf16 --mode lora --lora-rank 16 --seq 2048 --micro-batch 4
one 6  $m7 --precision bf16 --mode lora --lora-rank 16 --seq 2048 --micro-batch 2
one 6  $m7 --precision bf16 --mode lora --lora-rank 16 --quantize nf4 --seq 2048 --micro-batch 2
one 5  $m7 --precision bf16 --moments 8bit --seq 2048 --micro-batch 1 --accum 2
one 5  $m7 --precision bf16 --seq 2048 --micro-batch 2 --recompute block
one 3  --model smollm2-135m --precision fp32 --mode lora --lora-rank 16 --seq 1024 --micro-batch 4
