#!/usr/bin/env bash
# grpo_gpu.sh SNUG [ROW...] - GRPO on a GPU with random weights of real shapes: one JSON line a row, as snug grpo ends with
# it, behind the row's name. Answers of random weights run to their full length, so a step is as long as it can be.
set -u
snug=$1; shift
rows=${*:-"7b-24 7b-18.7 0.5b pair-80 pair-48 pair-24"}
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
for i in $(seq 60); do printf 'Think about every number of the task before you answer it, number %d. ' "$i"; done > "$work/meta.txt"
common="--init random --tokenizer tests/data/tok_llama3 --parser test --meta-prompt @$work/meta.txt --eval-samples 0 \
    --steps 4 --log-steps 1 --sample-steps 0 --no-save --temperature 1 --prompt-tokens 128 --json"
lora="--model qwen2.5-7b --mode lora --lora-rank 16 --group 8 --global-batch 64"
row() { # name, flags
    local name=$1; shift
    echo "== $name: $*" >&2
    local line; line=$("$snug" grpo $common "$@" --out "$work/out" --overwrite 2> "$work/err" | tail -n 1)
    [ -n "$line" ] || tail -n 5 "$work/err" >&2
    grep -E '^step|reward' "$work/err" | tail -n 4 >&2
    echo "{\"row\":\"$name\",\"flags\":\"$*\",\"result\":${line:-null}}"
}
for r in $rows; do
    case $r in
    7b-24)   row $r $lora --max-tokens 256 --budget 24GiB ;;
    7b-18.7) row $r $lora --max-tokens 256 --budget 18.7GiB ;;
    0.5b)    row $r --model qwen2.5-0.5b --mode full --group 8 --global-batch 128 --max-tokens 256 ;;
    pair-80) row $r $lora --max-tokens 512 --evaluator qwen2.5-14b:int8 --budget 80GiB --steps 3 ;;
    pair-48) row $r $lora --max-tokens 512 --evaluator qwen2.5-14b:int8 --budget 48GiB --steps 3 ;;
    pair-24) row $r $lora --max-tokens 512 --evaluator qwen2.5-14b:int8 --budget 24GiB --steps 3 ;;
    esac
done
