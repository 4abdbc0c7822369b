#!/usr/bin/env bash
# grpo_gpu.sh SNUG [ROW...] - GRPO on a GPU with random weights of real shapes: one JSON line a row, as snug grpo ends
# with it, behind the row's name. Answers of random weights run to their full length, so a step is as long as it can be.
# Rows exact-off and exact-on are of a small model that has learned. LIMIT=SECONDS ends a row that takes longer; its result is null. BUDGET=SIZE takes the place of a row's own.
set -u
snug=$1; shift
rows=${*:-"7b-24 7b-18.7 0.5b pair-80 pair-48 pair-24 0.5b-pair 1.5b-5 8b-20k many"}
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
for i in $(seq 800); do printf 'Think about every number of the task before you answer it, number %d. ' "$i"
done > "$work/long.txt"
head -c 4000 "$work/long.txt" > "$work/meta.txt"
machine=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2> /dev/null | head -n 1)
common="--init random --tokenizer tests/data/tok_llama3 --parser test --eval-samples 0 --log-steps 1 --sample-steps 0\
 --no-save --temperature 1"
short="--meta-prompt @$work/meta.txt --prompt-tokens 128"
lora="--model qwen2.5-7b --mode lora --lora-rank 16 --group 8 --global-batch 64 $short"
pair="$lora --max-tokens 512 --evaluator qwen2.5-14b:int8 --steps 2"
half="--model qwen2.5-0.5b --mode full --group 8 --global-batch 128 $short --max-tokens 256"
row() { # name, flags
    local name=$1; shift
    echo "== $name: $*" >&2
    local line; line=$(timeout "${LIMIT:-600}" "$snug" grpo $common "$@" --out "$work/out" --json \
        --overwrite 2> "$work/err" | tail -n 1)
    [ -n "$line" ] || tail -n 5 "$work/err" >&2
    grep -E '^step|it fits with' "$work/err" | tail -n 4 >&2
    printf '{"bench":"grpo","row":"%s","machine":"%s","flags":"%s","result":%s}\n' \
        "$name" "$machine" "${*//$work\//}" "${line:-null}"
}
for r in $rows; do
    case $r in
    7b-24)   row $r $lora --max-tokens 256 --steps 3 --budget "${BUDGET:-24GiB}" ;;
    7b-18.7) row $r $lora --max-tokens 256 --steps 3 --budget "${BUDGET:-18.7GiB}" ;;
    0.5b)    row $r $half --steps 4 ;;
    pair-80) row $r $pair --budget "${BUDGET:-80GiB}" ;;
    pair-48) row $r $pair --budget "${BUDGET:-48GiB}" ;;
    pair-24) row $r $pair --budget "${BUDGET:-24GiB}" ;;
    0.5b-pair) row $r $half --evaluator qwen2.5-0.5b --steps 4 ;;
    1.5b-5)  row $r --model qwen2.5-1.5b --mode lora --lora-rank 16 --group 8 --global-batch 8 --prompt-tokens 512 \
        --max-tokens 512 \
                 --meta-prompt "@$work/meta.txt" --steps 3 --budget "${BUDGET:-5GiB}" ;;
    8b-20k)  row $r --model qwen3-8b --mode lora --lora-rank 16 --quantize nf4 --group 8 --global-batch 8 \
        --prompt-tokens 12000 \
                 --max-tokens 8000 --meta-prompt "@$work/long.txt" --steps 1 --budget "${BUDGET:-54GB}" ;;
    # the same rollouts, trained on with prompts that are computed once a group and with repeated ones; not in the default
    # list until a card has run them
    share-on | share-off)
             for p in 128 512; do
                 row $r-$p --model qwen2.5-0.5b --mode full --group 8 --global-batch 128 --prompt-tokens $p \
                     --meta-prompt "@$work/meta.txt" --max-tokens 256 --steps 4 --share-prompts ${r#share-}
             done
             row $r-7b $lora --max-tokens 256 --steps 3 --share-prompts ${r#share-} ;;
    many)    row $r --model qwen2.5-0.5b --mode full --group 8 --global-batch 128 $short --max-tokens 64 \
                 --evaluator qwen2.5-0.5b --steps "${STEPS:-100}" ;;
    # weights that have learned: tally in bf16, with and without --exact-policy. What it costs there is the ratio of both
    # rows' seconds; with random weights, whose tokens are all as likely, it is at its worst
    exact-off | exact-on)
             "$snug" problems --n 2000 --roles none --out "$work/problems.jsonl" >&2
             common="" row $r --config recipes/grpo-demo.yaml --data "$work/problems.jsonl" --eval-samples 0 --device ${DEVICE:-cuda} \
                 --precision bf16 --no-save --steps 20 $([ $r = exact-off ] || echo --exact-policy) ;;
    # the same job with nothing, one and both models coming by phase: the same checksum
    same)    for b in 20GiB 5GiB 4500MiB; do
                 row $r-$b --model qwen2.5-0.5b --mode lora --lora-rank 16 --group 8 --global-batch 32 \
                     --micro-batch 4 --accum 8 $short \
                     --recompute none --head-chunk 512 --ffn-chunks 1 --slots 32 --max-tokens 64 \
                     --evaluator qwen2.5-1.5b --steps 2 \
                     --evaluator-temperature 1 --reward length --lr 1e-3 --budget $b
             done ;;
    esac
done
