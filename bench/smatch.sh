#!/usr/bin/env bash
# smatch.sh [PAIRS] [SEED] - scores PAIRS (2000) drawn pairs of graphs with `snug smatch`, and with the Python package
# smatch where PYTHON names an interpreter that has it: processor seconds of the whole processes, one line into
# bench/results/smatch.jsonl. snug does more in its time: it proves its mappings, scores five variants and resamples.
set -eu
cd "$(dirname "$0")/.."
pairs=${1:-2000} seed=${2:-1} python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" - "$work" "$pairs" "$seed" <<'PY'
import random, sys
sys.path.insert(0, "tools")
import amr_lib
folder, pairs, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rng = random.Random(seed)
with open(f"{folder}/gold.amr", "w") as gold, open(f"{folder}/pred.amr", "w") as predicted:
    for _ in range(pairs):
        size = min(60, 1 + int(rng.gammavariate(2, 8)))  # about 16 nodes, as graphs of news sentences have
        g = amr_lib.draw_graph(rng, size, blanks=False)
        p = amr_lib.changed(rng, g, rng.randrange(0, 1 + len(g.nodes)))
        gold.write(amr_lib.write(rng, g, tidy=True) + "\n\n")
        predicted.write(amr_lib.write(rng, p, tidy=True) + "\n\n")
PY
TIMEFORMAT='%U %S'
seconds() { # of the processor, user and system
    { time "$@" >"$work/out" 2>"$work/err"; } 2>"$work/time" || { cat "$work/err" >&2; exit 1; }
    tail -n 1 "$work/time" | awk '{ printf "%.3f", $1 + $2 }'
}
source bench/record.sh
ours=$(seconds "$root/snug" smatch "$work/gold.amr" "$work/pred.amr" --json)
f1=$(number f1 <"$work/out") proved=$(number proved <"$work/out")
climb=$(seconds "$root/snug" smatch "$work/gold.amr" "$work/pred.amr" --json --search climb)
climb_f1=$(number f1 <"$work/out")
peer=null peer_f1=null ratio=null
if "$python" -c 'import smatch' 2>/dev/null; then
    peer=$(seconds "$python" -m smatch -f "$work/pred.amr" "$work/gold.amr" --significant 6)
    peer_f1=$(sed -n 's/^F-score: //p' "$work/out")
    ratio=$(awk -v a="$peer" -v b="$ours" 'BEGIN { printf "%.1f", a / b }')
fi
version=$("$python" -m pip show smatch 2>/dev/null | sed -n 's/^Version: //p')
record smatch smatch "\"pairs\":$pairs" "\"seed\":$seed" "\"proved\":$proved" "\"f1\":$f1" "\"cpu_s\":$ours" \
    "\"climb_cpu_s\":$climb" "\"climb_f1\":$climb_f1" "\"peer\":\"smatch $version\"" "\"peer_f1\":$peer_f1" \
    "\"peer_cpu_s\":$peer" "\"ratio\":$ratio"
