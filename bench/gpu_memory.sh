#!/usr/bin/env bash
# gpu_memory.sh SNUG OUT.jsonl [COUNT] [SEED] - drawn configurations on the GPU: planned against what the driver
# reports, as JSON lines.
set -u
cd "$(dirname "$0")/.."
snug=$1 results=$2 count=${3:-30}
RANDOM=${4:-11}
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
pick() { local a=("$@"); echo "${a[RANDOM % $#]}"; }
bench/draw_rows.sh 64 8192 45000 > "$work/rows.jsonl"
echo "seed ${4:-11}"
for ((i = 0; i < count; i++)); do
    model=$(pick qwen2.5-0.5b qwen2.5-1.5b qwen2.5-3b qwen2.5-7b smollm2-135m llama-3.2-1b qwen3-0.6b)
    flags="--model $model --seq $(pick 512 1024 2048 4096 8192) --recompute $(pick none norm ffn block)"
    flags="$flags --micro-batch $(pick 1 2 3) --accum $(pick 1 2)"
    flags="$flags $(pick '--mode full' '--mode lora --lora-rank 16' '--mode lora --lora-rank 128' \
        '--mode full --moments 8bit' '--mode full --master fp32')"
    rc=0
    timeout 90 "$snug" train $flags --init random --device cuda --pack off --no-save --steps 4 \
        --data "$work/rows.jsonl" --out "$work/out" --overwrite --json >"$work/result" 2>"$work/log" || rc=$?
    if [ $rc -ne 0 ]; then echo "exit $rc: $flags: $(grep '^snug' "$work/log" | head -n 1 | cut -c1-160)"; continue; fi
    printf '{"bench":"gpu-memory","flags":"%s","snug":%s}\n' "$flags" "$(tail -n 1 "$work/result")" >> "$results"
done
awk -F'[:,}]' '{
    for (i = 1; i < NF; i++) {
        if ($i ~ /"planned_bytes"/) p = $(i+1)
        if ($i ~ /"measured_bytes"/) m = $(i+1)
        if ($i ~ /"process_planned_bytes"/) q = $(i+1)
        if ($i ~ /"process_measured_bytes"/) r = $(i+1)
    }
    n++; exact += p == m; over += r > q; d = (q - r) / q; if (d > worst) { worst = d; bytes = q - r }; sum += d }
    END {
        printf "%d configurations: arena exact in %d, above the plan in %d, plan above measured", n, exact, over
        printf " by %.2f %% on average, at most %.2f %% (%d MiB)\n", 100 * sum / n, 100 * worst, bytes / 1048576
    }' "$results"
