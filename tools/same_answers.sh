#!/usr/bin/env bash
# same_answers.sh OTHER [THIS] - the same requests through two builds of snug (THIS: ./snug): ids, log-probabilities
# and texts must be equal bit for bit, and the bytes of the arena as well. Weights as bf16, fp32, int8 and nf4,
# adapters, samples, stop strings, packs, long prompts, few slots, an int8 cache, offload, and a whole `snug reason`.
# Prints one line a case; exits with 1 when one differs.
set -u
cd "$(dirname "$0")/.."
other=$1 this=${2:-./snug}
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
bad=0 cases=0
prompts() { # rows from to tokens-modulo: ids below 100, each with its own seed
    awk -v n="$1" -v most="$2" 'BEGIN { for (r = 0; r < n; r++) { printf "{\"ids\":[1"; m = 2 + (r * 37) % most
        for (i = 0; i < m; i++) printf ",%d", (r * 31 + i * 17 + 5) % 100
        printf "],\"seed\":%d", 1000 + r; if (r % 3 == 1) printf ",\"max_tokens\":%d", 1 + r % 13; print "}" } }'
}
lines() { # what must be equal of an output: answers as they are, of the summary the arena
    sed -E 's/.*("planned_bytes":[0-9]+,"measured_bytes":[0-9]+).*/\1/; s/"time":[^,}]*//g; s/"timestamp":"[^"]*"//g'
}
compare() { # name, arguments
    local name=$1; shift
    "$other" "$@" 2>"$work/a.err" | lines > "$work/a"; local a=${PIPESTATUS[0]}
    "$this" "$@" 2>"$work/b.err" | lines > "$work/b"; local b=${PIPESTATUS[0]}
    cases=$((cases + 1))
    if [ "$a" = 0 ] && [ "$b" = 0 ] && [ -s "$work/a" ] && cmp -s "$work/a" "$work/b"; then
        echo "same    $name"
        return
    fi
    bad=$((bad + 1)); echo "DIFFERS $name (exit $a and $b)"; diff "$work/a" "$work/b" | head -n 4 | cut -c1-200
    [ "$b" = 0 ] || tail -n 2 "$work/b.err"
}
shape="--set num_hidden_layers=3 --set hidden_size=128 --set num_attention_heads=4 --set num_key_value_heads=2\
 --set intermediate_size=256 --set vocab_size=200 --set initializer_range=0.2"
for dtype in bf16 fp32; do
    "$this" init --model llama-3.2-1b --out "$work/$dtype" --dtype $dtype $shape >/dev/null 2>&1
done
prompts 23 40 > "$work/short.jsonl"; prompts 9 700 > "$work/long.jsonl"; prompts 3 30 > "$work/few.jsonl"
common="--max-tokens 24 --ignore-eos --logprobs --json"
for weights in "bf16 none" "fp32 none" "bf16 int8" "bf16 nf4"; do
    set -- $weights
    how="generate --model $work/$1 --quantize $2 $common"
    compare "$1 $2: greedy, 23 short prompts, 5 slots" $how --prompts "$work/short.jsonl" --slots 5
    compare "$1 $2: sampled, 32 slots, packs" $how --prompts "$work/short.jsonl" --temperature 1 --top-p 0.9 --top-k 50
    compare "$1 $2: long prompts in chunks, 4 slots" $how --prompts "$work/long.jsonl" --slots 4 --temperature 0.8
    compare "$1 $2: 7 samples of 3 prompts, 4 slots" $how --prompts "$work/few.jsonl" --slots 4 --n 7 \
        --temperature 1.2 --min-p 0.02
    compare "$1 $2: one at a time, repetition penalty" $how --prompts "$work/short.jsonl" --slots 1 \
        --repetition-penalty 1.3
    compare "$1 $2: invariant" $how --prompts "$work/short.jsonl" --invariant --temperature 1
    compare "$1 $2: int8 cache" $how --prompts "$work/short.jsonl" --slots 6 --kv-cache int8
    compare "$1 $2: weights in pinned memory" $how --prompts "$work/few.jsonl" --offload weights=2
done
for model in qwen2_tied llama3 qwen3 mistral; do
    adapter=""; [ -d tests/golden/$model/adapter ] && adapter="--adapter tests/golden/$model/adapter"
    compare "golden $model${adapter:+ with its adapter}" generate --model tests/golden/$model $adapter \
        --prompts "$work/few.jsonl" $common --n 3 --temperature 0.9
done
for flags in "--quantize none" "--quantize int8" "--quantize nf4" "--stop ten --stop ." "--n 5 --stop = --slots 3"; do
    compare "tally, text: $flags" generate --model models/tally --prompt "Tom has 12 apples and buys 7 more." \
        --template chat --temperature 0.9 --max-tokens 80 --logprobs --json $flags
done
compare "tally, plain text as it comes" generate --model models/tally --prompt "Ann has 5 pens." --template chat \
    --max-tokens 60
printf 'Tom has 3 apples.\nand then?\n/reset\nTom has 3 apples.\n' > "$work/chat"
for s in other this; do
    "${!s}" chat --model models/tally --max-tokens 40 < "$work/chat" > "$work/chat.$s" 2>/dev/null
done
cases=$((cases + 2))
[ -s "$work/chat.this" ] && cmp -s "$work/chat.this" "$work/chat.other" && echo "same    a conversation" ||
    { echo "DIFFERS a conversation"; bad=$((bad + 1)); }
"$this" problems --n 24 --part held-out --roles none --out "$work/problems.jsonl" --seed 5 >/dev/null 2>&1
for s in other this; do
    "${!s}" reason --config recipes/reason-tally.yaml --data "$work/problems.jsonl" --out "$work/$s.json" \
        >/dev/null 2>&1
done
words() { sed -E 's/"(time|timestamp|seconds|date|finished)": *("[^"]*"|[0-9.e+-]+)//g' "$1"; }
if [ -s "$work/this.json" ] && [ "$(words "$work/other.json" | md5sum)" = "$(words "$work/this.json" | md5sum)" ]; then
    echo "same    reason"
else
    echo "DIFFERS reason"; bad=$((bad + 1))
    diff <(words "$work/other.json") <(words "$work/this.json") | head -n 4 | cut -c1-300
fi
echo "$cases cases, $bad differ"
[ $bad = 0 ]
