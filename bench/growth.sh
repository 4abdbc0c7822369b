#!/usr/bin/env bash
# growth.sh - cost as work grows: plan time against layers, step time against tokens, planned memory against length
# and batch. Points and exponents into bench/results/growth.jsonl, pictures into docs/images (bench/plots.sh). Under
# three minutes.
set -eu
cd "$(dirname "$0")/.."
source bench/record.sh
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
${CC:-cc} -std=c11 -O2 -Wall -o "$work/plot" bench/plot.c -lm
measured() { # NAME < series: records each of them
    "$work/plot" /dev/null | while read -r fields; do record growth growth "\"what\":\"$1\"" "$fields"; done
}

# Plan time: the 0.5B model's layers, more or fewer of them; the best of five.
plan_ms() { for _ in 1 2 3 4 5; do ./snug plan "$@" --json 2>/dev/null | number plan_ms; done | sort -g | head -n 1; }
layers() { # name, options...
    echo "series $1"; shift
    for n in 8 16 32 64 128 256 512; do
        mkdir -p "$work/l$n"
        printf '{"model_type":"qwen2","architectures":["Qwen2ForCausalLM"],"hidden_size":896,
            "intermediate_size":4864,"vocab_size":151936,"num_hidden_layers":%s,"num_attention_heads":14,
            "num_key_value_heads":2,"rms_norm_eps":1e-6,"rope_theta":1000000.0,"tie_word_embeddings":true,
            "max_position_embeddings":32768,"torch_dtype":"bfloat16"}' "$n" > "$work/l$n/config.json"
        echo "$n $(plan_ms --model "$work/l$n" --seq 1024 "$@")"
    done
}
{ layers "all weights"; layers "adapters, block recompute" --mode lora --lora-rank 16 --recompute block; } |
    measured plan-time

# Step time: a small model (4 layers, 256 wide) on the CPU; longer rows, or more of them.
set --  --set num_hidden_layers=4 --set hidden_size=256 --set num_attention_heads=4 --set num_key_value_heads=2 \
    --set intermediate_size=704 --set vocab_size=2048
./snug init --model qwen2.5-0.5b "$@" --out "$work/small" >/dev/null 2>&1
bench/draw_rows.sh 128 2048 2000 > "$work/rows.jsonl"
step_ms() { # rows, tokens of a row
    local steps=$((8192 / ($1 * $2)))
    local rate; rate=$(./snug train --model "$work/small" --data "$work/rows.jsonl" --precision fp32 --pack off \
        --no-save --seq "$2" --micro-batch "$1" --steps $((steps < 4 ? 4 : steps > 40 ? 40 : steps)) --out "$work/out" \
        --overwrite 2>/dev/null | number tokens_per_s)
    awk -v n=$(($1 * $2)) -v r="$rate" 'BEGIN { print n, 1000 * n / r }'
}
{ echo "series one row, longer"; for n in 64 128 256 512 1024 2048; do step_ms 1 $n; done
  echo "series rows of 64, more of them"; for n in 1 2 4 8 16 32; do step_ms $n 64; done; } | measured step-time

# Planned memory of adapter training beside the frozen weights, which are there at any length.
bytes() { ./snug plan --model qwen2.5-0.5b --mode lora --lora-rank 16 "$@" --json 2>/dev/null | tr '{' '\n' |
    awk -F'[:,]' '
    { for (i = 1; i < NF; i++) { if ($i == "\"planned_bytes\"" && !all) all = $(i + 1)
                                  if ($i == "\"bytes\"" && /"name":"weights"/) w = $(i + 1) } }
    END { print (all - w) / 1e9 }'; }
memory() { # name, fixed options, option, values...
    local name=$1 fixed=$2 option=$3; shift 3
    echo "series $name"
    for n in "$@"; do echo "$n $(bytes $fixed "$option" "$n")"; done
}
{ memory "everything kept" "--recompute none" --seq 256 512 1024 2048 4096 8192 16384
  memory "block recompute" "--recompute block" --seq 256 512 1024 2048 4096 8192 16384; } | measured memory-length
{ memory "everything kept" "--seq 512 --recompute none" --micro-batch 1 2 4 8 16 32
  memory "block recompute" "--seq 512 --recompute block" --micro-batch 1 2 4 8 16 32; } | measured memory-batch
bench/plots.sh growth
