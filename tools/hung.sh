#!/usr/bin/env bash
# hung.sh PID - shows what the processes below PID are doing and ends them: for a test that does not end. The stacks of
# their threads are shown where gdb is installed.
set -u
below() { # PID: its descendants, the youngest first
    local child
    for child in $(cat "/proc/$1/task/"*/children 2>/dev/null); do
        [ "$child" -ne $$ ] || continue
        below "$child"
        echo "$child"
    done
}
for pid in $(below "$1"); do
    echo "  $pid ($(sed -n 's/^State:\t//p' "/proc/$pid/status"), waits in $(cat "/proc/$pid/wchan"):" \
         "$(tr '\0' ' ' < "/proc/$pid/cmdline" | cut -c 1-400))"
    ! command -v gdb >/dev/null ||
        timeout 60 gdb -p "$pid" -batch -ex 'thread apply all backtrace 16' 2>/dev/null | grep -E '^(#|Thread)' |
        sed 's/^/    /'
    kill -9 "$pid"
done 2>/dev/null
