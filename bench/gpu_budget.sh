#!/usr/bin/env bash
# gpu_budget.sh SNUG OUT.jsonl [curve [POINTS]] - Qwen2.5-7B inside small budgets on the GPU that is here: 50 steps
# each, planned and measured bytes, predicted and measured tokens/s, as JSON lines; with `curve`, a few steps at the
# budgets between and beyond instead
# (bench/budget_curve.sh draws both), or only at those whose "mode budget" matches POINTS, a pattern.
set -u
snug=$1 results=$2 what=${3:-} points=${4:-.}
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
machine=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -n 1)
"$(dirname "$0")/draw_rows.sh" 64 2048 150000 > "$work/rows.jsonl"
"$snug" doctor --device cuda --quick --write "$work/machine.json" >/dev/null 2>&1
one() { # mode budget steps options...
    local mode=$1 budget=$2 steps=$3 rc=0; shift 3
    [[ "$mode $budget" =~ $points ]] || return 0
    timeout 150 "$snug" train --init random --device cuda --machine "$work/machine.json" --model qwen2.5-7b \
        --precision bf16 --pack off --no-save --data "$work/rows.jsonl" --seq 2048 \
        --global-batch 4 --steps "$steps" --budget "$budget" --out "$work/out" --overwrite --log-steps 1000 \
        --json "$@" >"$work/result" 2>"$work/log" || rc=$?
    [ $rc -eq 0 ] || { echo "$mode $budget: exit $rc: $(tail -n 1 "$work/log" | cut -c1-200)"; return; }
    local command="bench/gpu_budget.sh: snug train --model qwen2.5-7b --seq 2048 --global-batch 4"
    command="$command --steps $steps --budget"
    printf '{"bench":"gpu-budget","mode":"%s","budget":"%s","machine":"%s","command":"%s %s %s","snug":%s}\n' \
        "$mode" "$budget" "$machine" "$command" "$budget" "$*" "$(tail -n 1 "$work/result")" | tee -a "$results"
}
lora="--mode lora --lora-rank 16" qlora="--mode lora --lora-rank 16 --quantize nf4"
if [ -z "$what" ]; then
    one full 24GiB 50; one full 16GiB 50
    one lora 12GiB 50 $lora
    one qlora 8GiB 50 $qlora; one qlora 6GiB 50 $qlora
else
    for b in 6 7 8 10 12 32 48 80 135; do one full ${b}GiB 4; done
    for b in 6 8 16 24 48 135; do one lora ${b}GiB 6 $lora; done
    for b in 5 12 24 48 135; do one qlora ${b}GiB 6 $qlora; done
fi
