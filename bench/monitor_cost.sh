#!/usr/bin/env bash
# monitor_cost.sh [SECONDS] [PAIRS] - what watching costs in processor time: one line into bench/results/monitor.jsonl.
#
# `snug monitor` for SECONDS (60) at its default interval in each of its ways, beside a running job, as a share of one
# core (its start is taken off); calls inside a job and a monitor (bench/monitor_cost.c); and a training job, PAIRS (5)
# times alone and with a monitor beside it in turn. Nothing is timed by the clock, so other work does little harm.
set -eu
cd "$(dirname "$0")/.."
source bench/record.sh
seconds=${1:-60} pairs=${2:-5} steps=25 flavour=build/cuda0-debug0
work=$(mktemp -d)
trap 'kill ${watched:-} ${beside:-} 2> /dev/null; rm -rf "$work"' EXIT
make -s snug $flavour/bench-monitor_cost $flavour/fake_nvml.so
export SNUG_JOBS=$work/jobs
TIMEFORMAT='%U %S'
cpu() { # of a command and what it waited for: processor seconds
    { time "$@" > "$work/out" 2>&1 < /dev/null; } 2> "$work/time"
    tail -n 1 "$work/time" | awk '{ printf "%.3f", $1 + $2 }'
}
middle() { tr ' ' '\n' | sort -n | awk 'NF { x[n++] = $1 } END { printf "%.3f", x[int(n / 2)] }'; }

"$root/snug" amr draw --n 3000 --seed 1 --out "$work/rows.amr" --quiet
"$root/snug" init --model models/tally --tokenizer recipes/amr-demo --dtype fp32 --out "$work/random" --quiet
job=("$root/snug" train --model "$work/random" --data "$work/rows.amr" --seq 256 --threads 1 --device cpu --no-save)
job+=(--log-steps 1)
train() { "${job[@]}" --steps "$1" --out "$work/$2" --overwrite; }

"${job[@]}" --steps 100000 --out "$work/watched" > /dev/null 2>&1 & watched=$!
for way in "terminal" "csv --csv $work/gpu.csv --overwrite" "serve --serve any" "wrap -- sleep $seconds"; do
    read -r name arguments <<< "$way"
    screen=("$root/snug" monitor)
    first=$(cpu "${screen[@]}" --once)
    if [ "$name" = wrap ]; then
        spent=$(cpu "${screen[@]}" $arguments)
    elif [ "$name" = terminal ]; then
        spent=$(cpu script -qec "TERM=xterm $root/snug monitor --duration $seconds" /dev/null)
    else
        spent=$(cpu "${screen[@]}" $arguments --duration "$seconds")
    fi
    percent=$(awk -v a="$spent" -v b="$first" -v s="$seconds" 'BEGIN { printf "%.2f", 100 * (a - b) / s }')
    fields+=("\"${name}_percent_of_a_core\":$percent")
done
kill -TERM $watched
wait $watched || true
watched=

calls=$($flavour/bench-monitor_cost "$work/calls" $flavour/fake_nvml.so)
for i in $(seq "$pairs"); do
    alone+=("$(cpu train $steps alone)")
    "$root/snug" monitor > /dev/null & beside=$!
    watched_s+=("$(cpu train $steps beside)")
    kill -TERM $beside
    wait $beside || true
    beside=
done
one=$(cpu train 1 alone)
step_ms=$(echo "${alone[*]}" | middle | awk -v a="$one" -v n=$steps '{ printf "%.1f", 1e3 * ($1 - a) / (n - 1) }')
inside=$(echo "$calls" | awk -F'[:,]' -v s="$step_ms" '{ printf "%.3f", ($4 + $6) / 10 / s }')
list() { local IFS=,; echo "[$*]"; }
record monitor monitor "\"watched_s\":$seconds" "${fields[@]}" "$(echo "$calls" | tr -d '{} ')" \
    "\"job_steps\":$steps" "\"job_cpu_s\":$(list "${alone[@]}")" "\"job_watched_cpu_s\":$(list "${watched_s[@]}")" \
    "\"step_ms\":$step_ms" "\"logged_step_percent\":$inside"
