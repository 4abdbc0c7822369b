#!/usr/bin/env bash
# cpu_generate.sh [PYTHON] - one answer at SmolLM2-135M's shape against transformers on the same weights, same threads, one after
# the other: prefill of 512 tokens and decode of 64 in fp32 and bf16; JSON lines. PYTHON: an interpreter with torch and
# transformers. cpu_s: processor seconds of the decode part, which say more than the clock on a busy machine.
# Appends to bench/results/cpu-generate.jsonl.
set -eu
cd "$(dirname "$0")/.."
python=${1:-python3}
threads=${THREADS:-$(nproc)}
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
mkdir -p bench/results
machine=$(sed -nE 's/^model name\s*: //p' /proc/cpuinfo | head -n 1)
prompt() { awk -v n="$1" 'BEGIN { srand(1); printf "{\"ids\":["; for (i = 0; i < n; i++) printf (i ? ",%d" : "%d"), int(rand() * 30000); print "]}" }'; }
cpu() { # what the command after it takes of the processor, in seconds, on the last line
    local TIMEFORMAT=%U
    { time "$@" 2>/dev/null >"$work/out"; } 2>&1
}
ours() { # model prompt-tokens new-tokens
    prompt "$2" > "$work/p.jsonl"
    cpu ./snug generate --model "$1" --prompts "$work/p.jsonl" --max-tokens "$3" --ignore-eos --threads "$threads" --json
}
field() { tail -n 1 "$work/out" | sed -E "s/.*\"$1\":([0-9.e+-]+).*/\1/"; }
for dtype in fp32 bf16; do
    ./snug init --model smollm2-135m --out "$work/$dtype" --dtype $dtype >/dev/null 2>&1
    short=$(ours "$work/$dtype" 8 1)
    long=$(ours "$work/$dtype" 8 65)
    decode=$(field decode_seconds)
    ours "$work/$dtype" 512 1 >/dev/null
    prefill=$(field prefill_seconds)
    mine=$(awk -v d="$decode" -v p="$prefill" -v a="$short" -v b="$long" \
        'BEGIN { printf "{\"decode_tokens_per_s\":%.4g,\"prefill_tokens_per_s\":%.4g,\"decode_cpu_s\":%.4g}", 64 / d, 512 / p, b - a }')
    peer=$($python bench/cpu_generate_peer.py --model "$work/$dtype" --dtype $dtype --threads "$threads" 2>/dev/null | tail -n 1)
    printf '{"bench":"cpu-generate","shape":"smollm2-135m","dtype":"%s","machine":"%s, %s threads","load":"%s","commit":"%s","command":"bench/cpu_generate.sh","peer":%s,"snug":%s}\n' \
        $dtype "$machine" "$threads" "$(cut -d' ' -f1 /proc/loadavg)" "$(git rev-parse --short HEAD)" "${peer:-null}" "$mine" |
        tee -a bench/results/cpu-generate.jsonl
done
