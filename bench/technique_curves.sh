#!/usr/bin/env bash
# technique_curves.sh [ASSETS] - loss curves of a real small model (stories260K learning Shakespeare) with the
# techniques that change the mathematics: 8-bit moments, int8 and nf4 weights under adapters. One JSON line each with
# its curve, replacing bench/results/technique-curves.jsonl; bench/plots.sh draws docs/images/technique-curves.svg
# from them. ASSETS holds stories260K/ and text/tinyshakespeare.txt.
set -eu
cd "$(dirname "$0")/.."
assets=${1:-../shared/assets}
steps=60
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
results=bench/results/technique-curves.jsonl
commit=$(git rev-parse --short HEAD)
mkdir -p bench/results
./snug convert --from llama2c "$assets/stories260K/stories260K.bin" --tokenizer "$assets/stories260K/tok512.bin" \
    --out "$work/model" 2>"$work/log"
awk '{ gsub(/\\/, "\\\\"); gsub(/"/, "\\\""); gsub(/\t/, " "); text = text $0 "\\n" }
     length(text) > 900 { printf "{\"text\":\"%s\"}\n", text; text = "" }' \
    "$assets/text/tinyshakespeare.txt" | head -n 600 > "$work/rows.jsonl"

: > "$results"
one() { # name, beside which, flags
    local name=$1 beside=$2 result
    shift 2
    result=$(./snug train --model "$work/model" --data "$work/rows.jsonl" --out "$work/$name" --steps $steps \
        --log-steps 1 --seq 96 \
        --micro-batch 4 --global-batch 8 --warmup-steps 5 --val-split 0.1 --no-save "$@" 2>>"$work/log" | tail -n 1)
    sed -nE 's/^\{"kind": "train", "step": ([0-9]+),.* "loss": ([0-9.e+-]+),.*/\1 \2/p' "$work/$name/metrics.jsonl" \
        > "$work/$name.curve"
    line='{"bench":"technique-curves","technique":"%s","beside":"%s","flags":"%s","steps":%d,"first_loss":%s,'
    line="$line"'"last_loss":%s,"eval_loss":%s,"mean_of_last_10":%s,"commit":"%s","curve":[%s]}\n'
    printf "$line" \
        "$name" "$beside" "$*" $steps "$(head -n 1 "$work/$name.curve" | cut -d' ' -f2)" \
        "$(tail -n 1 "$work/$name.curve" | cut -d' ' -f2)" \
        "$(sed -E 's/.*"eval_loss":([0-9.e+-]+).*/\1/' <<<"$result")" \
        "$(tail -n 10 "$work/$name.curve" | awk '{ s += $2 } END { printf "%.6f", s / NR }')" \
        "$commit" "$(awk '{ printf "%s[%d,%.5f]", (NR > 1 ? "," : ""), $1, $2 }' "$work/$name.curve")" >> "$results"
    tail -n 1 "$results" | cut -c 1-300
}
full="--mode full --precision fp32 --lr 2e-3" lora="--mode lora --precision fp32 --lora-rank 16 --lr 1e-2"
one full-fp32-moments full-fp32-moments $full --moments fp32
one full-bf16-moments full-fp32-moments $full --moments bf16
one full-8bit-moments full-fp32-moments $full --moments 8bit
one lora-fp32 lora-fp32 $lora
one lora-int8 lora-fp32 $lora --quantize int8
one lora-nf4 lora-fp32 $lora --quantize nf4
bench/plots.sh techniques
