#!/usr/bin/env bash
# look.sh [OUT] - makes pages of plans of every task, one of a plan that is refused, one of a hostile name and one of
# a reasoning report, opens each in Chromium (tools/look.py) and leaves screenshots in OUT (build/look). Fails on
# console errors, on what is fetched from outside, and where a page does not answer.
set -eu
cd "$(dirname "$0")/.."
out=${1:-build/look} snug=${SNUG:-./snug}
mkdir -p "$out"
page() { # name, exit code, flags of plan
    local name=$1 want=$2 code=0; shift 2
    "$snug" plan "$@" --html "$out/$name.html" > "$out/$name.txt" 2>&1 || code=$?
    [ "$code" -eq "$want" ] || { echo "look: $name: exit $code, not $want"; tail -n 3 "$out/$name.txt"; exit 1; }
}
page 7b 0 --model qwen2.5-7b --mode full --gpu rtx-4090
page tables 0 --model qwen2.5-7b --mode lora --global-batch 16 --gpu rtx-4090 --ladder --batches --cards \
    --compare '--mode full'
page 72b 0 --model qwen2.5-72b --mode full --gpu h200
page generate 0 --task generate --model qwen2.5-7b --gpu rtx-4090 --cards
page grpo 0 --task grpo --model qwen2.5-7b --evaluator qwen2.5-14b --gpu a100-80 --global-batch 8 \
    --prompt-tokens 512 --max-tokens 512
page refused 3 --model qwen2.5-7b --mode lora --micro-batch 8 --gpu rtx-4090 --recompute none --offload none \
    --budget 24GiB
hostile="$out/<script>alert(1)<b>"
"$snug" init --model qwen2.5-0.5b --set num_hidden_layers=2 --set hidden_size=64 --set num_attention_heads=4 \
    --set num_key_value_heads=2 \
    --set intermediate_size=128 --set vocab_size=300 --out "$hostile" --overwrite > /dev/null 2>&1
page hostile 0 --model "$hostile" --seq 64 --gpu rtx-4090
"$snug" problems --n 12 --part held-out --roles none --out "$out/problems.jsonl" --overwrite > /dev/null 2>&1
"$snug" reason --config recipes/reason-tally.yaml --data "$out/problems.jsonl" --out "$out/reasoning.json" \
    --overwrite > /dev/null 2>&1
python3 tools/look.py --out "$out" "$out"/*.html
