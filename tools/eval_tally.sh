#!/usr/bin/env bash
# eval_tally.sh [MODEL [PROBLEMS [FLAGS...]]] - how well a model does on held-out arithmetic, as JSON lines: solved by
# number of steps, judged right or wrong, improved; by greedy answers. FLAGS go to snug generate (--device cuda).
# RECORD=1 keeps the lines under bench/results.
set -eu
cd "$(dirname "$0")/.."
model=${1:-models/tally} n=${2:-400} snug=${SNUG:-./snug}
[ $# -gt 2 ] && shift 2 || shift $#
work=$(mktemp -d "${TMPDIR:-/tmp}/snug-tally-XXXXXX")
trap 'rm -rf "$work"' EXIT
for role in solve judge improve; do
    $snug problems --n "$n" --roles $role --part held-out --seed "${SEED:-1}" --without-answers > "$work/$role.jsonl"
    $snug generate --model "$model" --prompts "$work/$role.jsonl" --out "$work/$role.answers" --max-tokens 200 "$@" \
        2>"$work/log" ||
        { cat "$work/log" >&2; exit 1; }
done

# The number behind a key of the id; the last boxed answer; the score called correctness.
cat > "$work/count.awk" <<'AWK'
function of_id(key,    s) { s = $0; if (!sub(".*\"" key "\":", "", s)) return ""; sub(/[,}].*/, "", s); return s }
function boxed(    s) { s = $0; if (!sub(/.*boxed[{]/, "", s)) return ""; sub(/[}].*/, "", s); return s }
function share(good, all) { return all ? sprintf("%.4f", good / all) : "null" }
{ steps = of_id("steps"); all++; of[steps]++ }
role == "judge" {
    score = $0
    said = sub(/.*correctness: /, "", score) ? score + 0 : -1
    right = of_id("right") == "true"
    total[right]++
    hit[right] += said >= 0 && (said >= 0.5) == right
    unread += said < 0
}
role != "judge" { ok = boxed() == of_id("answer"); good += ok; solved[steps] += ok }
END {
    if (role == "judge") {
        printf "\"problems\":%d,\"accuracy\":%s,", all, share(hit[0] + hit[1], all)
        printf "\"right_called_right\":%s,", share(hit[1], total[1])
        printf "\"spoiled_called_wrong\":%s,\"without_score\":%d", share(hit[0], total[0]), unread
    } else {
        printf "\"problems\":%d,\"accuracy\":%s,\"by_steps\":{", all, share(good, all)
        for (s = 1; s <= 4; s++) printf "%s\"%d\":%s", (s > 1 ? "," : ""), s, share(solved[s], of[s])
        printf "}"
    }
}
AWK
. bench/record.sh
command="tools/eval_tally.sh $model $n"
[ "${RECORD:-0}" = 1 ] || results=$work
for role in solve judge improve; do
    counts=$(awk -v role=$role -f "$work/count.awk" "$work/$role.answers")
    record tally tally "\"role\":\"$role\"" "\"part\":\"held-out\"" "\"seed\":${SEED:-1}" "$counts"
done
