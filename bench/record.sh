# record.sh - sourced by the benches: what every result says beside its numbers, and where it is kept.
#
#   record FILE NAME FIELDS...    one JSON line into bench/results/FILE.jsonl (and to the screen); FIELDS: "key":value
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
results=${RESULTS:-$root/bench/results}
mkdir -p "$results"
# as snug sees it: the processor, its threads, the family of kernels that products run on
machine=$("$root/snug" plan --model stories-15m --json 2>/dev/null | sed -E 's/.*"machine":"([^"]*)".*/\1/')
commit=$(git -C "$root" rev-parse --short HEAD)$(git -C "$root" diff --quiet HEAD -- src || echo +)
record() {
    local file=$1 name=$2 fields
    shift 2
    fields=$(IFS=,; echo "$*")
    printf '{"bench":"%s","machine":"%s","load":%s,"commit":"%s","command":"%s",%s}\n' "$name" "$machine" \
        "$(cut -d' ' -f1 /proc/loadavg)" "$commit" "${command:-bench/$(basename "$0")}" "$fields" |
        tee -a "$results/$file.jsonl"
}
# number KEY: the first number behind "KEY": on standard input.
number() { grep -oE "\"$1\": ?[0-9.eE+-]+" | head -n 1 | sed -E 's/.*: ?//'; }
