#!/usr/bin/env bash
# ranks.sh - three ranks of `snug reason`, by their flags and (make check MPI=1) under mpirun, give the records of one
# process.
set -u
cd "$(dirname "$0")/.."
snug=${SNUG:-./snug}
. tests/shell/verdict.sh
job="--device cpu --model $work/m --num-examples 4 --max-tokens 20 --judge-max-tokens 20 --max-iterations 1 --invariant"
plain() { sed -E 's/[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.+Z-]*//g' "$1"; }
same() {
    [ -s "$work/one.json" ] || return 1
    for e in json csv; do cmp <(plain "$work/one.$e") <(plain "$work/$1.$e") || return 1; done
}
by_flags() { for i in 0 1 2; do "$snug" reason $job --out "$work/flags.json" --ranks 3 --rank $i || return 1; done; }
by_mpi() { mpirun $([ "$(id -u)" -ne 0 ] || echo --allow-run-as-root) --oversubscribe -n 3 "$snug" reason $job \
    --out "$work/mpi.json"; }
"$snug" init --model models/tally --set num_hidden_layers=2 --out "$work/m" >"$work/log" 2>&1 &&
    "$snug" reason $job --out "$work/one.json" >>"$work/log" 2>&1
verdict one_process_reasons $?
by_flags >>"$work/log" 2>&1 && same flags
verdict three_ranks_give_the_records_of_one_process $?
if [ "${MPI:-0}" = 1 ] && command -v mpirun >/dev/null; then
    by_mpi >>"$work/log" 2>&1 && same mpi
    verdict three_ranks_under_mpirun_give_the_records_of_one_process $?
else
    skip "mpirun belongs to make check MPI=1"
fi
closing
