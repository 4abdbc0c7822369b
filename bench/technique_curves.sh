#!/usr/bin/env bash
# technique_curves.sh [ASSETS] - loss curves of a real small model (stories260K learning Shakespeare) with the techniques that
# change the mathematics: 8-bit moments, int8 and nf4 weights under adapters. One JSON line each, replacing
# bench/results/technique-curves.jsonl, and the curves as docs/images/technique-curves.svg.
# ASSETS holds stories260K/ and text/tinyshakespeare.txt.
set -eu
cd "$(dirname "$0")/.."
assets=${1:-../shared/assets}
steps=60
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
results=bench/results/technique-curves.jsonl
commit=$(git rev-parse --short HEAD)
mkdir -p bench/results docs/images
./snug convert --from llama2c "$assets/stories260K/stories260K.bin" --tokenizer "$assets/stories260K/tok512.bin" --out "$work/model" 2>"$work/log"
awk '{ gsub(/\\/, "\\\\"); gsub(/"/, "\\\""); gsub(/\t/, " "); text = text $0 "\\n" }
     length(text) > 900 { printf "{\"text\":\"%s\"}\n", text; text = "" }' "$assets/text/tinyshakespeare.txt" | head -n 600 > "$work/rows.jsonl"

: > "$results"
one() { # name, beside which, flags
    local name=$1 beside=$2 result
    shift 2
    result=$(./snug train --model "$work/model" --data "$work/rows.jsonl" --out "$work/$name" --steps $steps --log-steps 1 --seq 96 \
        --micro-batch 4 --global-batch 8 --warmup-steps 5 --val-split 0.1 --no-save "$@" 2>>"$work/log" | tail -n 1)
    sed -nE 's/^\{"kind": "train", "step": ([0-9]+),.* "loss": ([0-9.e+-]+),.*/\1 \2/p' "$work/$name/metrics.jsonl" > "$work/$name.curve"
    printf '{"bench":"technique-curves","technique":"%s","beside":"%s","flags":"%s","steps":%d,"first_loss":%s,"last_loss":%s,"eval_loss":%s,"mean_of_last_10":%s,"commit":"%s"}\n' \
        "$name" "$beside" "$*" $steps "$(head -n 1 "$work/$name.curve" | cut -d' ' -f2)" "$(tail -n 1 "$work/$name.curve" | cut -d' ' -f2)" \
        "$(sed -E 's/.*"eval_loss":([0-9.e+-]+).*/\1/' <<<"$result")" "$(tail -n 10 "$work/$name.curve" | awk '{ s += $2 } END { printf "%.6f", s / NR }')" \
        "$commit" | tee -a "$results"
}
full="--mode full --precision fp32 --lr 2e-3" lora="--mode lora --precision fp32 --lora-rank 16 --lr 1e-2"
one full-fp32-moments full-fp32-moments $full --moments fp32
one full-bf16-moments full-fp32-moments $full --moments bf16
one full-8bit-moments full-fp32-moments $full --moments 8bit
one lora-fp32 lora-fp32 $lora
one lora-int8 lora-fp32 $lora --quantize int8
one lora-nf4 lora-fp32 $lora --quantize nf4

cd "$work"
awk -v steps=$steps -v width=640 -v height=360 '
    FNR == 1 { n++; name[n] = FILENAME; sub(/\.curve$/, "", name[n]) }
    { at[n, FNR] = $1; loss[n, FNR] = $2; rows[n] = FNR; if (!high || $2 > high) high = $2; if (!low || $2 < low) low = $2 }
    function x(step) { return 50 + (width - 70) * (step - 1) / (steps - 1) }
    function y(value) { return 20 + (height - 60) * (high - value) / (high - low) }
    END {
        split("#1b6ca8 #5aa9e6 #0b3c5d #d1495b #edae49 #7a1f2b", colour, " ")
        printf "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"12\">\n", width, height
        printf "<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n", width, height
        for (k = 0; k <= 4; k++) {
            value = low + (high - low) * k / 4
            printf "<path d=\"M50 %.1fH%d\" stroke=\"#ddd\"/><text x=\"44\" y=\"%.1f\" text-anchor=\"end\">%.2f</text>\n", y(value), width - 20, y(value) + 4, value
        }
        for (k = 0; k <= 6; k++) {
            step = k ? steps * k / 6 : 1
            printf "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%d</text>\n", x(step), height - 22, step
        }
        printf "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">step; loss of stories260K on Shakespeare</text>\n", width / 2, height - 6
        for (i = 1; i <= n; i++) {
            printf "<path fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\" d=\"", colour[i]
            for (k = 1; k <= rows[i]; k++) printf "%s%.1f %.1f", k == 1 ? "M" : "L", x(at[i, k]), y(loss[i, k])
            printf "\"/>\n<text x=\"%d\" y=\"%d\" fill=\"%s\">%s</text>\n", width - 160, 28 + 16 * i, colour[i], name[i]
        }
        print "</svg>"
    }' full-fp32-moments.curve full-bf16-moments.curve full-8bit-moments.curve lora-fp32.curve lora-int8.curve lora-nf4.curve > curves.svg
cp curves.svg "$OLDPWD/docs/images/technique-curves.svg"
