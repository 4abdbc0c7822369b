#!/usr/bin/env bash
# story.sh MODEL DATA [BUDGET] - the README's first page on the GPU that is here, timed: clone, make, plan, train.
# Seconds since the beginning stand in front of every line. Only the number of steps is cut short (--steps), and every
# step is logged.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
model=$(realpath "$1") data=$(realpath "$2") budget=${3:-23.5GiB}
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
export TIMEFORMAT=%R
began=$EPOCHREALTIME
stamp() {
    while IFS= read -r line; do
        awk -v a="$began" -v b="$EPOCHREALTIME" -v l="$line" 'BEGIN { printf "%7.1f  %s\n", b - a, l }'
    done
}
say() { echo "\$ $*" | stamp; }
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -n 1
echo "$(nproc) cores, MODEL: $(du -shL "$model" | cut -f1) in the page cache or on disk as it is"
say git clone SNUG
if [ -e "$root/.git" ]; then git clone -q "$root" "$work/snug"
else mkdir "$work/snug"; tar -C "$root" --exclude=./build -c . | tar -C "$work/snug" -x; fi # a bare copy of the tree
cd "$work/snug"
say "make CUDA=1 -j$(nproc)"
make CUDA=1 -j"$(nproc)" > "$work/make.log" 2>&1 || { tail -n 5 "$work/make.log"; exit 1; }
say "snug plan --model MODEL --data DATA --budget $budget"
./snug plan --model "$model" --data "$data" --budget "$budget" 2>&1 | tail -n 25 | stamp
say "snug train --model MODEL --data DATA --budget $budget --log-steps 1 --steps 12"
./snug train --model "$model" --data "$data" --budget "$budget" --log-steps 1 --steps 12 --no-save \
    --out "$work/out" 2>&1 | sed -u 's/\r/\n/g' | stamp
