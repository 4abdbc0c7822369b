#!/usr/bin/env bash
# pretrain_h200.sh CORPUS WORK [FLAGS...] - recipes/pretrain.yaml on a GPU, then what the model has learned: one JSON
# line for the run, one for each row of its loss curve, one for each suite, into bench/results/pretrain-h200.jsonl
# (RESULTS=DIR: elsewhere).
#
#   CORPUS: a folder of tools/pretrain_data.sh (model, tokens, held_out.jsonl)   WORK: an empty folder for the run
#   FLAGS: further options of the training, for example --steps 20 --schedule-steps 3000 for a try on a CPU
set -eu
corpus=${1:?usage: bench/pretrain_h200.sh CORPUS WORK [FLAGS...]} work=${2:?a folder for the run is missing}
shift 2
. "$(dirname "$0")/record.sh"
snug=$root/snug file=${FILE:-pretrain-h200} device=${DEVICE:-cuda}
mkdir -p "$work"
began=$(date +%s.%N)
"$snug" train --config "$root/recipes/pretrain.yaml" --model "$corpus/model" --data "$corpus/tokens" \
    --device "$device" \
    --out "$work/run" --json "$@" > "$work/train.json"
seconds=$(awk -v a="$began" -v b="$(date +%s.%N)" 'BEGIN { printf "%.1f", b - a }')
record "$file" train "\"seconds\":$seconds" "\"flags\":\"$*\"" "\"result\":$(tail -n 1 "$work/train.json")"
# the curve: about forty rows of the log, and every evaluation
python3 - "$work/run/metrics.jsonl" <<'CURVE' | while read -r line; do record "$file" curve "$line"; done
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
steps = [r for r in rows if r.get("kind") == "train"]
every = max(1, len(steps) // 40)
for r in [r for i, r in enumerate(steps) if i % every == 0 or i == len(steps) - 1]:
    print(f'"step":{r["step"]},"loss":{r["loss"]},"grad_norm":{r.get("grad_norm", "null")}')
for r in rows:
    if r.get("kind") == "eval":
        print(f'"step":{r["step"]},"held_out_loss":{r["loss"]}')
CURVE
suite() { # name, flags
    local name=$1
    shift
    "$snug" eval --model "$work/run/model" --device "$device" --json "$@" > "$work/$name.json"
    record "$file" "$name" "\"result\":$(tr -d '\n' < "$work/$name.json")"
}
suite held_out --data "$corpus/held_out.jsonl" --seq 1024 --micro-batch 16
suite perplexity --suite perplexity --data "$corpus/held_out.jsonl" --limit "${LIMIT:-40}"
suite needle --suite needle,ruler --lengths 512,1000 --limit 4
suite attention --data "$corpus/held_out.jsonl" --seq 1024 --micro-batch 4 --max-samples 40 \
    --attention-report "$work/attention.html"
