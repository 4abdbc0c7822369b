#!/usr/bin/env bash
# same_runs.sh record BINARY FILE | compare BINARY FILE - what a change of shape must not change, by some 150 small
# runs.
#
# A run is one line of FILE: its name, a hash of its flags, its exit code, planned bytes, the losses of every step to
# the last digit, the checksum of what was trained, a hash of what it wrote (weights, answers, a plan's JSON). `compare`
# runs everything again with BINARY and prints the lines that differ ("-" as recorded, "+" as found); exit code 1 when
# there are any. Checksums depend on the processor's instruction set, so a FILE counts on the machine that recorded
# it. Every flag whose default could change is given in one of the files below. JOBS=2 runs at a time.
set -u
usage() { echo "usage: same_runs.sh record|compare BINARY FILE" >&2; exit 2; }
[ $# -eq 3 ] && { [ "$1" = record ] || [ "$1" = compare ]; } && [ -x "$2" ] || usage
root=$(cd "$(dirname "$0")/.." && pwd)
what=$1 snug=$(realpath "$2") file=$(realpath -m "$3")
[ "$what" = record ] || [ -r "$file" ] || { echo "same_runs: $file cannot be read" >&2; exit 2; }
work=$(mktemp -d "${TMPDIR:-/tmp}/same-runs-XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
export XDG_CONFIG_HOME="$work/none" OMP_NUM_THREADS=1
mkdir lines disk
ln -s "$root/models/tally" tally
ln -s "$root/recipes/demo" words

# ---- the flags every run has, unless its own say otherwise ----
cat > machine.yaml <<'YAML'
device: cpu
threads: 1
budget: 2GiB
deterministic: true
offload: none
quantize: none
quantize-head: none
YAML
cat > job.yaml <<'YAML'
seed: 42
lora-rank: 4
lora-alpha: 8
lora-dropout: 0
lora-targets: all
precision: bf16
master: none
loss-scale: 1024
loss-scale-window: 2000
moments: bf16
adapter-dtype: bf16
seq: 64
micro-batch: 2
accum: 2
optimizer: adamw
lr: 2e-3
min-lr: 0
schedule: constant
warmup-steps: 0
warmup-ratio: 0
beta1: 0.9
beta2: 0.99
eps: 1e-8
momentum: 0
weight-decay: 0.01
clip: 1
epochs: 1
steps: 3
val-split: 0
shuffle: true
pack: off
score: all
template: none
recompute: none
update-in-backward: off
on-shortage: stop
head-chunk: 128
ffn-chunks: 1
attention: own
data-workers: 0
ahead: off
trim-every: 0
growth-alarm: 0
log-steps: 1
eval-steps: 0
eval-batches: 0
save-steps: 0
save-total-limit: 0
save: true
save-best: false
YAML
cat > answers.yaml <<'YAML'
seed: 42
precision: bf16
max-tokens: 32
temperature: 0
top-k: 0
top-p: 1
min-p: 0
repetition-penalty: 1
ignore-eos: false
n: 1
logprobs: true
slots: 8
context: 128
prefill-chunk: 64
kv-cache: auto
invariant: false
template: none
YAML
cat > reason.yaml <<'YAML'
seed: 42
precision: bf16
dataset: arithmetic
num-examples: 12
start-from: 0
shuffle: true
slots: 12
context: 1024
prefill-chunk: 256
kv-cache: auto
invariant: false
template: none
max-iterations: 1
threshold: 0.8
temperature: 1.6
top-k: 0
top-p: 1
min-p: 0
repetition-penalty: 1
max-tokens: 120
judge-temperature: 0.3
judge-max-tokens: 150
YAML

cat > plan.yaml <<'YAML'
lora-rank: 16
lora-alpha: 32
lora-dropout: 0
lora-targets: all
precision: bf16
master: none
moments: bf16
adapter-dtype: bf16
optimizer: adamw
momentum: 0
clip: 1
pack: off
recompute: auto
offload: auto
update-in-backward: auto
quantize: none
quantize-head: none
head-chunk: 0
ffn-chunks: auto
attention: auto
kv-cache: auto
prefill-chunk: 0
max-tokens: 512
prompt-tokens: 512
YAML

# ---- one run, one line ----
hash_of() { sha256sum | cut -c1-16; }
field() {
    grep -oE "\"$1\": *(\"[^\"]*\"|[^,}]*)" "$2" 2>/dev/null | head -n 1 | sed 's/^"[a-z_]*": *//; s/"//g; s/ /_/g'
}
fields() { grep -o "\"$1\": *[^,}]*" "$2" 2>/dev/null | sed 's/.*: *//' | paste -sd, -; }
weights_of() {
    find -L "$1" -name '*.safetensors' ! -path '*checkpoint*' 2>/dev/null | LC_ALL=C sort | xargs -r cat | hash_of
}

keys="planned_bytes process_planned_bytes host_planned_bytes lower_bound_bytes tensors steps update_seconds"
keys="$keys first_loss loss eval_loss checksum tokens"
# line NAME COMMAND-WORDS... writes lines/NAME. Standard output goes to out-NAME.json; what else it leaves is NAME*.
line() {
    local name=$1 code values=""
    shift
    "$snug" "$@" > "out-$name.json" 2> "err-$name.txt" < /dev/null
    code=$?
    for key in $keys; do
        value=$(field "$key" "out-$name.json")
        [ -n "$value" ] && values="$values $key=$value"
    done
    [ -f "$name/metrics.jsonl" ] &&
        values="$values losses=$(fields loss "$name/metrics.jsonl") norms=$(fields grad_norm "$name/metrics.jsonl")"
    [ -d "$name" ] && values="$values weights=$(weights_of "$name")"
    [ -f "$name.jsonl" ] && values="$values answers=$(hash_of < "$name.jsonl")"
    case $name in fitted*) values="$values chosen=$(field plan "out-$name.json")" ;; esac
    case $1 in plan) values="$values json=$(sed -E 's/"(plan_ms|process_peak_bytes)": *[0-9.e+-]+,?//g' \
        "out-$name.json" | hash_of)" ;; esac
    [ -f "$name.json" ] && values="$values records=$(sed -E 's/"timestamp": *"[^"]*",?//g' "$name.json" | hash_of)"
    echo "$name flags=$(echo "$*" | hash_of) exit=$code$values" > "lines/$name"
    [ $code -eq 0 ] || [ $code -eq 3 ] || { echo "same_runs: $name: exit $code" >&2; tail -n 3 "err-$name.txt" >&2; }
}

jobs_at_once=${JOBS:-2}
at_once() { while [ "$(jobs -rp | wc -l)" -ge "$jobs_at_once" ]; do wait -n; done; "$@" & }
train() { # NAME MODEL FLAGS...
    local name=$1 model=$2
    shift 2
    at_once line "$name" train --config machine.yaml --config job.yaml --model "$model" --data rows.jsonl \
        --out "$name" --mode full "$@" # a flag: what the files say of adapters gives way to it
}
evaluate() {
    local name=$1 model=$2
    shift 2
    at_once line "$name" eval --config machine.yaml --model "$model" --data rows.jsonl --seq 64 --micro-batch 2 \
        --precision bf16 --pack off --score all --template none --head-chunk 128 --ffn-chunks 1 --attention own \
        --eval-batches 0 --json "$@"
}
generate() {
    local name=$1 model=$2
    shift 2
    at_once line "$name" generate --config machine.yaml --config answers.yaml --model "$model" --prompts prompts.jsonl \
        --out "$name.jsonl" --json "$@"
}
reason() { # NAME FLAGS...
    local name=$1
    shift
    at_once line "$name" reason --config machine.yaml --config reason.yaml --model tally --out "$name.json" --json "$@"
}
plan() {
    local name=$1 model=$2
    shift 2
    at_once line "$name" plan --config plan.yaml --model "$model" --json --mode full "$@"
}
make_model() { # NAME PRESET FLAGS...
    local name=$1 preset=$2
    shift 2
    at_once line "$name" init --model "$preset" --out "$name" --tokenizer words --seed 5 --dtype bf16 --threads 1 \
        --set hidden_size=64 --set num_hidden_layers=4 --set num_attention_heads=4 --set num_key_value_heads=2 \
        --set head_dim=16 --set intermediate_size=112 --set vocab_size=512 --set max_position_embeddings=256 "$@"
}

# ---- rows, prompts and models ----
"$root/tools/demo_corpus.sh" 60 7 > rows.jsonl
sed 's/"prompt"/"text"/; s/,"completion".*/}/' rows.jsonl | head -n 11 > prompts.jsonl
make_model tied qwen2.5-0.5b
make_model untied qwen2.5-0.5b --set tie_word_embeddings=false
make_model normed qwen3-0.6b
make_model scaled llama-3.2-1b
make_model mistral mistral-7b-v0.3
make_model half qwen2.5-0.5b --dtype fp16
make_model single qwen2.5-0.5b --dtype fp32
wait

# ---- training ----
train full tied
train full-threads tied --threads 3
train full-untied untied
train full-normed normed
train full-scaled scaled
train full-mistral mistral
train full-fp32 single --precision fp32 --moments fp32
train full-fp16 half --precision fp16 --master fp32 --moments fp32
train full-fp16-overflow half --precision fp16 --master fp32 --moments fp32 --loss-scale 4294967296
train full-master tied --master fp32 --moments fp32
train full-8bit tied --moments 8bit
train full-8bit-master untied --moments 8bit --master fp32
train full-random tied --init random
train sgd tied --optimizer sgd
train sgd-momentum single --precision fp32 --optimizer sgd --momentum 0.9 --moments fp32
train clip-off tied --clip 0
train in-backward tied --clip 0 --accum 1 --update-in-backward on
train in-backward-untied untied --clip 0 --accum 1 --update-in-backward on --recompute block --moments 8bit
train lr-mult tied --lr-mult embed_tokens=0.1,norm=0
train cosine tied --schedule cosine --warmup-steps 2 --min-lr 1e-4 --steps 6
train linear tied --schedule linear --warmup-ratio 0.5 --steps 6
for level in norm ffn block twice; do train "recompute-$level" tied --recompute "$level"; done
for level in norm ffn block twice; do train "normed-$level" normed --recompute "$level"; done
for level in norm block twice; do train "lora-$level" normed --mode lora --recompute "$level"; done
train recompute-mixed tied --recompute block:0-1,norm:2,ffn:3
train recompute-mixed-lora untied --mode lora --recompute twice:1-2,norm:3
train head-whole tied --head-chunk 4096
train head-chunk untied --micro-batch 4 --accum 1 --head-chunk 128
train ffn-chunks tied --micro-batch 4 --accum 1 --ffn-chunks 3 --recompute block
train ffn-chunks-lora normed --mode lora --micro-batch 4 --accum 1 --ffn-chunks 2 --recompute ffn
train ffn-chunks-dropout normed --mode lora --lora-dropout 0.1 --micro-batch 4 --accum 1 --ffn-chunks 2 \
    --recompute block
train ffn-chunks-one tied --mode lora --lora-targets gate --micro-batch 4 --accum 1 --ffn-chunks 3 --recompute ffn
train ffn-chunks-kept tied --micro-batch 4 --accum 1 --ffn-chunks 2
train ffn-chunks-nf4 untied --mode lora --quantize nf4 --micro-batch 4 --accum 1 --ffn-chunks 4 --recompute twice
train pack-on tied --pack on
train pack-lora normed --mode lora --pack on --recompute block
train batch-1x4 tied --micro-batch 1 --accum 4
train batch-4x1 tied --micro-batch 4 --accum 1
train batch-filled tied --micro-batch 3 --global-batch 4
train long tied --seq 192 --pack on --micro-batch 1 --recompute block
train evaluated tied --val-split 0.2 --eval-steps 2 --steps 4 --save-best
train lora tied --mode lora
train lora-threads tied --mode lora --threads 2
train lora-untied untied --mode lora --lora-rank 8
train lora-some tied --mode lora --lora-targets q,v,down
train lora-one tied --mode lora --lora-targets gate
train lora-dropout normed --mode lora --lora-dropout 0.2
train lora-dropout-block tied --mode lora --lora-dropout 0.1 --recompute block --micro-batch 1 --accum 4
train lora-fp32 single --mode lora --precision fp32 --adapter-dtype fp32 --moments fp32
train lora-adapter-fp32 tied --mode lora --adapter-dtype fp32 --moments fp32
train lora-fp16 half --mode lora --precision fp16 --adapter-dtype fp32 --master none --moments fp32
train lora-8bit tied --mode lora --moments 8bit
train qlora-int8 tied --mode lora --quantize int8
train qlora-nf4 untied --mode lora --quantize nf4
train qlora-nf4-block normed --mode lora --quantize nf4 --recompute block --pack on
train qlora-nf4-dropout tied --mode lora --quantize nf4 --lora-dropout 0.1 --recompute ffn
train qlora-head untied --mode lora --quantize nf4 --quantize-head int8
train qlora-head-tied tied --mode lora --quantize int8 --quantize-head int8

# ---- offload, to pinned memory and to disk ----
train offload-weights tied --offload weights
train offload-some tied --offload weights=2,moments=3,gradients=1
train offload-moments untied --offload moments --moments 8bit
train offload-gradients normed --offload gradients
train offload-inputs tied --offload inputs --recompute block
train offload-inputs-some normed --offload inputs=2 --recompute twice
train offload-all untied --offload weights,moments,gradients,inputs --recompute block --master fp32 --moments fp32
train offload-lora tied --mode lora --offload weights
train offload-nf4 normed --mode lora --quantize nf4 --offload weights=3 --recompute block
train offload-in-backward tied --clip 0 --accum 1 --update-in-backward on --offload weights,moments --recompute ffn
mkdir disk/weights disk/moments disk/gradients disk/mixed disk/lora disk/nf4
for kind in weights moments gradients; do
    train "disk-$kind" tied --offload "$kind=disk" --offload-dir "disk/$kind"
done
train disk-mixed untied --offload weights=2,weights=disk:1,moments=disk:3,gradients=2 --offload-dir disk/mixed \
    --recompute block
train disk-lora normed --mode lora --offload weights=disk --offload-dir disk/lora
train disk-nf4 tied --mode lora --quantize nf4 --offload weights=disk:2 --offload-dir disk/nf4 --recompute twice

# ---- chosen by the planner from a budget ----
free="--seq 192 --pack on --micro-batch 4 --accum 1 --recompute auto --head-chunk 0 --ffn-chunks auto"
train fitted tied $free --budget 15800KiB
train fitted-lora normed --mode lora $free --budget 14600KiB
train refused tied $free --budget 13MiB

# ---- evaluation and answers ----
evaluate eval tied
evaluate eval-packed normed --pack on --ffn-chunks 2
evaluate eval-int8 untied --quantize int8 --quantize-head int8
evaluate eval-nf4 scaled --quantize nf4 --offload weights=2
generate answers tally
generate answers-threads tally --threads 2
generate answers-tied tied --ignore-eos
generate answers-normed normed --ignore-eos --prefill-chunk 16
generate answers-scaled scaled --ignore-eos --slots 3
generate answers-fp32 single --precision fp32
generate answers-int8 tally --quantize int8
generate answers-int8-head tally --quantize int8 --quantize-head int8
generate answers-nf4 tally --quantize nf4
generate answers-nf4-many untied --quantize nf4 --slots 11 --prefill-chunk 256 --ignore-eos
generate answers-cache tally --kv-cache int8
generate answers-cache-nf4 normed --kv-cache int8 --quantize nf4 --ignore-eos
generate answers-samples tally --n 3 --temperature 0.8 --top-p 0.9 --slots 5
generate answers-top-k tally --n 2 --temperature 1.3 --top-k 20 --min-p 0.01 --repetition-penalty 1.2
generate answers-invariant tally --invariant --n 2 --temperature 1
generate answers-offload tied --offload weights=2 --ignore-eos
generate answers-offload-nf4 normed --offload weights --quantize nf4 --ignore-eos
reason reasoned
reason reasoned-int8 --quantize int8 --num-examples 6
reason reasoned-invariant --invariant --num-examples 4
wait

# ---- what begins from those ----
train resumed tied --steps 2 --save-steps 2
train resumed-lora tied --mode lora --lora-dropout 0.1 --steps 2 --save-steps 2
wait
rm -rf resumed-to resumed-lora-to
cp -r resumed resumed-to
cp -r resumed-lora resumed-lora-to
train resumed-to tied --steps 4 --resume --micro-batch 1 --accum 4 --recompute block
train resumed-lora-to tied --mode lora --lora-dropout 0.1 --steps 4 --resume --recompute norm
train from-adapter tied --mode lora --adapter lora/adapter
evaluate eval-adapter tied --adapter lora/adapter
generate answers-adapter tied --adapter lora/adapter --ignore-eos
at_once line merged merge --model tied --adapter lora/adapter --out merged --threads 1
at_once line coded-int8 quantize --model untied --quantize int8 --out coded-int8
at_once line coded-nf4 quantize --model tied --quantize nf4 --out coded-nf4
wait
evaluate eval-merged merged
generate answers-coded coded-nf4 --quantize nf4 --ignore-eos
train qlora-coded coded-nf4 --mode lora --quantize nf4

# ---- plans ----
plan plan-full qwen2.5-7b --mode full --seq 1024 --micro-batch 4 --accum 1 --gpu h200 --recompute auto --offload auto
plan plan-full-24 qwen2.5-7b --mode full --seq 2048 --global-batch 4 --gpu rtx-4090 --budget 23GiB
plan plan-lora-12 qwen2.5-7b --mode lora --lora-rank 16 --seq 2048 --global-batch 4 --gpu rtx-3060 --budget 11GiB
plan plan-lora-h100 qwen3-8b --mode lora --lora-rank 64 --seq 4096 --global-batch 16 --gpu h100 --budget 60GiB
plan plan-qlora-6 qwen2.5-7b --mode lora --quantize nf4 --seq 2048 --global-batch 4 --gpu rtx-4060-ti-8 --budget 6GiB
plan plan-qlora-70 llama-3.1-70b --mode lora --quantize nf4 --seq 1024 --global-batch 4 --gpu a100-80 --budget 60GiB
plan plan-long qwen2.5-1.5b --mode full --seq 32768 --micro-batch 1 --gpu a100-40 --budget 38GiB
plan plan-disk llama-3.1-8b --mode full --seq 1024 --global-batch 2 --gpu rtx-4090 --budget 20GiB \
    --max-memory host=24GiB,disk=200GiB --offload-dir disk
plan plan-allow llama-3.1-8b --mode full --seq 4096 --global-batch 8 --gpu t4 --budget 14GiB --allow all
plan plan-refused qwen2.5-72b --mode full --seq 2048 --global-batch 4 --gpu t4 --budget 4GiB
plan plan-cards qwen2.5-7b --mode lora --seq 1024 --global-batch 16 --gpu rtx-4090 --cards --ladder --batches
plan plan-cpu qwen2.5-0.5b --mode full --seq 512 --micro-batch 1 --accum 4 --device cpu --threads 2 --budget 8GiB
plan plan-answers qwen2.5-7b --task generate --slots 16 --context 4096 --gpu rtx-4090 --budget 23GiB
plan plan-answers-nf4 llama-3.1-8b --task generate --quantize nf4 --quantize-head int8 --kv-cache int8 --slots 64 \
    --context 8192 --gpu h200 --budget 40GiB
plan plan-answers-8 qwen3-8b --task generate --quantize int8 --slots 32 --context 2048 --gpu rtx-4060-ti-8 --budget 7GiB
plan plan-grpo qwen2.5-1.5b --task grpo --mode lora --group 8 --prompt-tokens 256 --max-tokens 512 --gpu rtx-4090 \
    --budget 23GiB
plan plan-grpo-judge qwen2.5-7b --task grpo --mode lora --group 8 --evaluator qwen2.5-7b:nf4 --reference same \
    --gpu h100 --budget 70GiB
wait

# ---- the lines, or what differs ----
(cd lines && LC_ALL=C sort -- *) > found
runs=$(wc -l < found)
if [ "$what" = record ]; then
    cp found "$file" && echo "$runs runs recorded in $file"
    exit
fi
if diff <(cat "$file") found > differences; then
    echo "$runs runs, none differs"
    exit 0
fi
grep '^[<>]' differences | sed 's/^</-/; s/^>/+/'
exit 1
