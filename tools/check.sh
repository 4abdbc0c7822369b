#!/usr/bin/env bash
# check.sh BINARY... - runs the room checks, every test binary and every tests/*.sh; adds up what they count.
# CUDA=1: golden, sameness, generation and budget tests run on the GPU as well; where there is none they count as skipped.
set -u
cd "$(dirname "$0")/.."
passed=0 failed=0 skipped=0
count() { # the closing line 'N passed, N failed, N skipped' of one run
    local line; line=$(grep -E '^[0-9]+ passed, [0-9]+ failed(, [0-9]+ skipped)?$' "$1" | tail -n 1)
    if [ -z "$line" ]; then failed=$((failed + 1)); echo "FAILED $2 ended without a count"; return; fi
    set -- $line
    passed=$((passed + $1)) failed=$((failed + $3)) skipped=$((skipped + ${5:-0}))
}
log=$(mktemp); trap 'rm -f "$log"' EXIT
run() { # name, command...
    local name=$1; shift
    local began=$SECONDS
    echo "== $name"
    "$@" 2>&1 | tee "$log" | grep -vE '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$'
    local rc=${PIPESTATUS[0]}
    count "$log" "$name"
    if [ $rc -ne 0 ] && grep -qE ', 0 failed' "$log"; then failed=$((failed + 1)); echo "FAILED $name: exit $rc"; fi
    [ $((SECONDS - began)) -ge 20 ] && echo "   ($((SECONDS - began)) s)"
}
export XDG_CONFIG_HOME=/nonexistent # no machine file of the person who tests
run rooms tools/rooms.sh
for binary in "$@"; do # a job goes to a GPU where there is one: only the tests of it shall see it
    case $(basename "$binary") in
    test-cuda) run test-cuda "$binary" ;;
    *) CUDA_VISIBLE_DEVICES='' run "$(basename "$binary")" "$binary" ;;
    esac
done
on_gpu() { # binary, part of a test's name
    local name="$(basename "$1") on the GPU: $2"
    if nvidia-smi -L >/dev/null 2>&1; then
        SNUG_DEVICE=cuda run "$name" "$1" "$2"
    else
        skipped=$((skipped + 1)); echo "skipped $name: there is no GPU"
    fi
}
if [ "${CUDA:-0}" = 1 ]; then
    for binary in "$@"; do
        case $(basename "$binary") in
        test-golden) on_gpu "$binary" losses ;;
        test-same) for part in every_memory every_split resumed_equals fp16 overflow; do on_gpu "$binary" $part; done ;;
        test-gen) for part in greedy_ids stories260k prompt_alone more_prompts samples_share quantised_weights; do on_gpu "$binary" $part; done ;;
        test-budget) for part in planned_bytes too_small; do on_gpu "$binary" $part; done ;;
        esac
    done
fi
for script in tests/*.sh; do [ -e "$script" ] && run "$(basename "$script")" bash "$script"; done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
