#!/usr/bin/env bash
# small_run.sh COMMAND... - the life of a model in seconds, by that command (snug, or a tool that runs it): made,
# planned, trained with evaluation and a checkpoint, gone on with, tuned with an adapter, merged, evaluated. Fails
# where one fails.
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d "${TMPDIR:-/tmp}/snug-small-XXXXXX")
trap 'rm -rf "$work"' EXIT
tools/demo_corpus.sh 24 7 > "$work/rows.jsonl"
shape="--set hidden_size=32 --set num_hidden_layers=2 --set num_attention_heads=4 --set num_key_value_heads=2"
shape="$shape --set intermediate_size=48 --set vocab_size=512 --set max_position_embeddings=128"
job="--data $work/rows.jsonl --seq 32 --micro-batch 2 --accum 2 --threads 3 --log-steps 1"
full="--mode full --precision fp32 --steps 3 --save-steps 2 --eval-steps 2 --val-split 0.2"
step() { echo "-- $1"; "${run[@]}" "$@" >"$work/log" 2>&1 || {
    tail -n 40 "$work/log"; echo "FAILED: snug $*"; exit 1; }; }
run=("$@")
step init --model llama-3.2-1b --out "$work/model" --tokenizer recipes/demo $shape
step plan --model "$work/model" --seq 32 --micro-batch 2
step train --model "$work/model" --out "$work/full" $job $full
step train --model "$work/model" --out "$work/full" $job $full --resume "$work/full/checkpoint-2"
step train --model "$work/model" --out "$work/lora" $job --mode lora --lora-rank 4 --steps 2 --recompute block
step merge --model "$work/model" --adapter "$work/lora/adapter" --out "$work/merged"
step eval --model "$work/merged" --data "$work/rows.jsonl" --seq 32 --micro-batch 2 --threads 3
