#!/usr/bin/env bash
# libs.sh FILE.mk - finds the libraries as the build will use them: each one's program below is compiled and linked by
# $CC with $CFLAGS and $LDFLAGS, statically where that works. What was found is written to FILE.mk as make variables,
# below the identity of compiler, flags and library files. Objects depend on FILE.mk: it is written only when one of
# these changes.
#
#   BLAS_CFLAGS  where OpenBLAS's own cblas.h is: another BLAS may have one too, and may be the system's default
#   BLAS_LIBS    OpenBLAS;  LIBS: the other libraries
#   SHARED       the libraries of which there is no static one that links
#   MISSING      the libraries that do not link; "compiler" and all of them when an empty program does not
#
# ALSO: further flags of the build that objects depend on. OPENBLAS=DIR: the only place where OpenBLAS is looked for, in
# DIR/include and DIR/lib (lib64). ERRORS=FILE keeps what the compiler said.
set -u
out=$1 cc=${CC:-cc} cflags=${CFLAGS:-} ldflags=${LDFLAGS:-} openblas=${OPENBLAS:-}
export LC_ALL=C
names="openblas jansson yaml pcre2 utf8proc zlib zstd"
link_name() { case $1 in pcre2) echo pcre2-8 ;; zlib) echo z ;; *) echo "$1" ;; esac; }

program() { # what the sources call and an older or another library may not have
    case $1 in
    compiler) echo 'int main(void) { return 0; }' ;;
    openblas) echo '#include <cblas.h>
        int main(void) {
            float x = 1, y = 0;
            openblas_set_num_threads(1);
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, 1, 1, 1, 1, &x, 1, &x, 1, 0, &y, 1);
            return openblas_get_corename()[0] == 0;
        }' ;;
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

place_files() { # what an OpenBLAS in one of its places would consist of
    places | tr ' |' '\n\n' |
        sed -n 's|^-I\(.*\)|\1/cblas.h|p; s|^-L\(.*\)|\1/libopenblas.a\n\1/libopenblas.so|p; /^\//p'
}

facts() { # of files: path, size, time
    local f
    for f in "$@"; do case $f in */*) stat -L -c '# %n %s %Y' "$f" 2>/dev/null ;; esac; done
}

headers() { # paths of the headers that are found without a further flag
    local h all="cblas jansson yaml pcre2 utf8proc zlib zstd"
    for h in $all; do printf '#if __has_include(<%s.h>)\n#include <%s.h>\n#endif\n' $h $h; done |
        $cc $cflags -DPCRE2_CODE_UNIT_WIDTH=8 -M -x c - 2>/dev/null | tr -s ' \\' '\n' | grep -E "/(${all// /|})\.h\$"
}

identity() {
    local name ending files=()
    echo "# compiler: $(command -v "${cc%% *}") $($cc --version 2>/dev/null | head -n 1)"
    echo "# cflags: $cflags"
    echo "# ldflags: $ldflags"
    echo "# openblas: $openblas"
    echo "# also: ${ALSO:-}"
    for name in $names; do
        for ending in a so; do
            files+=("$($cc $ldflags -print-file-name="lib$(link_name "$name").$ending" 2>/dev/null)")
        done
    done
    mapfile -t -O ${#files[@]} files < <(headers; place_files | sort -u)
    facts "${files[@]}"
}

# ---- the search ----

folders() { # where OpenBLAS's header and library may be, "-I... -L..." a line, in the order in which they are tried
    local kind lib
    for kind in pthread serial openmp; do # Debian, Ubuntu
        for lib in /usr/lib/*/openblas-$kind; do
            [ -e "$lib" ] && echo "-I/usr/include/${lib#/usr/lib/} -L$lib"
        done
    done
    pkg-config --cflags --libs-only-L openblas 2>/dev/null
    for lib in /usr/include/openblas*; do [ -d "$lib" ] && echo "-I$lib"; done # Fedora, Arch, openSUSE
    echo " "
    [ -d /opt/OpenBLAS ] && echo "-I/opt/OpenBLAS/include -L/opt/OpenBLAS/lib"
}

places() { # "flags of the compiler|flags of the linker" a line: all static libraries, then the shared ones
    local lib line
    if [ -n "$openblas" ]; then
        for lib in "$openblas"/lib*/libopenblas.a; do [ -e "$lib" ] && echo "-I$openblas/include|$lib"; done
        for lib in "$openblas"/lib*/libopenblas.so; do
            [ -e "$lib" ] && echo "-I$openblas/include|-L${lib%/*} -Wl,-rpath,${lib%/*} -lopenblas"
        done
        return
    fi
    for lib in -l:libopenblas.a -lopenblas; do
        while read -r line; do
            case $line in *-L*) echo "${line%%-L*}|-L${line#*-L} $lib" ;; *) echo "$line|$lib" ;; esac
        done < <(folders)
    done
}

links() { # name, flags in front of the library, library...
    local name=$1 flags=$2; shift 2
    program "$name" > "$work/probe.c"
    echo "-- $name: $flags $*" >> "$errors"
    $cc $cflags $flags $ldflags -o "$work/probe" "$work/probe.c" "$@" -lm -ldl >> "$errors" 2>&1
}

shared=() missing=() libs=() blas_cflags="" blas_libs=""
find_openblas() {
    local include lib
    while IFS='|' read -r include lib; do
        links openblas "$include" $lib || continue
        blas_cflags=$include blas_libs=$lib
        case $lib in *-lopenblas) shared+=(openblas) ;; esac
        return 0
    done < <(places)
    return 1
}

find_small() { # name
    local lib; lib=$(link_name "$1")
    if links "$1" "" "-l:lib$lib.a"; then libs+=("-l:lib$lib.a")
    elif links "$1" "" "-l$lib"; then libs+=("-l$lib"); shared+=("$1")
    else return 1; fi
}

search() {
    local name
    links compiler "" || { missing=(compiler $names); return; }
    for name in $names; do
        if [ $name = openblas ]; then find_openblas; else find_small $name; fi || missing+=($name)
    done
}

ours=$(identity)
[ -e "$out" ] && [ "$ours" = "$(grep '^#' "$out")" ] && grep -q '^MISSING :=$' "$out" && exit 0
work=$(mktemp -d) errors=${ERRORS:-/dev/null}
trap 'rm -rf "$work"' EXIT
[ "$errors" = /dev/null ] || : > "$errors"
search
text="$ours
BLAS_CFLAGS := $blas_cflags
BLAS_LIBS := $blas_libs
LIBS := ${libs[*]:-}
SHARED :=${shared[*]:+ ${shared[*]}}
MISSING :=${missing[*]:+ ${missing[*]}}"
[ -e "$out" ] && [ "$text" = "$(cat "$out")" ] && exit 0
mkdir -p "$(dirname "$out")"
echo "$text" > "$out.new" && mv "$out.new" "$out"
