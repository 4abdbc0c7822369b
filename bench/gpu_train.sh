#!/usr/bin/env bash
# gpu_train.sh SNUG OUT.jsonl [peer|REGEX] - training speed and memory at the shapes of docs/performance.md on the GPU
# that is here, as JSON lines; with `peer` (or for the shapes whose name the REGEX matches) transformers + PyTorch
# (bench/gpu_peer.py) in the same run. ATTENTION=own: our own deterministic attention; otherwise the fast mode,
# cuDNN's where it is there. ONLY=REGEX: only the shapes whose name it matches.
set -u
cd "$(dirname "$0")/.."
snug=$1 results=$2 peer=${3:-} attention=${ATTENTION:-auto}
mode=fast; [ "$attention" = own ] && mode=deterministic
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
machine=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -n 1)
rows() { bench/draw_rows.sh "$1" "$2" 150000; }
ours() { # name, options...
    local name=$1 rc=0; shift
    [[ $name =~ ${ONLY:-.} ]] || return 0
    timeout 120 "$snug" train --init random --device cuda --attention "$attention" --pack off --no-save \
        --out "$work/out" --overwrite --log-steps 100 --json "$@" \
        >"$work/result" 2>"$work/log" || rc=$?
    [ $rc -eq 0 ] || { echo "$name: exit $rc: $(tail -n 1 "$work/log")"; return; }
    printf '{"bench":"gpu-train","name":"%s","machine":"%s","command":"snug train %s","mode":"%s","snug":%s}\n' \
        "$name" "$machine" "--attention $attention ${*//$work\//}" "$mode" \
        "$(tail -n 1 "$work/result")" | tee -a "$results"
}
theirs() { # name, options...
    local name=$1; shift
    [ -n "$peer" ] && [[ $name =~ ${ONLY:-.} ]] && { [ "$peer" = peer ] || [[ $name =~ $peer ]]; } || return 0
    local line; line=$(timeout 150 python3 bench/gpu_peer.py "$@" 2>"$work/log" | tail -n 1)
    [ -n "$line" ] || { echo "$name: $(tail -n 1 "$work/log")"; return; }
    printf '{"bench":"gpu-train","name":"%s","machine":"%s","command":"bench/gpu_peer.py %s","peer":%s}\n' "$name" \
        "$machine" "$*" "$line" | tee -a "$results"
}
for t in 1024 1536 2048 4096; do rows 128 $t > "$work/r$t.jsonl"; done
r() { echo "--data $work/r$1.jsonl --seq $1"; }
ours   "0.5B full b8 s1024"  --model qwen2.5-0.5b $(r 1024) --micro-batch 8 --steps 30
theirs "0.5B full b8 s1024"  --model 0.5b --batch 8 --seq 1024 --compile
ours   "0.5B full b32 s1024 accum 4" --model qwen2.5-0.5b $(r 1024) --micro-batch 32 --accum 4 --steps 8
theirs "0.5B full b32 s1024 accum 4" --model 0.5b --batch 32 --seq 1024 --accum 4 --compile
ours   "1.5B full b8 s1024"  --model qwen2.5-1.5b $(r 1024) --micro-batch 8 --steps 20
theirs "1.5B full b8 s1024"  --model 1.5b --batch 8 --seq 1024 --compile
ours   "1.5B full b16 s1024 accum 4" --model qwen2.5-1.5b $(r 1024) --micro-batch 16 --accum 4 --steps 8
ours   "7B LoRA r128 b2 s2048" --model qwen2.5-7b --mode lora --lora-rank 128 $(r 2048) --micro-batch 2 --steps 15
theirs "7B LoRA r128 b2 s2048" --model 7b --mode lora --rank 128 --batch 2 --seq 2048 --compile
ours   "7B LoRA r128 b2 s2048 block" --model qwen2.5-7b --mode lora --lora-rank 128 $(r 2048) --micro-batch 2 \
    --recompute block --steps 10
ours   "7B LoRA r128 b1 s1536 block" --model qwen2.5-7b --mode lora --lora-rank 128 $(r 1536) --micro-batch 1 \
    --accum 16 --recompute block --steps 5 --budget 23.5GiB
ours   "7B LoRA r16 b2 s4096" --model qwen2.5-7b --mode lora --lora-rank 16 $(r 4096) --micro-batch 2 --steps 10
ours   "7B full b4 s2048 block" --model qwen2.5-7b $(r 2048) --micro-batch 4 --recompute block --steps 6
ours   "7B full b4 s2048 norm"  --model qwen2.5-7b $(r 2048) --micro-batch 4 --recompute norm --steps 6
