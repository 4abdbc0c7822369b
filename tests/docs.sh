#!/usr/bin/env bash
# docs.sh - the documentation as a reader meets it: commands run as they are written, flags are known, links lead
# somewhere, tables of measurements are those of bench/results.
#
# README.md, CONTRIBUTING.md and docs/*.md. A block fenced as ```sh holds commands, one fenced as ```console commands
# behind "$ " and what they say. The blocks of a document run in their order, line by line, in one folder. In front of
# a block,
#   <!-- shell: parse -->   nothing runs: it needs a GPU, a download or hours. snug must accept the options; make must
#                           know its targets; scripts must be there. Any other line is refused.
# QUICK=1 treats all blocks so; so does a binary with sanitizers, which takes more memory than its plan says.
set -u
cd "$(dirname "$0")/.."
. tests/shell/verdict.sh
unset MAKEFLAGS MAKELEVEL MFLAGS DEBUG
export CUDA_VISIBLE_DEVICES= XDG_CONFIG_HOME=/nonexistent
root=$PWD
real=$(realpath "${SNUG:-./snug}")
[[ $real != *-debug1/* ]] || QUICK=1
mkdir "$work/bin" && ln -s "$real" "$work/bin/snug"
export PATH=$work/bin:$PATH
documents=(README.md CONTRIBUTING.md docs/*.md)

# ---- commands ----

# FILE:LINE, mode and command of each line of a block, parted by tabs; a line that ends in \ goes on.
commands() {
    awk '
        /^<!-- shell: [a-z]+ -->$/ { mode = $3; next }
        /^```/ && !inside { kind = substr($0, 4); inside = 1; if (!mode) mode = "run"; next }
        /^```/ { inside = 0; mode = ""; next }
        !inside { if (NF) mode = ""; next }
        kind == "console" { if (sub(/^\$ /, "") == 0) next }
        kind != "sh" && kind != "console" { next }
        /\\$/ { sub(/ *\\$/, ""); held = held $0 " "; next }
        { line = held $0; held = ""; if (line ~ /^[ \t]*(#|$)/) next; print FILENAME ":" FNR "\t" mode "\t" line }
    ' "$1"
}

run_line() { # command
    make() { command make -C "$root" -n "$@"; } # what a target does has tests of its own
    eval "$1"
}

end=--there-is-no-such-option
parse_line() { # command: functions stand for the programs, and say whether they would be understood
    snug() {
        local said word before= words=()
        for word; do
            [ "$word" != -- ] || break # what stands behind is another program's
            words+=("$word")
            # a file that an earlier command would have made
            case $before:$word in
            --config:recipes/*) ;;
            --config:*) mkdir -p "$(dirname "$word")" && : > "$word" ;;
            esac
            before=$word
        done
        said=$("$real" "${words[@]}" $end 2>&1 < /dev/null)
        [ "$1 ${2:-}" != "amr parse" ] || set -- "amr parse" # a command of two words
        [ "$said" = "snug: $end: there is no such option; \`snug $1 --help\` lists them" ] && return
        echo "$said"
        exit 1
    }
    make() { command make -C "$root" -n "$@"; }
    case $1 in
    snug\ *|make\ *|make|'for '*) eval "${1// & done/; done}" ;;
    tools/*|bench/*|tests/*) [ -x "$root/${1%% *}" ] ;;
    git\ *|cd\ *|mpirun\ *) ;;
    *) echo "neither snug nor make nor a script"; return 1 ;;
    esac
}

for document in "${documents[@]}"; do
    folder=$work/$(basename "$document" .md) bad=0 runs=0
    mkdir "$folder"
    while IFS=$'\t' read -r place mode line; do
        if [ "$mode" = run ] && [ "${QUICK:-0}" != 0 ]; then mode=parse runs=1; fi
        (cd "$folder" && "${mode}_line" "$line") > "$work/out" 2>&1 < /dev/null && continue
        bad=1
        { echo "$place: $line"; tail -n 4 "$work/out"; } >> "$work/wrong"
    done < <(commands "$document")
    cp "$work/wrong" "$work/log" 2> /dev/null
    verdict "commands_of_$(basename "$document")" $bad
    rm -f "$work/wrong"
    left=$((left + runs))
done

# ---- flags ----

# Of other programs; and what a document says is not there yet, in a line <!-- flags: not yet: --a --b -->.
foreign=" --gpu-reset --justinstance --justattribute --justrelation \
$(sed -nE 's/^<!-- flags: not yet: (.*) -->$/\1/p' "${documents[@]}" | paste -sd' ') "
verbs=(train plan generate reason eval amr smatch doctor problems quantize init convert chat merge tokenize monitor)
is_known() { # --flag
    local verb
    case $foreign in *" $1 "*) return ;; esac
    [ "$1" != --version ] || return 0
    for verb in "${verbs[@]}"; do
        snug "$verb" "$1" $end 2>&1 < /dev/null | grep -q -- "^snug: $1: there is no such option" || return 0
    done
    return 1
}
: > "$work/log"
while read -r flag; do
    is_known "$flag" || echo "$flag: $(grep -lF -- "$flag" "${documents[@]}" | paste -sd' ')" >> "$work/log"
done < <(grep -ohE '(^|[^-A-Za-z0-9_/.])--[a-z][a-z0-9_-]*' "${documents[@]}" | grep -oE -- '--[a-z].*' | sort -u)
[ ! -s "$work/log" ]
verdict every_flag_is_known $?

# What coming-from.md tells to use, in its right columns, is accepted with its values.
: > "$work/log"
while read -r span; do
    words=$(sed -E "s/\b(DIR|FILE|NAME|MODEL)\b/x/g; s/\b[A-Z]\b/1/g; s/^snug [a-z]+ ?//" <<< "$span")
    verb=$(sed -nE 's/^snug ([a-z]+).*/\1/p' <<< "$span")
    for verb in $verb ${verb:-${verbs[@]}}; do
        (parse_line "snug $verb $words") > "$work/out" 2>&1 && continue 2
    done
    echo "$span: $(tail -n 1 "$work/out")" >> "$work/log"
done < <(sed -nE 's/^\|[^|]*\| (.*) \|$/\1/p' docs/coming-from.md |
    grep -oE '`(--[^` ]+ |snug )[^`]*`' | tr -d '`' | sort -u)
[ ! -s "$work/log" ]
verdict what_coming_from_tells_to_use_is_accepted $?

# What its left columns call options, on the command line or in a configuration (a name alone, or name=value), is taken,
# or refused with a reason. Functions, values and other programs are no options; nor are keys inside another file's
# sections.
others=" k_base memory_allocated memory_reserved adamw_8bit paged_adamw_8bit paged_adamw_32bit nvme_path \
optimizer_in_bwd register_post_accumulate_grad_hook reduce_bucket_size \
stage3_prefetch_bucket_size stage3_param_persistence_threshold "
: > "$work/log"
while read -r name; do
    case $others in *" $name "*) continue ;; esac
    is_known "--$name" || echo "$name" >> "$work/log"
done < <(sed -nE 's/^\| ([^|]*) \| .*$/\1/p' docs/coming-from.md | grep -oE '`[^`]*`' | tr -d '`' |
    sed -nE 's/^(--)?([a-z0-9]+[_-][a-z0-9_-]+|packing|optim|bf16|fp16|r)(=.*| [^ ]*)?$/\2/p' |
    grep -vE '^nvidia-smi$' | sort -u)
[ ! -s "$work/log" ]
verdict names_in_the_left_columns_are_taken_or_refused_with_a_reason $?

# ---- links ----

# As the hosting sites make them: lower case, blanks to '-', nothing else but letters, digits, '-' and '_'.
anchors() { sed -nE 's/^#+ +//p' "$1" | tr '[:upper:]' '[:lower:]' | sed -E 's/`//g; s/[^a-z0-9 _-]//g; s/ /-/g'; }
: > "$work/log"
for document in "${documents[@]}" ARCHITECTURE.md; do
    while read -r link; do
        case $link in http:*|https:*|mailto:*) continue ;; esac
        target=$(dirname "$document")/${link%%#*}
        [ "${link%%#*}" ] || target=$document
        if [ ! -e "$target" ]; then echo "$document: $link: no such file" >> "$work/log"
        elif [[ $link == *#* ]] && ! anchors "$target" | grep -qxF -- "${link#*#}"; then
            echo "$document: $link: no such heading" >> "$work/log"
        fi
    done < <(grep -oE '\]\([^) ]+\)' "$document" | sed -E 's/^\]\((.*)\)$/\1/')
done
[ ! -s "$work/log" ]
verdict every_link_leads_to_a_file_and_a_heading $?

# Source files that pages name by path or by name.
: > "$work/log"
find Makefile rooms.txt src tests tools bench fuzz recipes -type f > "$work/files"
while IFS=: read -r document name; do
    grep -qE "(^|/)$name\$" "$work/files" || echo "$document: $name: no such file" >> "$work/log"
done < <(grep -oE '`[A-Za-z0-9_./]+\.(c|h|cu|cuh|def|sh|py|mk)`' "${documents[@]}" ARCHITECTURE.md |
    tr -d '`' | sort -u)
[ ! -s "$work/log" ]
verdict every_source_file_that_is_named_is_there $?

if command -v python3 > /dev/null; then
    bench/performance.py --check > "$work/log" 2>&1
    verdict tables_of_performance_are_made_from_the_results $?
else
    skip "there is no python3 to make the tables of docs/performance.md"
fi
closing
