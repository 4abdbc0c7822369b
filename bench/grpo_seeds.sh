#!/usr/bin/env bash
# grpo_seeds.sh SNUG [SEED...] - recipes/grpo-demo.yaml with several seeds, each beside a control: as many supervised
# steps, of as
# many samples at the same rate, on correct answers of the model as it began, drawn for as many prompts at the same
# temperature. Both are compared with that model on the same 200 held-out problems (snug grpo-eval). One line a seed in
# bench/results/cpu-grpo-seeds.jsonl.
set -eu
snug=$1; shift
. "$(dirname "$0")/record.sh"
seeds=${*:-"1 2 3"}
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
steps=20 batch=64 group=8
"$snug" problems --n 2000 --roles none --out "$work/problems.jsonl" 2> /dev/null
"$snug" problems --n 200 --roles none --part held-out --out "$work/held-out.jsonl" 2> /dev/null

# prompts of this seed; then, of their answers, the correct ones as rows to train on
prompts() {
    python3 - "$work/problems.jsonl" "$1" $((steps * batch / group)) <<'P'
import json, random, sys
rows = [json.loads(l) for l in open(sys.argv[1])]
random.Random(int(sys.argv[2])).shuffle(rows)
for i, r in enumerate(rows[:int(sys.argv[3])]):
    print(json.dumps({"id": i, "messages": [{"role": "user", "content": r["question"]}], "gold": r["answer"]}))
P
}
correct() {
    python3 - "$1" "$2" <<'P'
import json, re, sys
asked = {(r := json.loads(l))["id"]: r for l in open(sys.argv[1])}
for line in open(sys.argv[2]):
    a = json.loads(line)
    found = re.findall(r"\\boxed\{(-?\d+)\}", a["text"])
    ask = asked[a["id"]]
    if found and found[-1] == ask["gold"]:
        print(json.dumps({"messages": ask["messages"] + [{"role": "assistant", "content": a["text"]}]}))
P
}
compare() { "$snug" grpo-eval --model models/tally --tuned "$1" --data "$work/held-out.jsonl" \
    --prompt-tokens 96 --max-tokens 160 \
    --precision fp32 --json 2> /dev/null; }

for seed in $seeds; do
    began=$(date +%s)
    "$snug" grpo --config recipes/grpo-demo.yaml --seed "$seed" --data "$work/problems.jsonl" \
        --eval-samples 0 --sample-steps 0 \
        --out "$work/grpo" --overwrite --json > "$work/grpo.json" 2> /dev/null
    prompts "$seed" > "$work/prompts.jsonl"
    "$snug" generate --model models/tally --prompts "$work/prompts.jsonl" --n $group \
        --temperature 1.3 --max-tokens 160 --seed "$seed" \
        --precision fp32 --out "$work/answers.jsonl" --overwrite > /dev/null 2>&1
    correct "$work/prompts.jsonl" "$work/answers.jsonl" > "$work/correct.jsonl"
    "$snug" train --model models/tally --data "$work/correct.jsonl" --mode full --precision fp32 \
        --seq 256 --global-batch $batch \
        --steps $steps --lr 5e-5 --schedule constant --seed "$seed" --out "$work/control" --overwrite > /dev/null 2>&1
    compare "$work/grpo" > "$work/a.json"
    compare "$work/control" > "$work/b.json"
    fields=$(python3 - "$work" "$seed" $(($(date +%s) - began)) "$(wc -l < "$work/correct.jsonl")" <<'P'
import json, sys
work, seed, seconds, correct = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
a, b, g = (json.loads(open(f"{work}/{n}.json").read().splitlines()[-1]) for n in ("a", "b", "grpo"))
print(json.dumps({"seed": seed, "items": a["items"], "base": a["base"], "grpo": a["tuned"],
                  "grpo_gain": a["difference"],
                  "control": b["tuned"], "control_gain": b["difference"], "control_rows": correct, "steps": g["steps"],
                  "reward_first": g["reward_first"], "reward_last": g["reward_last"], "seconds": seconds,
                  "grpo_seconds": g["seconds"]})[1:-1])
P
)
    record cpu-grpo-seeds grpo-seeds "$fields"
done
