#!/usr/bin/env bash
# cpu_train.sh [PYTHON] - training speed against PyTorch, fp32 against fp32, same threads, one after the other; JSON
# lines. PYTHON: an interpreter with torch and transformers. Appends to bench/results/cpu-train.jsonl.
set -eu
cd "$(dirname "$0")/.."
python=${1:-python3}
threads=$(nproc)
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
source bench/record.sh
rows() { bench/draw_rows.sh "$1" "$2" 30000; }
one() { # shape rows tokens steps
    rows 64 "$3" > "$work/rows.jsonl"
    local peer ours
    peer=$($python bench/cpu_peer.py --shape "$1" --batch "$2" --seq "$3" --threads "$threads" \
        --steps "$4" 2>/dev/null | tail -n 1 | sed "s|,\"result\":\"[^\"]*\"||")
    ours=$(./snug train --model "$1" --init random --precision fp32 --data "$work/rows.jsonl" --seq "$3" \
        --micro-batch "$2" --steps "$4" \
        --pack off --threads "$threads" --out "$work/out" --overwrite 2>/dev/null | tail -n 1 |
        sed "s|,\"result\":\"[^\"]*\"||")
    record cpu-train cpu-train "\"shape\":\"$1\"" "\"batch\":$2" "\"seq\":$3" "\"peer\":$peer" "\"snug\":$ours"
}
one smollm2-135m 1 512 8
one stories-15m 4 256 20
