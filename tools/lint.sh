#!/usr/bin/env bash
# lint.sh FLAGS FILE... - clang-tidy and cppcheck over the sources, as many files at a time as there are cores; fails
# on any finding.
set -u
cd "$(dirname "$0")/.."
cores=$(nproc 2>/dev/null || echo 2)
flags=$1; shift
bad=0
# One file a process: clang-tidy 14 takes every va_list for uninitialised from its second file on.
printf '%s\n' "$@" | xargs -P "$cores" -I{} sh -c 'clang-tidy --quiet {} -- '"$flags"' 2>/dev/null' || bad=1
[ $bad -eq 0 ] && echo "clang-tidy: $# files, no finding"
# What it reports wrongly stands in its list, each with the reason.
cppcheck --quiet -j "$cores" --std=c11 --language=c --enable=warning,portability,performance --inline-suppr \
    --suppressions-list=tools/cppcheck.supp --error-exitcode=1 -Isrc -D_GNU_SOURCE "$@" || bad=1
[ $bad -eq 0 ] && echo "cppcheck: $# files, no finding"
exit $bad
