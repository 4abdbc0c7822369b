#!/usr/bin/env bash
# unlearn_losses.sh [SNUG...] - losses on whole logits and hidden states, two updates of 16 rows of 128 drawn tokens: a model of
# 17M parameters and 50,304 tokens in its vocabulary, fp32. JSON lines into bench/results/cpu-unlearn.jsonl; several
# builds run beside each other, each on the same trained run.
set -eu
cd "$(dirname "$0")/.."
source bench/record.sh
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
mkdir "$work/model"
cat > "$work/model/config.json" <<'JSON'
{"model_type": "llama", "num_hidden_layers": 4, "hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 4,
 "intermediate_size": 768, "vocab_size": 50304, "max_position_embeddings": 1024, "rms_norm_eps": 1e-5,
 "rope_theta": 10000, "tie_word_embeddings": true, "torch_dtype": "float32"}
JSON
bench/draw_rows.sh 64 128 50304 > "$work/rows.jsonl"
echo '[3,4,5,6,7,8,9,10]' > "$work/forget"
./snug train --model "$work/model" --init random --data "$work/rows.jsonl" --seq 128 --pack off --precision fp32 \
    --global-batch 8 --micro-batch 8 --steps 2 --out "$work/run" --quiet > /dev/null
for snug in "${@:-./snug}"; do
    for method in npo undial pdu rmu; do
        line=$("$snug" unlearn --run "$work/run" --forget "$work/forget" --method $method --out "$work/out" --overwrite \
            --epochs 2 --global-batch 8 --micro-batch 8 --json --quiet | tail -n 1)
        command="bench/unlearn_losses.sh: $method, ${snug##*/}" record cpu-unlearn unlearn-losses \
            "\"unlearning_seconds\":$(number unlearning_seconds <<< "$line")" \
            "\"loss\":$(number loss <<< "$line")" \
            "\"process_planned_bytes\":$(number process_planned_bytes <<< "$line")" \
            "\"process_measured_bytes\":$(number process_measured_bytes <<< "$line")"
    done
done
