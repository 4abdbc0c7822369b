#!/usr/bin/env bash
# libs.sh FILE.mk - finds the libraries as the build will use them: each one's program below is compiled and linked by
# $CC with $CFLAGS and $LDFLAGS, statically where that works. What was found is written to FILE.mk as make variables,
# below the identity of compiler, flags and library files. Objects depend on FILE.mk: it is written only when one of
# these changes.
#
#   LIBS     the libraries
#   SHARED   those of which there is no static one that links
#   MISSING  those that do not link; "compiler" and all of them when an empty program does not
#
# ALSO: further flags of the build that objects depend on. ERRORS=FILE keeps what the compiler said.
set -u
out=$1 cc=${CC:-cc} cflags=${CFLAGS:-} ldflags=${LDFLAGS:-}
export LC_ALL=C
names="jansson yaml pcre2 utf8proc zlib zstd"
link_name() { case $1 in pcre2) echo pcre2-8 ;; zlib) echo z ;; *) echo "$1" ;; esac; }

program() { # what the sources call and an older or another library may not have
    case $1 in
    compiler) echo 'int main(void) { return 0; }' ;;
    jansson) echo '#include <jansson.h>
        int main(void) {
            return json_object_size(json_loads("{}", 0, (json_error_t *)0)) != 0 || !json_sprintf("%d", 1);
        }' ;;
    yaml) echo '#include <yaml.h>
        int main(void) {
            yaml_parser_t p;
            yaml_document_t d;
            return !yaml_parser_initialize(&p) || yaml_parser_load(&p, &d);
        }' ;;
    pcre2) echo '#define PCRE2_CODE_UNIT_WIDTH 8
        #include <pcre2.h>
        int main(void) {
            int error;
            PCRE2_SIZE at;
            pcre2_code *code = pcre2_compile((PCRE2_SPTR)"a", 1, PCRE2_UTF, &error, &at, (pcre2_compile_context *)0);
            return pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
        }' ;;
    utf8proc) echo '#include <utf8proc.h>
        int main(void) {
            utf8proc_int32_t c;
            return utf8proc_iterate((const utf8proc_uint8_t *)"a", -1, &c) != 1 || utf8proc_toupper(c) == c;
        }' ;;
    zlib) echo '#include <zlib.h>
        int main(void) {
            z_stream z = {0};
            return inflateInit2(&z, 31) != Z_OK || inflate(&z, Z_NO_FLUSH) == Z_STREAM_END;
        }' ;;
    zstd) echo '#include <zstd.h>
        int main(void) { return ZSTD_isError(ZSTD_initDStream(ZSTD_createDStream())) != 0; }' ;;
    esac
}

# ---- the identity ----

facts() { # of files: path, size, time
    local f
    for f in "$@"; do case $f in */*) stat -L -c '# %n %s %Y' "$f" 2>/dev/null ;; esac; done
}

headers() { # paths of the headers that are found without a further flag
    local h all="jansson yaml pcre2 utf8proc zlib zstd"
    for h in $all; do printf '#if __has_include(<%s.h>)\n#include <%s.h>\n#endif\n' $h $h; done |
        $cc $cflags -DPCRE2_CODE_UNIT_WIDTH=8 -M -x c - 2>/dev/null | tr -s ' \\' '\n' | grep -E "/(${all// /|})\.h\$"
}

identity() {
    local name ending files=()
    echo "# compiler: $(command -v "${cc%% *}") $($cc --version 2>/dev/null | head -n 1)"
    echo "# cflags: $cflags"
    echo "# ldflags: $ldflags"
    echo "# also: ${ALSO:-}"
    for name in $names; do
        for ending in a so; do
            files+=("$($cc $ldflags -print-file-name="lib$(link_name "$name").$ending" 2>/dev/null)")
        done
    done
    mapfile -t -O ${#files[@]} files < <(headers)
    facts "${files[@]}"
}

# ---- the search ----

links() { # name, flags in front of the library, library...
    local name=$1 flags=$2; shift 2
    program "$name" > "$work/probe.c"
    echo "-- $name: $flags $*" >> "$errors"
    $cc $cflags $flags $ldflags -o "$work/probe" "$work/probe.c" "$@" -lm -ldl >> "$errors" 2>&1
}

shared=() missing=() libs=()
find_library() { # name
    local lib; lib=$(link_name "$1")
    if links "$1" "" "-l:lib$lib.a"; then libs+=("-l:lib$lib.a")
    elif links "$1" "" "-l$lib"; then libs+=("-l$lib"); shared+=("$1")
    else return 1; fi
}

search() {
    local name
    links compiler "" || { missing=(compiler $names); return; }
    for name in $names; do
        find_library $name || missing+=($name)
    done
}

ours=$(identity)
[ -e "$out" ] && [ "$ours" = "$(grep '^#' "$out")" ] && grep -q '^MISSING :=$' "$out" && exit 0
work=$(mktemp -d) errors=${ERRORS:-/dev/null}
trap 'rm -rf "$work"' EXIT
[ "$errors" = /dev/null ] || : > "$errors"
search
text="$ours
LIBS := ${libs[*]:-}
SHARED :=${shared[*]:+ ${shared[*]}}
MISSING :=${missing[*]:+ ${missing[*]}}"
[ -e "$out" ] && [ "$text" = "$(cat "$out")" ] && exit 0
mkdir -p "$(dirname "$out")"
echo "$text" > "$out.new" && mv "$out.new" "$out"
