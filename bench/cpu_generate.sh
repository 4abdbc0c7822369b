#!/usr/bin/env bash
# cpu_generate.sh [PYTHON [LLAMA_PYTHON]] - one answer at SmolLM2-135M's shape, random weights, against others on the
# same weights and threads, one after the other: prefill of 512 tokens and decode of 64 in fp32, bf16, int8 and nf4;
# JSON lines into bench/results/cpu-generate.jsonl. PYTHON has torch and transformers (fp32 and bf16 only; "-": none),
# LLAMA_PYTHON has llama-cpp-python, gguf and numpy; int8 meets its q8_0, nf4 its q4_0. The best of RUNS (3), by turns.
# cpu_s: processor seconds, which say more than the clock on a busy machine.
set -eu
cd "$(dirname "$0")/.."
. bench/record.sh
python=${1:-python3} llama=${2:-} threads=${THREADS:-$(nproc)} runs=${RUNS:-3}
command="THREADS=$threads RUNS=$runs bench/cpu_generate.sh"
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
prompt() { bench/draw_rows.sh 1 "$1" 30000; }
cpu() { # what the command after it takes of the processor, in seconds
    local TIMEFORMAT=%U
    { time "$@" 2>/dev/null >"$work/out"; } 2>&1
}
ours() { # folder quantised prompt-tokens new-tokens
    prompt "$3" > "$work/p.jsonl"
    cpu ./snug generate --model "$work/$1" --quantize "$2" --prompts "$work/p.jsonl" --max-tokens "$4" --ignore-eos \
        --threads "$threads" --json
}
run_ours() { # folder quantised: a JSON object
    local start decode prefill decode_s prefill_s
    start=$(ours "$1" "$2" 8 1)
    decode=$(ours "$1" "$2" 8 65); decode_s=$(tail -n 1 "$work/out" | number decode_seconds)
    prefill=$(ours "$1" "$2" 512 1); prefill_s=$(tail -n 1 "$work/out" | number prefill_seconds)
    awk -v d="$decode_s" -v p="$prefill_s" -v a="$start" -v b="$decode" -v c="$prefill" 'BEGIN {
        printf "{\"decode_tokens_per_s\":%.4g,\"prefill_tokens_per_s\":%.4g,", 64 / d, 512 / p
        printf "\"decode_cpu_s\":%.4g,\"prefill_cpu_s\":%.4g}", b - a, c - a }'
}
best() { # the best of the JSON objects on standard input, number by number
    awk '{ gsub(/[{} ]/, ""); n = split($0, field, ",")
           for (i = 1; i <= n; i++) {
               split(field[i], kv, ":"); key = kv[1]; x = kv[2] + 0
               if (!(key in v)) { name[++m] = key; v[key] = x }
               if (key ~ /cpu_s/ ? x < v[key] : x > v[key]) v[key] = x } }
         END { if (!m) { print "null"; exit }
               for (i = 1; i <= m; i++) printf("%s%s:%.4g", (i > 1 ? "," : "{"), name[i], v[name[i]])
               print "}" }'
}
for dtype in fp32 bf16 int8 nf4; do
    folder=$dtype quantise=none other=$dtype made=$dtype
    case $dtype in int8) quantise=int8 other=q8_0 made=bf16 ;; nf4) quantise=nf4 other=q4_0 made=bf16 ;; esac
    if [ $quantise = none ]; then ./snug init --model smollm2-135m --out "$work/$dtype" --dtype $dtype >/dev/null 2>&1
    else ./snug quantize --model "$work/bf16" --out "$work/$dtype" --quantize $quantise >/dev/null 2>&1; fi
    : > "$work/ours"; : > "$work/torch"; : > "$work/llama"
    for _ in $(seq "$runs"); do
        { run_ours $folder $quantise; echo; } >> "$work/ours"
        if [ "$python" != - ] && [ $quantise = none ]; then
            $python bench/cpu_generate_peer.py --model "$work/$made" --dtype $dtype \
                --threads "$threads" 2>/dev/null | tail -n 1 >> "$work/torch" || true
        fi
        if [ -n "$llama" ]; then
            $llama bench/cpu_generate_llama.py --model "$work/$made" --dtype $other \
                --threads "$threads" 2>/dev/null | tail -n 1 >> "$work/llama"
        fi
    done
    rm -f "$work"/*/*.gguf
    record cpu-generate cpu-generate '"shape":"smollm2-135m"' "\"dtype\":\"$dtype\"" "\"threads\":$threads" \
        "\"runs\":$runs" \
        "\"transformers\":$(best < "$work/torch")" "\"llama_cpp_dtype\":\"$other\"" \
        "\"llama_cpp\":$(best < "$work/llama")" "\"snug\":$(best < "$work/ours")"
done
