#!/usr/bin/env bash
# run.sh SECONDS BINARY... - runs each target that long, two at a time; one line a target; fails on any finding.
#
# What libFuzzer finds new is kept in build/fuzz/corpus for the next run. Limits of one input: 25 s, 2 GB of memory in
# all, 300 MB for one allocation; the tight bound, a small multiple of the input's size, is each target's own (fuzz.h).
set -u
cd "$(dirname "$0")/.."
time=$1; shift
root=$PWD/build/fuzz
TMPDIR=$(mktemp -d -p /dev/shm snug-fuzz-XXXXXX 2>/dev/null || mktemp -d); export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT

one() { # binary
    local what=${1##*/fuzz-} log new words=() line runs cover
    log=$root/$what.log new=$root/corpus/$what
    mkdir -p "$new"
    [ -e "fuzz/$what.dict" ] && words=(-dict="fuzz/$what.dict")
    "$1" -max_total_time="$time" -max_len=8192 -timeout=25 -rss_limit_mb=2048 -malloc_limit_mb=300 \
        -print_final_stats=1 -artifact_prefix="$root/$what-" "${words[@]}" "$new" "fuzz/corpus/$what" >"$log" 2>&1
    local rc=$?
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    cover=$(grep -oE 'cov: [0-9]+ ft: [0-9]+' "$log" | tail -n 1)
    line="$what: ${runs:-?} executions, ${cover:-no coverage}, $(ls "$new" | wc -l) new files"
    if [ $rc -eq 0 ]; then echo "ok     fuzz $line"; return 0; fi
    echo "FAILED fuzz $line (exit $rc; $log)"
    grep -E 'ERROR|runtime error|bug at|SUMMARY|Test unit written' "$log" | head -n 8
    echo "  keep the input that was found as fuzz/corpus/$what/NAME"
    return 1
}
export -f one
export time root
printf '%s\n' "$@" | xargs -P 2 -I{} bash -c 'one {}'
