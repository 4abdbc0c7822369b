#!/usr/bin/env bash
# tsan.sh FOLDER - runs the threaded parts of a ThreadSanitizer build; a report ends the program that gave it.
set -eu
cd "$(dirname "$0")/.."
export TSAN_OPTIONS="halt_on_error=1 exitcode=66 second_deadlock_stack=1"
# A kernel that places memory at more random places than the sanitizer knows ends every program at its start.
calm=(); "$1/test-base" --list >/dev/null 2>&1 || calm=(setarch -R)
"${calm[@]}" "$1/test-base"
"${calm[@]}" "$1/test-data" threads
tools/small_run.sh "${calm[@]}" "$1/snug"
echo "tsan: no report"
