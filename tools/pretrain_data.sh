#!/usr/bin/env bash
# pretrain_data.sh OUT [PACKAGE...] - what recipes/pretrain.yaml trains on: the text of Debian's documentation packages
# (tools/debian_text.py), a tokenizer of 16,384 tokens learned from it (tools/train_bpe.py), token shards, and the
# folder of a model of 29,892,480 parameters with random weights. Text and tokenizer that are there are not made
# again. Needs python3, apt, dpkg and ./snug; takes a few minutes.
set -eu
out=${1:?usage: tools/pretrain_data.sh OUT [PACKAGE...]}
shift
here=$(cd "$(dirname "$0")" && pwd)
snug=${SNUG:-$here/../snug}
[ -s "$out/train.jsonl" ] || python3 "$here/debian_text.py" "$out" "$@"
[ -s "$out/tokenizer/tokenizer.json" ] || python3 "$here/train_bpe.py" "$out/train.jsonl" "$out/tokenizer" 16384
"$snug" prepare --tokenizer "$out/tokenizer" --out "$out/tokens" --overwrite "$out/train.jsonl"
"$snug" init --model smollm2-135m --tokenizer "$out/tokenizer" --out "$out/model" --overwrite \
    --set vocab_size=16384 --set hidden_size=384 --set intermediate_size=1536 --set num_hidden_layers=10 \
    --set num_attention_heads=6 --set num_key_value_heads=6 --set head_dim=64 --set max_position_embeddings=1024
