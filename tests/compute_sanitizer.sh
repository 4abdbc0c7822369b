#!/usr/bin/env bash
# compute_sanitizer.sh - a small run on the GPU under compute-sanitizer: no address outside what is mapped is touched.
skip() { echo "  1 skipped: $1"; echo "0 passed, 0 failed, 1 skipped"; exit 0; }
[ "${CUDA:-0}" = 1 ] || skip "compute-sanitizer belongs to make check CUDA=1"
nvidia-smi -L >/dev/null 2>&1 || skip "there is no GPU"
tool=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null) ||
    skip "there is no compute-sanitizer here"
tmp=$(mktemp -d); trap 'rm -rf "$tmp"' EXIT
passed=0 failed=0
for i in 1 2 3 4 5 6 7 8; do echo "{\"ids\":[$i,2,3,4,5,6,7,8,9,1$i,11,12,13,14,15,16,17,18,19,20]}"
done > "$tmp/rows.jsonl"
"$SNUG" init --model qwen2.5-0.5b --out "$tmp/m" --set num_hidden_layers=2 --set hidden_size=128 \
    --set num_attention_heads=2 \
    --set num_key_value_heads=1 --set intermediate_size=192 --set vocab_size=300 >/dev/null 2>&1
for flags in "--precision bf16 --recompute block" "--precision fp16 --mode lora --lora-rank 8" \
    "--precision fp32 --offload moments"; do
    if "$tool" --tool memcheck --error-exitcode 9 --leak-check no "$SNUG" train --device cuda --model "$tmp/m" \
        --data "$tmp/rows.jsonl" --out "$tmp/o" \
        --overwrite --seq 32 --micro-batch 2 --accum 2 --steps 3 --no-save --deterministic $flags >"$tmp/log" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1)); echo "FAILED compute-sanitizer, $flags"; tail -n 30 "$tmp/log"
    fi
done
echo "$passed passed, $failed failed, 0 skipped"
