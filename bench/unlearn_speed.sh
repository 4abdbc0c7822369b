#!/usr/bin/env bash
# unlearn_speed.sh - LMCleaner's passes over v with one thread and with two, beside a copy; JSON lines into
# bench/results/cpu-unlearn.jsonl.
set -eu
cd "$(dirname "$0")/.."
make -s snug build/cuda0-debug0/bench-unlearn_speed
source bench/record.sh
for threads in 1 2; do
    command="bench/unlearn_speed.c: 512 $threads, best of 3" \
        record cpu-unlearn cpu-unlearn "$(build/cuda0-debug0/bench-unlearn_speed 512 $threads | tr -d '{}')"
done
