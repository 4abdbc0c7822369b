#!/usr/bin/env bash
# make_tally.sh [OUT [FLAGS...]] - the built-in small model from nothing: rows, random weights, training, bf16 weights in OUT.
# FLAGS go to snug train (--device cuda, --steps 20000). ROWS: training rows. WORK: where the run is kept, to be resumed with --resume.
set -eu
cd "$(dirname "$0")/.."
out=${1:-models/tally} snug=${SNUG:-./snug} work=${WORK:-build/tally}
[ $# -gt 0 ] && shift
mkdir -p "$work"
shape="hidden_size=128 num_hidden_layers=4 num_attention_heads=4 num_key_value_heads=4 head_dim=32 intermediate_size=384
    vocab_size=768 max_position_embeddings=1024 rope_theta=10000 rope_scaling=null eos_token_id=0"

[ -e "$work/train.jsonl" ] || $snug problems --n "${ROWS:-400000}" --roles solve,solve,solve,solve,judge,judge,improve \
    --part train --seed 11 --out "$work/train.jsonl"
[ -e "$work/test.jsonl" ] || $snug problems --n 600 --roles solve,judge,improve --part held-out --seed 12 --out "$work/test.jsonl"
[ -e "$work/random" ] || $snug init --model llama-3.2-1b --out "$work/random" --tokenizer models/tally --dtype fp32 \
    $(printf -- '--set %s ' $shape)
$snug train --config recipes/tally.yaml --model "$work/random" --data "$work/train.jsonl" --eval-data "$work/test.jsonl" \
    --out "$work/run" "$@"
