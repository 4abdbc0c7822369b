#!/usr/bin/env bash
# draw_rows.sh ROWS TOKENS VOCABULARY - rows of drawn token ids as JSON lines, the same ones every time.
exec awk -v n="$1" -v t="$2" -v v="$3" 'BEGIN {
    srand(1)
    for (r = 0; r < n; r++) {
        printf "{\"ids\":["
        for (i = 0; i < t; i++) printf (i ? ",%d" : "%d"), int(rand() * v)
        print "]}"
    }
}'
