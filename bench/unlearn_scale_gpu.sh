#!/usr/bin/env bash
# unlearn_scale_gpu.sh SNUG OUT.jsonl [STEPS] - one removed update at Llama-3.2-3B's shape on the GPU that is here: SGD on
# rows of 64 drawn tokens, 64 an update, a state every ten (STRIDE=0: none), random bf16 weights; then LMCleaner (fisher,
# WINDOWS="10 0") takes the middle update out inside 16 GB, with its correction on the device and in host memory
# (CORRECTION="device host"). Files lie in WORK (/dev/shm, or a disk): 6.4 GB a state and a result. Another shape:
#   MODEL=llama-3.1-8b ROWS=16 MICRO=8 BUDGET=24GiB WINDOWS=1 CORRECTION=host unlearn_scale_gpu.sh SNUG OUT.jsonl 3
set -u
cd "$(dirname "$0")/.."
snug=$1 results=$2 steps=${3:-63} stride=${STRIDE:-10} model=${MODEL:-llama-3.2-3b} rows=${ROWS:-64} micro=${MICRO:-64}
work=$(mktemp -d "${WORK:-/dev/shm}/unlearn.XXXX"); trap 'rm -rf "$work"' EXIT
machine=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -n 1)
row() { # name, the command's words
    local name=$1 line; shift
    echo "== $name: snug $*" >&2
    line=$(timeout "${LIMIT:-200}" "$snug" "$@" --overwrite --json 2> "$work/log" | tail -n 1)
    [ -n "$line" ] || tail -n 3 "$work/log" >&2
    printf '{"bench":"unlearn-scale","name":"%s","machine":"%s","files":"%s","command":"snug %s","snug":%s}\n' "$name" \
        "$machine" "${work%/*}" "${*//$work\//}" "${line:-null}" | tee -a "$results" |
        grep -oE '"((request_)?seconds|tokens_per_s|(process_)?measured_bytes)":[0-9.]+|"seconds_by_part":\{[^}]*\}' >&2
}
bench/draw_rows.sh $((steps * rows)) 64 128000 > "$work/rows.jsonl"
row "$model train" train --model "$model" --init random --precision bf16 --device cuda --data "$work/rows.jsonl" \
    --seq 64 --pack off --micro-batch "$micro" --accum $((rows / micro)) --steps "$steps" --optimizer sgd --momentum 0 --lr 1e-3 \
    --weight-decay 0.01 --clip 0 --deterministic --log-steps 1000 --step-log --step-log-stride "$stride" --out "$work/run"
du -sb "$work/run/step-log"/* | sort -n | tail -n 12 >&2
sed -nE "s/^\{\"step\":$((steps / 2)),.*\"samples\":\[([0-9]+),.*/\1/p" "$work/run/step-log/steps.jsonl" > "$work/forget"
for correction in ${CORRECTION:-device host}; do
    for window in ${WINDOWS:-10 0}; do
        row "$model, $correction, window $window, stride $stride" unlearn --method lmcleaner --run "$work/run" \
            --forget "$work/forget" --remove steps --hessian fisher --damping 1e-4 --window "$window" \
            --correction "$correction" --budget "${BUDGET:-16GB}" --device cuda --out "$work/result"
        rm -rf "$work/result"
    done
done
