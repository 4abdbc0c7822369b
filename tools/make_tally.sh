#!/usr/bin/env bash
# make_tally.sh [FLAGS...] - the built-in small model from nothing: rows, random weights, training, models/tally in bf16.
# FLAGS go to snug train (--device cuda, --steps 1500, --resume); what was begun lies in build/tally. ROWS: training rows.
set -eu
cd "$(dirname "$0")/.."
snug=${SNUG:-./snug} work=build/tally
shape="hidden_size=128 num_hidden_layers=4 num_attention_heads=4 num_key_value_heads=4 head_dim=32 intermediate_size=384
    vocab_size=768 max_position_embeddings=1024 rope_theta=10000 rope_scaling=null initializer_range=0.05 eos_token_id=0"
mkdir -p "$work"

[ -e $work/train.jsonl ] || $snug problems --n "${ROWS:-600000}" --part train --seed 11 --out $work/train.jsonl \
    --roles solve,judge,solve,solve,improve,solve,judge,solve
[ -e $work/test.jsonl ] || $snug problems --n 240 --part held-out --seed 12 --out $work/test.jsonl
[ -e $work/random ] || $snug init --model llama-3.2-1b --out $work/random --tokenizer models/tally --dtype fp32 \
    $(printf -- '--set %s ' $shape)
$snug train --config recipes/tally.yaml --model $work/random --data $work/train.jsonl --eval-data $work/test.jsonl \
    --out $work/run "$@"

# One update at learning rate 0 in bf16 is a rounding to bf16.
$snug train --model $work/run/model --data $work/test.jsonl --precision bf16 --master none --seq 384 --lr 0 --steps 1 \
    --out $work/bf16 --overwrite
cp $work/bf16/model/config.json $work/bf16/model/model.safetensors models/tally/
SNUG=$snug tools/eval_tally.sh models/tally
