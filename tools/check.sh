#!/usr/bin/env bash
# check.sh BINARY... - runs the room checks, every test binary and every tests/*.sh, one more at a time than there are
# cores, because many of them wait (JOBS=N: N), and adds up what they count: a line each, with the whole of what a
# failed one said (VERBOSE=1: of all).
#
# QUICK=1: slow tests are left to `make check-all`. DEBUG=1: only what the sanitizers can look at. CUDA=1: golden,
# sameness, generation and budget tests run on the GPU as well, one after the other.
set -u
cd "$(dirname "$0")/.."
began=$SECONDS jobs=${JOBS:-$(($(nproc 2>/dev/null || echo 2) + 1))}
passed=0 failed=0 skipped=0 left=0
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
export XDG_CONFIG_HOME=/nonexistent # no machine file of the person who tests
closing='^[0-9]+ passed, [0-9]+ failed(, [0-9]+ skipped)?(, [0-9]+ left)?$'

one() { # number, command...: what it said, how it ended, how long it took
    local at=$SECONDS log=$work/$1; shift
    "$@" > "$log" 2>&1
    echo "$? $((SECONDS - at))" > "$log.end"
}

report() { # number, name
    local log=$work/$1 name=$2 rc seconds line why word=ok counts
    read -r rc seconds < "$log.end"
    line=$(grep -E "$closing" "$log" | tail -n 1)
    why=$(sed -nE 's/^  ([0-9]+ skipped: .*)/\1/p' "$log" | paste -sd';' | sed 's/;/; /g')
    if [ -z "$line" ]; then
        line="0 passed, 1 failed, 0 skipped, 0 left" why="ended with exit code $rc and without a count"
    elif [ "$rc" -ne 0 ] && [[ $line == *" 0 failed"* ]]; then
        line=${line/ 0 failed/ 1 failed} why="exit code $rc"
    fi
    set -- ${line//[a-z,]/}
    passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + ${3:-0})) left=$((left + ${4:-0}))
    [ "$2" -eq 0 ] || word=FAILED
    counts="$1 passed"
    [ "$2" -eq 0 ] || counts+=", $2 failed"
    [ "${4:-0}" -eq 0 ] || counts+=", $4 left to make check-all"
    [ -n "$why" ] || [ "${3:-0}" -eq 0 ] || why="$3 skipped"
    [ "$seconds" -lt 5 ] || why+="${why:+ }($seconds s)"
    printf '%-6s %s: %s%s\n' $word "$name" "$counts" "${why:+; $why}"
    if [ "$2" -ne 0 ] || [ "${VERBOSE:-0}" != 0 ]; then grep -vE "$closing" "$log" | sed 's/^/    /'; fi
}

# ---- several at a time ----

names=() reported=0
report_ended() {
    local i
    for i in "${!names[@]}"; do
        [ -e "$work/$i.end" ] || continue
        report "$i" "${names[i]}"
        unset "names[i]"
        reported=$((reported + 1))
    done
}
started=0
start() { # name, command...
    local name=$1; shift
    while [ $((started - reported)) -ge "$jobs" ]; do wait -n; report_ended; done
    names[started]=$name
    one $started "$@" &
    started=$((started + 1))
}
finish() { while [ $reported -lt $started ]; do wait -n; report_ended; done; }
alone() { start "$@"; finish; }

# ---- what there is ----

# The longest begin first, so that none of them is alone at the end; the scripts are among them.
heavy="test-budget test-same test-unlearn test-faults test-death test-cli test-plan test-grpo test-data"
is_heavy() { case " $heavy " in *" ${1##*/} "*) return 0 ;; esac; return 1; }
start_binary() { # a job goes to a GPU where there is one: only the tests of it shall see it
    case ${1##*/} in
    test-cuda) ;;
    test-cuda-host) start "${1##*/}" env QUICK=1 "$1" ;; # all of its cases take many minutes: run it by hand
    *) start "${1##*/}" env CUDA_VISIBLE_DEVICES= "$1" ;;
    esac
}

for name in $heavy; do
    for binary in "$@"; do [ "${binary##*/}" != "$name" ] || start_binary "$binary"; done
done
scripts=$(echo tests/*.sh)
[ "${DEBUG:-0}" != 1 ] || scripts=tests/ranks.sh # the others are about the build and the documentation
for script in $scripts; do start "${script##*/}" timeout -k 10 1800 bash "$script"; done
[ "${DEBUG:-0}" = 1 ] || start rooms tools/rooms.sh
for binary in "$@"; do is_heavy "$binary" || start_binary "$binary"; done
finish

parts_on_gpu() { # binary
    case ${1##*/} in
    test-golden) echo losses ;;
    test-same) echo every_memory every_split resumed_equals fp16 overflow ;;
    test-gen) echo greedy_ids stories260k prompt_alone more_prompts samples_share quantised_weights ;;
    test-budget) echo planned_bytes too_small ;;
    esac
}
gpu=0; [ "${CUDA:-0}" != 1 ] || ! nvidia-smi -L >/dev/null 2>&1 || gpu=1
without_gpu=0
for binary in "$@"; do
    [ "${binary##*/}" != test-cuda ] || alone test-cuda "$binary"
    [ "${CUDA:-0}" = 1 ] || continue
    for part in $(parts_on_gpu "$binary"); do
        if [ $gpu = 1 ]; then alone "${binary##*/} on the GPU: $part" env SNUG_DEVICE=cuda "$binary" "$part"
        else without_gpu=$((without_gpu + 1)); fi
    done
done
if [ $without_gpu -gt 0 ]; then
    skipped=$((skipped + without_gpu))
    echo "ok     golden, sameness, generation and budget on the GPU: $without_gpu skipped: there is no GPU"
fi
counts="$passed passed, $failed failed, $skipped skipped"
[ $left -eq 0 ] || counts+=", $left left to make check-all"
echo "$counts ($((SECONDS - began)) s)"
[ "$failed" -eq 0 ]
