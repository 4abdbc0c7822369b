#!/usr/bin/env bash
# demo_corpus.sh COUNT SEED - prints COUNT small sums told as stories, one JSON line {"prompt","completion"} each.
count=${1:-2000}
RANDOM=${2:-7}
names=(Ada Ben Cleo Dan Eve Finn Gia Hugo Ivy Jon Kira Leo)
things=(apples books coins shells stamps marbles cards pears)
for ((i = 0; i < count; i++)); do
    n=${names[RANDOM % 12]} t=${things[RANDOM % 8]}
    a=$((RANDOM % 50 + 2)) b=$((RANDOM % 40 + 1))
    case $((RANDOM % 3)) in
    0) q="$n has $a $t and finds $b more. How many $t does $n have now?" w="$a + $b = $((a + b))" r=$((a + b)) ;;
    1) a=$((a + b)); q="$n has $a $t and gives away $b. How many $t are left?" w="$a - $b = $((a - b))" r=$((a - b)) ;;
    2) b=$((b % 9 + 2)); q="$n fills $b boxes with $a $t each. How many $t is that?" w="$b x $a = $((a * b))" \
        r=$((a * b)) ;;
    esac
    printf '{"prompt":"%s\\n","completion":"%s. The answer is %s."}\n' "$q" "$w" "$r"
done
