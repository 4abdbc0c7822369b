#!/usr/bin/env bash
# gpu_generate.sh SNUG OUT.jsonl - answers at Qwen2.5-7B's shape (random weights, drawn in place) on the GPU that is
# here, as JSON lines: one answer and many, weights in bf16, int8 and nf4, and prompts of 2,048 tokens. Decode counts
# the tokens after an answer's first; prefill counts those of prompts. ONLY=REGEX: only the rows whose name it matches.
set -u
cd "$(dirname "$0")/.."
snug=$1 results=$2
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
machine=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -n 1)
prompts() { bench/draw_rows.sh "$1" "$2" 150000; }
ours() { # name, options...
    local name=$1 rc=0; shift
    [[ $name =~ ${ONLY:-.} ]] || return 0
    timeout 120 "$snug" generate --model qwen2.5-7b --init random --device cuda --ignore-eos --json \
        --out "$work/out" --overwrite "$@" \
        >"$work/result" 2>"$work/log" || rc=$?
    [ $rc -eq 0 ] || { echo "$name: exit $rc: $(tail -n 1 "$work/log")"; return; }
    local line; line=$(tail -n 1 "$work/result")
    field() { sed -E "s/.*\"$1\":([0-9.e+-]+).*/\1/" <<<"$line"; }
    local rates; rates=$(awk -v t="$(field tokens)" -v a="$(field answers)" -v d="$(field decode_seconds)" \
        -v p="$(field prefill_tokens)" -v s="$(field prefill_seconds)" 'BEGIN {
        printf "\"decode_tokens_per_s\":%.5g,", (d > 0 && t > a ? (t - a) / d : 0)
        printf "\"prefill_tokens_per_s\":%.5g", (s > 0 ? p / s : 0) }')
    printf '{"bench":"gpu-generate","name":"%s","machine":"%s","command":"snug generate %s",%s,"snug":%s}\n' "$name" \
        "$machine" "${*//$work\//}" "$rates" "$line" | tee -a "$results"
}
prompts 1 8 > "$work/short1.jsonl"; prompts 64 8 > "$work/short64.jsonl"; prompts 16 8 > "$work/short16.jsonl"
prompts 8 2048 > "$work/long.jsonl"; prompts 1 2048 > "$work/long1.jsonl"
one="--prompts $work/short1.jsonl --max-tokens 256 --slots 1"
ours "7B bf16 batch 1"        $one
ours "7B int8 batch 1"        $one --quantize int8
ours "7B nf4 batch 1"         $one --quantize nf4
ours "7B int8 batch 1, int8 head" $one --quantize int8 --quantize-head int8
ours "7B nf4 batch 1, int8 head"  $one --quantize nf4 --quantize-head int8
ours "7B bf16 batch 1 sampled" $one --temperature 0.7 --top-p 0.95 --top-k 50
ours "7B bf16 batch 1 after 2048" --prompts "$work/long1.jsonl" --max-tokens 256 --slots 1
ours "7B bf16 batch 16"       --prompts "$work/short16.jsonl" --max-tokens 128 --slots 16
ours "7B int8 batch 8"        --prompts "$work/short16.jsonl" --max-tokens 128 --slots 8 --quantize int8
ours "7B bf16 batch 64"       --prompts "$work/short64.jsonl" --max-tokens 128 --slots 64
ours "7B int8 batch 64"       --prompts "$work/short64.jsonl" --max-tokens 128 --slots 64 --quantize int8 \
    --quantize-head int8
ours "7B nf4 batch 64"        --prompts "$work/short64.jsonl" --max-tokens 128 --slots 64 --quantize nf4 \
    --quantize-head int8
ours "7B bf16 prefill 2048"   --prompts "$work/long.jsonl" --max-tokens 1 --slots 1
ours "7B int8 prefill 2048"   --prompts "$work/long.jsonl" --max-tokens 1 --slots 1 --quantize int8
ours "7B int8 in 12 GiB"      --prompts "$work/short16.jsonl" --max-tokens 128 --quantize int8 --budget 12GiB
