#!/usr/bin/env bash
# budget_curve.sh RESULTS.jsonl [COMMIT] - the lines of bench/gpu_budget.sh (of one commit; without it the last of
# each job and budget) as a table for docs/performance.md and as docs/images/budget-curve.svg: tokens/s against the
# budget, measured and predicted.
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
grep "${2:-}" "$1" | awk '
    function field(name,    s) { 
        s = $0; if (!sub(".*\"" name "\": *\"?", "", s)) return ""; sub(/[",}].*/, "", s); return s }
    function text(name,    s) { s = $0; if (!sub(".*\"" name "\": *\"", "", s)) return ""; sub(/".*/, "", s); return s }
    /gpu-budget/ { b = field("budget") + 0; last[field("mode"), b] = field("mode") " " b " " field("tokens_per_s") " " \
        field("predicted_tokens_per_s") " " field("process_measured_bytes") / 1073741824 " " field("steps") " " \
        text("plan") }
    END { for (key in last) print last[key] }' | sort -k1,1 -k2,2n > "$work/points"
echo "| job | budget | taken, GiB | tokens/s | predicted | off by | steps | chosen |"
echo "|---|---|---|---|---|---|---|---|"
awk '{ plan = ""; for (i = 7; i <= NF; i++) plan = plan (i > 7 ? " " : "") $i
    printf "| %s | %s GiB | %.2f | %.0f | %.0f | %+.0f %% | %d | `%s` |\n", $1, $2, $5, $3, $4, 100 * ($4 / $3 - 1), \
        $6, plan }' "$work/points"
{
    echo "title Qwen2.5-7B, 4 rows of 2048 tokens an update, one H200"; echo "x --budget, GiB"; echo "y tokens/s"
    echo "log x"
    echo "marks 5 6 8 12 16 24 32 48 80 135"
    for mode in full lora qlora; do
        echo "series $mode, measured"; awk -v m=$mode '$1 == m { print $2, $3 }' "$work/points"
        echo "like $mode, predicted"; awk -v m=$mode '$1 == m { print $2, $4 }' "$work/points"
    done
} > "$work/plot.txt"
${CC:-cc} -std=c11 -O2 -Wall -o "$work/plot" bench/plot.c -lm
"$work/plot" "${IMAGES:-docs/images}/budget-curve.svg" < "$work/plot.txt" > /dev/null
