#!/usr/bin/env bash
# make_tally.sh [FLAGS...] - the built-in small model from nothing: rows, random weights, training, models/tally in
# bf16. FLAGS go to snug train (--device cuda, --steps 1500, --resume). ROWS: training rows. OUT: instead of
# models/tally. WORK: where rows and the run lie; what is there already is used.
set -eu
cd "$(dirname "$0")/.."
snug=${SNUG:-./snug} work=${WORK:-build/tally} out=${OUT:-models/tally}
mkdir -p "$work"

[ -e "$work/train.jsonl" ] || $snug problems --n "${ROWS:-450000}" --part train --seed 11 --out "$work/train.jsonl" \
    --roles solve,judge,solve,judge,solve,improve,solve,judge
[ -e "$work/test.jsonl" ] || $snug problems --n 240 --part held-out --seed 12 --out "$work/test.jsonl"
[ -e "$work/random" ] || $snug init --model models/tally --out "$work/random" --dtype fp32
$snug train --config recipes/tally.yaml --model "$work/random" --data "$work/train.jsonl" \
    --eval-data "$work/test.jsonl" \
    --out "$work/run" "$@"

# One update at learning rate 0 in bf16 is a rounding to bf16.
$snug train --model "$work/run/model" --data "$work/test.jsonl" --precision bf16 --master none --seq 384 --lr 0 \
    --steps 1 \
    --out "$work/bf16" --overwrite
mkdir -p "$out"
cp "$work"/bf16/model/* "$out"
SNUG=$snug tools/eval_tally.sh "$out" "${PROBLEMS:-400}"
