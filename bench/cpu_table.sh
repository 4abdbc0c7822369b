#!/usr/bin/env bash
# cpu_table.sh - writes the latest lines of bench/results/cpu-*.jsonl and growth.jsonl into docs/performance.md, between its marks.
set -eu
cd "$(dirname "$0")/.."
results=${RESULTS:-bench/results} page=${1:-docs/performance.md}
number() { grep -oE "\"$1\": ?[0-9.eE+-]+" | head -n 1 | sed -E 's/.*: ?//'; }
last() { [ -e "$results/$1.jsonl" ] && grep -F -- "$2" "$results/$1.jsonl" | tail -n 1 || true; } # file, text in the line
fmt() { awk -v f="$1" -v x="$2" 'BEGIN { printf f, x }'; }
div() { awk -v a="$1" -v b="$2" -v f="${3:-%.2f}" 'BEGIN { printf f, a / b }'; }
train() { # shape, words
    local line ours peer
    line=$(last cpu-train "\"shape\":\"$1\""); [ -n "$line" ] || return 0
    ours=${line##*\"snug\":} peer=${line##*\"peer\":\{}; peer=${peer%%\"snug\":*}
    echo "| training, $2, fp32 | $(fmt %.0f "$(number tokens_per_s <<< "$ours")") tok/s, $(div "$(number process_measured_bytes <<< "$ours")" 1e9 %.1f) GB |" \
        "PyTorch: $(fmt %.0f "$(number tokens_per_s <<< "$peer")") tok/s, $(div "$(number peak_rss_bytes <<< "$peer")" 1e9 %.1f) GB |" \
        "$(div "$(number tokens_per_s <<< "$ours")" "$(number tokens_per_s <<< "$peer")")x | \`bench/cpu_train.sh\` |"
}
generate() { # decode|prefill, tokens, dtype, words: tokens for each second of processor time, which a busy machine disturbs least
    local line ours peer other
    line=$(last cpu-generate "\"dtype\":\"$3\",\"threads\":1,"); [ -n "$line" ] || return 0
    ours=${line##*\"snug\":} peer=${line##*\"llama_cpp\":} peer=${peer%%\"snug\":*}
    other=$(sed -E 's/.*"llama_cpp_dtype":"([^"]*)".*/\1/' <<< "$line")
    ours=$(number "$1_cpu_s" <<< "$ours") peer=$(number "$1_cpu_s" <<< "$peer")
    [ -n "$peer" ] || return 0
    echo "| $4, SmolLM2-135M, $3, $(number threads <<< "$line") thread | $(div "$2" "$ours" %.0f) tokens a processor second |" \
        "llama.cpp, $other: $(div "$2" "$peer" %.0f) | $(div "$peer" "$ours")x | \`bench/cpu_generate.sh\` |"
}
tokenizer() { # "what", words
    local line ours peer
    line=$(last cpu-tokenizer '"bench"'); [ -n "$line" ] || return 0
    ours=${line##*\"snug\":} ours=${ours%%\"peer\":*} peer=${line##*\"peer\":}
    ours=$(tr '{' '\n' <<< "$ours" | grep -F "\"$1\"" | number MB_per_s) peer=$(tr '{' '\n' <<< "$peer" | grep -F "\"$1\"" | number MB_per_s)
    echo "| $2, one thread | $ours MB/s | HF tokenizers: $peer MB/s | $(div "$ours" "$peer" %.1f)x | \`bench/tokenizer_speed.sh\` |"
}
scan() { # kind
    local line; line=$(last cpu-scan "\"kind\":\"$1\""); [ -n "$line" ] || return 0
    echo "| scanning JSON lines, \`$1\` rows | $(fmt %.0f "$(number scan_MB_per_s <<< "$line")") MB/s | reading and finding line ends:" \
        "$(fmt %.0f "$(number read_MB_per_s <<< "$line")") MB/s | $(div "$(number scan_MB_per_s <<< "$line")" "$(number read_MB_per_s <<< "$line")") | \`bench/scan_speed.c\` |"
}
load() { # into, words
    local line; line=$(last cpu-load "\"into\":\"$1\""); [ -n "$line" ] || return 0
    echo "| loading safetensors, $2 | $(number load_MB_per_s <<< "$line") MB/s | reading the same files:" \
        "$(number read_MB_per_s <<< "$line") MB/s | $(fmt %.2f "$(number ratio <<< "$line")") | \`bench/load_speed.c\` |"
}
plan() { # model, "options", words
    local line; line=$(last cpu-plan "\"model\":\"$1\",\"options\":\"$2\""); [ -n "$line" ] || return 0
    echo "| planning $1, $3 | $(fmt %.1f "$(number plan_ms <<< "$line")") ms | $(number steps <<< "$line") steps, $(number tensors <<< "$line") tensors | |" \
        "\`snug plan --model $1 --seq 2048 $2\` |"
}
growth() { # picture, title, what it shows
    echo "![$2](images/growth-$1.svg)"
    echo
    echo "$3"
    grep -F "\"what\":\"$1\"" "$results/growth.jsonl" | tail -n 2 | while read -r line; do
        echo "$(sed -E 's/.*"series":"([^"]*)".*/\1/' <<< "$line"): exponent $(fmt %.2f "$(number exponent <<< "$line")") (upper half $(fmt %.2f "$(number at_end <<< "$line")"))."
    done
    echo
}
table() {
    echo "On $(sed -E 's/.*"machine":"([^"]*)".*/\1/' <<< "$(last cpu-plan '"bench"')"). Load average when measured:" \
        "$(last cpu-train '"bench"' | tr -d '"' | sed 's/.*load:/"load":/' | number load) (training), $(last cpu-generate '"threads":1,' | number load) (generation)," \
        "$(last cpu-scan '"bench"' | number load) (rows, files, plans), $(last growth '"bench"' | number load) (growth)."
    echo
    echo "| what | snug | floor or peer | ratio | command |"
    echo "|---|---|---|---|---|"
    train smollm2-135m "SmolLM2-135M, 1 x 512"
    train stories-15m "15M Llama, 4 x 256"
    for d in fp32 bf16 int8 nf4; do generate decode 64 $d "answering: 64 tokens, one by one"; done
    for d in fp32 bf16 int8 nf4; do generate prefill 512 $d "reading a prompt of 512 tokens"; done
    tokenizer "encode whole" "encoding a text"; tokenizer "encode lines" "encoding line by line"; tokenizer decode decoding
    scan text; scan messages
    load bf16 "bf16 as on file"; load fp32 "bf16 into fp32"
    for m in qwen2.5-0.5b qwen2.5-7b llama-3.1-70b; do
        plan $m "--mode full" "all weights"; plan $m "--mode lora --lora-rank 16 --recompute block" "adapters, block recompute"
    done
    echo
    echo "### As work grows"
    echo
    growth plan-time "Plan time against layers" "Planning follows the number of layers: lists are walked, and the place of a slot is
looked up in a tree over the steps. In instructions the exponent is 1.04 (adapters, 64 to 256 layers, valgrind); what the clock shows above
that is not more work."
    growth step-time "Step time against tokens" "A step has a fixed part (the update of all weights), then products that follow the tokens;
within a row attention adds its square."
    growth memory-length "Planned memory against length" "What training holds beside the weights follows the length of a row: attention keeps
no scores, the head a piece of the logits at a time. Short rows show the fixed part."
    growth memory-batch "Planned memory against batch" "More rows cost what they hold, no more."
}
table > "$page.table"
awk -v t="$page.table" '/<!-- cpu table -->/ { print; while ((getline line < t) > 0) print line; skip = 1 } /<!-- end of cpu table -->/ { skip = 0 } !skip' \
    "$page" > "$page.new"
mv "$page.new" "$page"
rm -f "$page.table"
