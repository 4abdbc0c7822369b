#!/usr/bin/env bash
# compile_commands.sh "COMPILER FLAGS" FILE... - prints the compile database that editors read.
flags=${1//\"/\\\"}; shift
sep='['
for f in "$@"; do
    printf '%s\n {"directory": "%s", "file": "%s", "command": "%s -c %s"}' "$sep" "$PWD" "$f" "$flags" "$f"
    sep=','
done
printf '\n]\n'
