#!/usr/bin/env bash
# demo.sh - what snug is for, in three minutes: plan, a refusal, the same run fitted, planned = measured; then a model
# that reasons.
set -eu
cd "$(dirname "$0")/.."
snug=./snug
work=$(mktemp -d "${TMPDIR:-/tmp}/snug-demo-XXXXXX")
trap 'rm -rf "$work"' EXIT
say() { printf '\n\033[1m== %s\033[0m\n' "$*"; }
show() { printf '\033[2m$ snug %s\033[0m\n' "$*"; }

say "1. A corpus of small sums told as stories, and a small random model (an ordinary Hugging Face folder)"
tools/demo_corpus.sh 2400 7 > "$work/train.jsonl"
tools/demo_corpus.sh 200 8 > "$work/test.jsonl"
head -n 2 "$work/train.jsonl"
shape="--set hidden_size=192 --set num_hidden_layers=4 --set num_attention_heads=6 --set num_key_value_heads=2\
 --set intermediate_size=512 --set vocab_size=512 --set max_position_embeddings=1024"
show "init --model llama-3.2-1b --out m0 --tokenizer recipes/demo $shape"
$snug init --model llama-3.2-1b --out "$work/m0" --tokenizer recipes/demo $shape

job="--model $work/m0 --data $work/train.jsonl --mode full --precision fp32 --seq 64 --micro-batch 32\
 --steps 120 --lr 2e-3 --warmup-steps 10 --log-steps 20 --eval-data $work/test.jsonl"
say "2. What will it take? Known before anything is loaded, to the byte"
show "plan --model m0 --mode full --precision fp32 --seq 64 --micro-batch 32"
$snug plan --model "$work/m0" --mode full --precision fp32 --seq 64 --micro-batch 32

say "3. A budget that is too small, and nothing left to the planner: refused, exit code 3, nothing loaded, and what" \
    "would fit"
budget=$(( $($snug plan --model "$work/m0" --mode full --precision fp32 --seq 64 --micro-batch 32 --json 2>/dev/null |
    grep -oE '"process_planned_bytes":[0-9]+' | head -n 1 | cut -d: -f2) * 7 / 10 ))
show "train ... --budget $budget --recompute none"
rc=0
$snug train $job --out "$work/out" --budget "$budget" --recompute none >/dev/null 2>"$work/refused" || rc=$?
sed -n '/^snug: /,$p' "$work/refused"
echo "exit code $rc"
[ "$rc" -eq 3 ]

say "4. The same budget, left to the planner: it fits, and the mathematics stay what they were"
show "train ... --budget $budget"
$snug train $job --out "$work/out" --budget "$budget" 2>"$work/log" >"$work/result" &
pid=$!
tail -n +1 -f "$work/log" --pid=$pid | sed -nE '/^as asked|^step |^evaluation|measured|= arena|= process/p' || true
wait $pid
cat "$work/result"

say "5. The result on sums it has not seen"
show "eval --model out/model --data test.jsonl --seq 64"
$snug eval --model "$work/out/model" --data "$work/test.jsonl" --seq 64 --micro-batch 8 2>/dev/null
say "6. A model of 2.4 million parameters that comes with snug solves problems in words it has not seen, judges" \
    "itself, improves"
$snug problems --n 60 --part held-out --roles none --seed 5 --out "$work/problems.jsonl" 2>/dev/null
show "reason --config recipes/reason-tally.yaml --data problems.jsonl --out reasoning.json"
$snug reason --config recipes/reason-tally.yaml --data "$work/problems.jsonl" \
    --out "$work/reasoning.json" 2>"$work/log" &
pid=$!
tail -n +1 -f "$work/log" --pid=$pid | 
    sed -nE '/^problem [0-9]*0\//p;/= arena|= process|measured/p;/tokens answered/,/problems:/p' || true
wait $pid
say "planned = measured, and every run stayed inside its budget. Next: ./snug --help, README.md"
