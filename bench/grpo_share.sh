#!/usr/bin/env bash
# grpo_share.sh SNUG [UPDATES] - training on answers that share their prompt, beside answers that repeat it, on the CPU:
# the same rollout trained on UPDATES times (--num-iterations), so that training is most of it. Two settings: the
# demo's, and a long prompt with short answers. Processor time (user + sys) of whole runs, less that of a run of one update:
# others may be using the machine. A line each in bench/results/cpu-grpo-share.jsonl.
set -eu
snug=$1 updates=${2:-6}
. "$(dirname "$0")/record.sh"
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
"$snug" problems --n 400 --roles none --out "$work/problems.jsonl" 2> /dev/null
for i in 1 2 3 4 5 6 7 8; do
    echo "Read the problem twice, write down each number, say which step comes next, and check the sum before you go."
done > "$work/long.txt"

run() { # updates, flags...: the last line, then its processor seconds
    local n=$1; shift
    TIMEFORMAT='%U %S'
    { time "$snug" grpo --config recipes/grpo-demo.yaml --data "$work/problems.jsonl" --eval-samples 0 \
        --sample-steps 0 --steps "$n" --num-iterations "$updates" --lr 1e-6 --threads 2 --save false \
        --out "$work/run" --overwrite --json "$@" > "$work/last.json" 2> /dev/null; } 2> "$work/time"
    tail -n 1 "$work/last.json"
    awk '{print $1 + $2}' "$work/time"
}

for job in demo long; do
    for share in off on; do
        flags=(--share-prompts $share)
        [ $job = demo ] || flags+=(--meta-prompt "@$work/long.txt" --prompt-tokens 448 --max-tokens 48)
        run 1 "${flags[@]}" > "$work/one"
        run "$updates" "${flags[@]}" > "$work/all"
        fields=$(python3 - "$work" "$job" "$share" "$updates" <<'P'
import json, sys
work, job, share, updates = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
(_, one), (last, whole) = (open(f"{work}/{n}").read().splitlines() for n in ("one", "all"))
last = json.loads(last)
rows = [json.loads(l) for l in open(f"{work}/run/metrics.jsonl")]
tokens = [r["tokens_seen"] for r in rows if r["kind"] == "train"]
print(json.dumps({
    "job": job, "share_prompts": share, "plan": last["plan"], "tokens_an_update": round(tokens[-1] / updates),
    "completion_tokens": [r["completions_mean_length"] for r in rows if r["kind"] == "grpo"][0],
    "processor_seconds_an_update": round((float(whole) - float(one)) / (updates - 1), 2),
    "loss": [r["loss"] for r in rows if r["kind"] == "train"][0], "planned_bytes": last["planned_bytes"],
    "measured_bytes": last["measured_bytes"]})[1:-1])
P
)
        record cpu-grpo-share grpo-share "$fields"
    done
done
