#!/usr/bin/env bash
# cpu_all.sh [PYTHON] - every CPU bench, one after the other, on a machine that should be doing nothing else; JSON
# lines into bench/results/cpu-*.jsonl and growth.jsonl, pictures into docs/images, the table into
# docs/performance.md. Under 12 minutes on two cores. RESULTS=DIR keeps the lines elsewhere and leaves the page alone.
# PYTHON: an interpreter with torch, transformers and tokenizers; without it the peers are left out.
# LLAMA_PYTHON: one with llama-cpp-python and gguf, for generation.
# ASSETS=DIR (as in the Makefile): a tokenizer and a text to encode; without it the tokenizer's bench is left out.
set -eu
cd "$(dirname "$0")/.."
python=${1:-}
assets=${ASSETS:-../shared/assets}
make -s snug build/cuda0-debug0/bench-scan_speed build/cuda0-debug0/bench-load_speed
source bench/record.sh
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
part() { printf '== %s (%s s, load %s)\n' "$1" "$SECONDS" "$(cut -d' ' -f1 /proc/loadavg)" >&2; }

part "training against PyTorch"
[ -z "$python" ] || bench/cpu_train.sh "$python"

part "generation against transformers and llama.cpp"
[ -z "$python" ] || bench/cpu_generate.sh "$python" "${LLAMA_PYTHON:-}" || true

part "tokenizer"
if [ -d "$assets/tokenizer-qwen2.5" ]; then
    PYTHON=$python RECORD=1 bench/tokenizer_speed.sh "$assets/tokenizer-qwen2.5" "$assets/text/tinyshakespeare.txt"
else
    echo "left out: $assets/tokenizer-qwen2.5 is not here (ASSETS=DIR)" >&2
fi

part "scanning rows"
for kind in text messages; do
    build/cuda0-debug0/bench-scan_speed make $kind 300 "$work/rows.jsonl"
    command="bench/scan_speed.c: make $kind 300, best of 3" \
        record cpu-scan cpu-scan "\"kind\":\"$kind\"" \
        "$(build/cuda0-debug0/bench-scan_speed "$work/rows.jsonl" | tr -d '{}')"
done
rm -f "$work/rows.jsonl"

part "loading weights"
./snug init --model qwen2.5-0.5b --out "$work/model" >/dev/null 2>&1
cat "$work/model"/*.safetensors > /dev/null # into the page cache
for into in bf16 fp32; do
    command="bench/load_speed.c: snug init --model qwen2.5-0.5b, best of 3" \
        record cpu-load cpu-load "$(build/cuda0-debug0/bench-load_speed "$work/model" $into | tr -d '{}')"
done
rm -rf "$work/model"

part "planning"
for model in qwen2.5-0.5b qwen2.5-7b llama-3.1-70b; do
    for options in "--mode full" "--mode lora --lora-rank 16 --recompute block"; do
        for _ in 1 2 3 4 5; do ./snug plan --model $model --seq 2048 $options --json 2>/dev/null; done > "$work/plans"
        best=$(while read -r line; do number plan_ms <<< "$line"; done < "$work/plans" | sort -g | head -n 1)
        command="snug plan --model $model --seq 2048 $options" record cpu-plan cpu-plan "\"model\":\"$model\"" \
            "\"options\":\"$options\"" \
            "\"plan_ms\":$best" "\"tensors\":$(number tensors < "$work/plans")" \
            "\"steps\":$(number steps < "$work/plans")"
    done
done

part "growth"
bench/growth.sh
[ -n "${RESULTS:-}" ] || bench/performance.py
part "done"
