#!/usr/bin/env bash
# build.sh - the build as a stranger's machine meets it: a missing library, no apt-get or sudo; objects
# follow compiler, flags and libraries; calls without a prototype do not compile.
set -u
cd "$(dirname "$0")/.."
. tests/shell/verdict.sh
unset MAKEFLAGS MAKELEVEL MFLAGS CFLAGS CPPFLAGS LDFLAGS CPATH
export CC=${CC:-cc}
b=$work/b object=$work/b/src/base/units.c.o

# A place of its own for a library's headers, and one whose header does not compile.
jansson=$(printf '#include <jansson.h>\n' | $CC -M -x c - | tr -s ' \\' '\n' | grep '/jansson\.h$')
mkdir "$work/own" "$work/broken"
cp "${jansson%.h}"*.h "$work/own"
echo '#error not this one' > "$work/broken/jansson.h"

build() { make B="$b" CC="$CC" CFLAGS="-I$work/own" "$@" > "$work/log" 2>&1; } # target, variables...
compiled() { grep -qx '  CC  src/base/units.c' "$work/log"; }
remade() { build "$object" "$@" && compiled && build "$object" "$@" && ! compiled; } # once, and not again

build "$object" && [ "$(grep -c . "$work/log")" -eq 1 ] && compiled
verdict a_file_is_one_short_line $?
build "$object" && ! compiled
verdict what_is_made_stays $?
remade CFLAGS=-DOTHER
verdict objects_are_made_again_when_flags_change $?
build "$object" V=1 && grep -q -- '-c -o' "$work/log"
verdict commands_are_shown_on_demand $?
script() { printf '#!/bin/sh\n%s\n' "$2" > "$1"; chmod +x "$1"; } # file, text
script "$work/other" "case \$1 in --version) echo other compiler 1.0 ;; *) exec $CC \"\$@\" ;; esac"
remade CC="$work/other"
verdict objects_are_made_again_when_the_compiler_changes $?
remade && touch -d 2001-01-01 "$work/own/jansson.h" && remade
verdict objects_are_made_again_when_a_library_changes $?

! build "$object" CFLAGS="-I$work/broken" && ! grep -q '  CC  ' "$work/log" &&
    grep -q 'Missing: jansson' "$work/log" && grep -q 'apt-get install libjansson-dev' "$work/log"
verdict a_library_that_does_not_compile_is_refused_before_anything_is_compiled $?

bad=0
for text in 'char *f(void) { return g(); }' 'char *f(long n) { return n; }' 'float *f(int *p) { return p; }'; do
    printf '%s\n' "$text" > "$work/wrong.c"
    if build "$b/$work/wrong.c.o"; then bad=1; echo "compiled: $text" >> "$work/log"; fi
done
verdict calls_without_a_prototype_and_mixed_pointers_do_not_compile $bad

# Most machines have no CUDA: without HAVE_CUDA nothing but its own room may include its headers.
for header in cuda_runtime_api cuda_runtime cuda cublasLt cudnn; do
    echo '#error a header of CUDA' > "$work/broken/$header.h"
done
bad=0
for file in $(grep -rl --include='*.[ch]' '"backend/cuda/' src tests | grep -v -e '^src/backend/cuda/' -e '/cuda_on_host/'); do
    $CC -std=c11 -D_GNU_SOURCE -I"$work/broken" -Isrc -I. -fsyntax-only -x c "$file" > "$work/log" 2>&1 || bad=1
    ! grep -q 'header of CUDA' "$work/log" || { bad=1; break; }
done
verdict a_build_without_cuda_needs_no_header_of_it $bad

# Programs of bench are built by hand; two want what is not always here: OpenBLAS to compare with, and CUDA.
bad=0
for file in bench/*.c; do
    case $file in */product.c | */gpu_*) continue ;; esac
    $CC -std=c11 -D_GNU_SOURCE -Isrc -I. -fsyntax-only "$file" >> "$work/log" 2>&1 || bad=1
done
verdict programs_of_bench_compile $bad

# A machine that cannot install: nothing but these tools, and libraries that are not there.
mkdir "$work/bin"
for tool in bash sh sed grep tr cut awk head tail mktemp rm mkdir mv cat dirname stat env ls paste "$CC" as ld; do
    ln -s "$(command -v "$tool")" "$work/bin/${tool##*/}"
done
tool() { script "$work/bin/$1" "$2"; }
deps() {
    CFLAGS="-I$work/broken ${CFLAGS:-}" CC=$work/bin/${CC##*/} PATH=$work/bin tools/deps.sh "$work/deps.mk" \
        > "$work/log" 2>&1 < /dev/null
}
advised() { # a word of the reason: no success, and what to install with four tools
    local line
    grep -q "$1" "$work/log" || return 1
    for line in 'sudo apt-get install libjansson-dev' 'sudo dnf install jansson-devel' 'sudo pacman -S jansson' \
        'sudo zypper install libjansson-devel'; do grep -qF "$line" "$work/log" || return 1; done
}
tool id 'echo 1000'
! deps && advised 'no apt-get'
verdict without_apt_packages_are_named_for_every_distribution $?
tool apt-get 'exit 0'
! deps && advised 'root or sudo'
verdict without_sudo_packages_are_named $?
tool sudo 'exit 1'
! deps && advised 'password'
verdict a_sudo_that_asks_where_nobody_answers_is_not_called $?
tool id 'echo 0'
! deps && advised 'do not link'
verdict packages_that_do_not_help_end_in_advice $?
tool apt-get 'echo no network >&2; exit 100'
! deps && advised 'apt-get failed'
verdict a_failing_apt_ends_in_advice $?
! CFLAGS=-fno-such-flag deps && grep -q 'fno-such-flag' "$work/log" && grep -q 'CC=' "$work/log"
verdict flags_that_the_compiler_refuses_are_told_by_its_own_words $?
closing
