#!/usr/bin/env bash
# predicted.sh [SNUG] - what the planner expects on an H200 with the rates `snug doctor` measured there (bench/machines/h200.json),
# beside what was measured (bench/results/gpu-train-h200.jsonl, gpu-budget-h200.jsonl). Needs no GPU; a Markdown table.
set -eu
cd "$(dirname "$0")/.."
snug=${1:-./snug}
number() { sed -n "s/.*\"$1\":\([0-9.e+]*\).*/\1/p"; }
echo "| job on an H200 | measured tok/s | predicted tok/s | |"
echo "|---|---|---|---|"
while IFS='|' read -r name measured flags; do
    predicted=$("$snug" plan $flags --precision bf16 --gpu h200 --machine bench/machines/h200.json --json 2>/dev/null | grep -o '"predicted":{[^}]*}' | number tokens_per_s)
    awk -v n="$name" -v m="$measured" -v p="$predicted" 'BEGIN { printf "| %s | %d | %d | %+.0f %% |\n", n, m, p, 100 * (p / m - 1) }'
done <<'ROWS'
0.5B full, 8 x 1024|159311|--model qwen2.5-0.5b --seq 1024 --micro-batch 8
0.5B full, 32 x 1024 x 4|167325|--model qwen2.5-0.5b --seq 1024 --micro-batch 32 --accum 4
1.5B full, 8 x 1024|57782|--model qwen2.5-1.5b --seq 1024 --micro-batch 8
1.5B full, 16 x 1024 x 4|60170|--model qwen2.5-1.5b --seq 1024 --micro-batch 16 --accum 4
7B LoRA r128, 2 x 2048|18065|--model qwen2.5-7b --mode lora --lora-rank 128 --seq 2048 --micro-batch 2
7B LoRA r128, 2 x 2048, block recompute|13738|--model qwen2.5-7b --mode lora --lora-rank 128 --seq 2048 --micro-batch 2 --recompute block
7B LoRA r128, 1 x 1536 x 16, block recompute|13119|--model qwen2.5-7b --mode lora --lora-rank 128 --seq 1536 --micro-batch 1 --accum 16 --recompute block
7B LoRA r16, 2 x 4096|18087|--model qwen2.5-7b --mode lora --lora-rank 16 --seq 4096 --micro-batch 2
7B full, 4 x 2048, block recompute|11261|--model qwen2.5-7b --seq 2048 --micro-batch 4 --recompute block
7B full, 4 x 2048, norm recompute|13522|--model qwen2.5-7b --seq 2048 --micro-batch 4 --recompute norm
7B LoRA r16, 4 x 2048 in 12 GiB|13981|--model qwen2.5-7b --seq 2048 --mode lora --lora-rank 16 --micro-batch 4 --recompute block --offload weights=12,inputs=26
7B QLoRA r16, 4 x 2048 in 8 GiB|13644|--model qwen2.5-7b --seq 2048 --mode lora --lora-rank 16 --micro-batch 4 --recompute block --quantize nf4 --offload weights=14
7B full, 4 x 2048 in 24 GiB|4896|--model qwen2.5-7b --seq 2048 --micro-batch 4 --recompute block --offload moments,gradients=18
7B full, 4 x 2048 in 16 GiB|3937|--model qwen2.5-7b --seq 2048 --micro-batch 4 --recompute block --offload weights=9,moments,gradients
ROWS
