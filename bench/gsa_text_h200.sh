#!/usr/bin/env bash
# gsa_text_h200.sh CORPUS WORK [STEPS] - does sparse attention learn text as well as dense?
#
# The model of recipes/pretrain.yaml's size as a GSA model with a quarter of a row's keys, trained from random weights
# on the same tokens in the same order with the learned selection, with as many random keys, with all keys and gates,
# and with all keys without gates. One JSON line a run and one for each row of its curve in
# bench/results/gsa-text-h200.jsonl (RESULTS=DIR: elsewhere). The runs go one after another.
#
#   CORPUS: a folder of tools/pretrain_data.sh   WORK: an empty folder   DEVICE=cpu: elsewhere than on a GPU
set -eu
corpus=${1:?usage: bench/gsa_text_h200.sh CORPUS WORK [STEPS]} work=${2:?a folder for the runs is missing}
steps=${3:-1000}
. "$(dirname "$0")/record.sh"
snug=$root/snug
mkdir -p "$work"
"$snug" init --model gsa-512m --tokenizer "$corpus/tokenizer" --out "$work/model" --overwrite \
    --set vocab_size=16384 --set d_model=384 --set n_layers=10 --set n_heads=6 --set n_kv_heads=6 --set d_ffn=1536 \
    --set tie_word_embeddings=true --set max_position_embeddings=1024 --set d_indexer=64 --set n_indexer_heads=4 \
    --set use_adaptive_k=false --set k_base=256 --set k_min=256 --set k_max=256
run() { # name, options of the training
    local name=$1
    shift
    "$snug" train --config "$root/recipes/pretrain.yaml" --model "$work/model" --data "$corpus/tokens" \
        --steps "$steps" --micro-batch 16 --eval-steps $((steps / 4)) --log-steps 25 --save-steps 0 \
        --device "${DEVICE:-cuda}" \
        --out "$work/$name" --json "$@" > "$work/$name.json" 2> "$work/$name.log" ||
        { echo "$name: $(tail -n 1 "$work/$name.log")"; return 1; }
}
keep() { # name: its lines
    local name=$1 line
    record gsa-text-h200 run "\"selection\":\"$name\"" "\"steps\":$steps" "\"result\":$(tail -n 1 "$work/$name.json")"
    python3 - "$work/$name/metrics.jsonl" > "$work/$name.curve" <<'CURVE'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
for r in rows:
    if r.get("kind") == "eval":
        print(f'"step":{r["step"]},"held_out_loss":{r["loss"]}')
kept = [r for r in rows if r.get("kind") == "attention" and r.get("indexer_recall") is not None]
for r in kept[::max(1, len(kept) // 10)]:
    print(f'"step":{r["step"]},"indexer_recall":{r["indexer_recall"]}')
CURVE
    while read -r line; do record gsa-text-h200 curve "\"selection\":\"$name\"" "$line"; done < "$work/$name.curve"
}
run learned --selection learned --indexer-warmup joint --indexer-warmup-steps $((steps / 4)) && keep learned
run dense-gated --selection all && keep dense-gated
run dense --selection all --gates none && keep dense
run random --selection random && keep random
