#!/usr/bin/env bash
# tokenizer_speed.sh TOKENIZER TEXT [REPEATS] - loads, encodes and decodes on one core; JSON lines, processor time.
# With PYTHON=python3 (one that has the `tokenizers` library) the same is measured there, for comparison; with
# RECORD=1 both become one line of bench/results/cpu-tokenizer.jsonl.
set -eu
cd "$(dirname "$0")/.."
[ $# -ge 2 ] || { echo "usage: bench/tokenizer_speed.sh TOKENIZER TEXT [REPEATS]" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
${CC:-cc} -std=c11 -D_GNU_SOURCE -Isrc -O2 -pthread -o "$work/speed" \
    bench/tokenizer_speed.c src/data/tokenizer*.c src/base/*.c -Wl,-Bstatic -ljansson -lpcre2-8 -lutf8proc \
    -Wl,-Bdynamic -lm
"$work/speed" "$@" | tee "$work/ours"
[ -n "${PYTHON:-}" ] || exit 0
TOKENIZERS_PARALLELISM=false "$PYTHON" - "$@" <<'PY' | tee "$work/peer"
import json, os, sys, time
import tokenizers
path, text = sys.argv[1], open(sys.argv[2], newline="").read()
repeats = int(sys.argv[3]) if len(sys.argv) > 3 else 5
path = os.path.join(path, "tokenizer.json") if os.path.isdir(path) else path
size = len(text.encode())
def best(f):
    times = []
    for _ in range(repeats):
        start = time.process_time()
        result = f()
        times.append(time.process_time() - start)
    return min(times), result
def say(**fields):
    print(json.dumps({"library": "tokenizers " + tokenizers.__version__, **fields}))
s, t = best(lambda: tokenizers.Tokenizer.from_file(path))
say(what="load", ms=round(s * 1e3, 1))
s, ids = best(lambda: t.encode(text, add_special_tokens=False).ids)
say(what="encode whole", MB_per_s=round(size / s / 1e6, 1), ids=len(ids))
lines = text.splitlines(keepends=True)
s, n = best(lambda: sum(len(t.encode(l, add_special_tokens=False).ids) for l in lines))
say(what="encode lines", MB_per_s=round(size / s / 1e6, 1), ids=n)
s, _ = best(lambda: t.decode(ids))
say(what="decode", MB_per_s=round(size / s / 1e6, 1))
PY
[ -n "${RECORD:-}" ] || exit 0
source bench/record.sh
rate() { grep "\"$2\"" "$work/$1" | number MB_per_s; }
ratio() { awk -v a="$(rate ours "$1")" -v b="$(rate peer "$1")" 'BEGIN { printf "%.2f", a / b }'; }
record cpu-tokenizer cpu-tokenizer "\"tokenizer\":\"$(basename "$1")\"" "\"text\":\"$(basename "$2")\"" \
    "\"ratio_whole\":$(ratio "encode whole")" "\"ratio_lines\":$(ratio "encode lines")" \
    "\"ratio_decode\":$(ratio decode)" \
    "\"snug\":[$(paste -sd, "$work/ours")]" "\"peer\":[$(paste -sd, "$work/peer")]"
