#!/usr/bin/env bash
# gsa_long_gpu.sh SNUG OUT.jsonl [ROW...] - sparse against dense attention in long rows at gsa-1.7b's shape (random
# weights) on the GPU that is here, one JSON line a row: training with rows of 4,096, 32,768 and 131,072 tokens, a prompt
# of 131,008 tokens, and 16 answers decoded behind it.
#
#   ROW: train-4096, train-32768, train-131072, answer-131072 and so on (any length); all of these by default
#   SELECTIONS: which keys are attended to, "drawn:0.9 all" by default (all is the dense twin)
#   FIXED=1: exactly k_base (2,048) keys a query; the preset's k is by variance, which is about 3,072 with random weights
#   LIMIT=SECONDS ends a row that takes longer; its result is null. PROFILE=1: where a step goes, on standard error.
set -u
cd "$(dirname "$0")/.."
snug=$1 results=$2; shift 2
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
machine=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -n 1)
shape=gsa-1.7b
if [ -n "${FIXED:-}" ]; then
    shape=$work/gsa-1.7b-k2048
    "$snug" init --model gsa-1.7b --set use_adaptive_k=false --out "$shape" >&2 || exit 1
fi
model="--model $shape --init random --precision bf16 --device cuda"
row() { # name, the command's words
    local name=$1 line; shift
    echo "== $name: snug $*" >&2
    line=$(timeout "${LIMIT:-120}" "$snug" "$@" --out "$work/$1" --overwrite --json ${PROFILE:+--profile} \
        2> "$work/log" | tail -n 1)
    [ -n "$line" ] || tail -n 3 "$work/log" >&2
    [ -z "${PROFILE:-}" ] || sed -n '/op by op/,$p' "$work/log" >&2
    printf '{"bench":"gsa-long","name":"%s","machine":"%s","command":"snug %s","snug":%s}\n' "$name" "$machine" \
        "${*//$work\//}" "${line:-null}" | tee -a "$results" |
        grep -oE '"((predicted_)?tokens_per_s|(prefill|decode)_seconds)":[0-9.]+' >&2
}
for r in ${*:-train-4096 train-32768 train-131072 answer-131072}; do
    tokens=${r#*-}
    for s in ${SELECTIONS:-drawn:0.9 all}; do
        case $r in
        train-*)
            bench/draw_rows.sh 4 "$tokens" 128000 > "$work/rows.jsonl"
            row "$r $s" train $model --data "$work/rows.jsonl" --seq "$tokens" --pack off --micro-batch 1 --accum 1 \
                --steps "${STEPS:-4}" --log-steps 1000 --no-save --selection "$s" \
                $([ "$s" = all ] || echo --indexer-warmup none) ;;
        answer-*)
            bench/draw_rows.sh 1 $((tokens - 64)) 128000 > "$work/prompt.jsonl"
            row "$r $s" generate $model --prompts "$work/prompt.jsonl" --n 16 --slots 16 --max-tokens 33 --ignore-eos \
                --selection "$s" ;;
        esac
    done
done
