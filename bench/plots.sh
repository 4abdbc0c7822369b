#!/usr/bin/env bash
# plots.sh [NAME...] - the pictures of docs/images, drawn from bench/results: growth, budget, techniques, pretrain,
# sparse, plan; without a name all. growth: of the last run in growth.jsonl. plan: by ./snug itself.
set -eu
cd "$(dirname "$0")/.."
results=${RESULTS:-bench/results} images=${IMAGES:-docs/images}
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
mkdir -p "$images"
${CC:-cc} -std=c11 -O2 -Wall -o "$work/plot" bench/plot.c -lm
plot() { "$work/plot" "$images/$1.svg" > /dev/null; } # NAME < text

# points FILE WHICH KEY NAME: as series NAME the points "X Y" in the list KEY of the last line of FILE that holds WHICH
points() {
    echo "series $4"
    grep -F "$2" "$results/$1.jsonl" | tail -n 1 | sed -E "s/.*\"$3\":\[\[(.*)\]\].*/\1/; s/\],\[/\n/g" | tr ',' ' '
}

# steps FILE WHICH KEY NAME: as series NAME a point "step KEY" for each line of FILE that holds WHICH and KEY
steps() {
    echo "series $4"
    grep -F "$2" "$results/$1.jsonl" | sed -nE "s/.*\"step\": ?([0-9]+),.*\"$3\": ?([0-9.]+).*/\1 \2/p"
}

growth_one() { # name, title, x, y, series...
    local name=$1 title=$2 x=$3 y=$4; shift 4
    { echo "title $title"; echo "x $x"; echo "y $y"; echo "log x"; echo "log y"; echo exponents
      for series in "$@"; do points growth "\"what\":\"$name\",\"series\":\"$series\"" points "$series"; done; } |
          plot "growth-$name"
}
growth() {
    growth_one plan-time "Plan time against layers" "layers (the 0.5B model's)" "milliseconds" "all weights" \
        "adapters, block recompute"
    growth_one step-time "Time of a training step on the CPU against tokens" "tokens of a step" "milliseconds" \
        "one row, longer" "rows of 64, more of them"
    growth_one memory-length "Planned memory against length: 0.5B with adapters, one row" "tokens of a row" \
        "GB beside the weights" "everything kept" "block recompute"
    growth_one memory-batch "Planned memory against batch: 0.5B with adapters, rows of 512" "rows of a micro-batch" \
        "GB beside the weights" "everything kept" "block recompute"
}

budget() { bench/budget_curve.sh "$results/gpu-budget-h200.jsonl" > /dev/null; }

techniques() {
    { echo "title Loss of stories260K learning Shakespeare"; echo "x step"; echo "y loss, nats a token"; echo "from 2.5"
      for name in full-fp32-moments full-bf16-moments full-8bit-moments lora-fp32 lora-int8 lora-nf4; do
          points technique-curves "\"technique\":\"$name\"" curve "$name"
      done; } | plot technique-curves
}

pretrain() {
    { echo "title 30M parameters learn Debian's documentation: 197M tokens in 115 s on an H200"
      echo "x update (of 65,536 tokens)"; echo "y loss, nats a token"; echo "marks 0 500 1000 1500 2000 2500 3000"
      steps pretrain-h200 '"bench":"curve"' loss "training"
      steps pretrain-h200 '"bench":"curve"' held_out_loss "held out"; } | plot pretrain
}

sparse() {
    { echo "title Sparse attention (a quarter of the keys) beside its dense twin: 34M parameters"
      echo "x update (of 65,536 tokens)"; echo "y held-out loss, nats a token"; echo "from 3"
      echo "marks 125 250 375 500"
      steps gsa-text-h200 '"selection":"dense-gated"' held_out_loss "all keys (dense twin)"
      steps gsa-text-h200 '"selection":"learned"' held_out_loss "learned selection"; } | plot sparse-text
}

plan() {
    ./snug plan --model qwen2.5-7b --mode lora --lora-rank 128 --seq 2048 --micro-batch 2 --accum 8 --gpu rtx-4090 \
        --budget 23.5GiB \
        --svg "$images/plan-7b-lora-24gb.svg" > /dev/null 2>&1
}

for name in ${@:-growth budget techniques pretrain sparse plan}; do "$name"; done
