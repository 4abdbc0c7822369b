#!/usr/bin/env bash
# deps.sh FILE.mk [WHAT...] - installs the packages that are missing, or says which they are and how to install them
# where it cannot.
#
# The libraries are those that libs.sh misses (FILE.mk, $CC, $CFLAGS, $LDFLAGS: see there). WHAT adds what
# a target needs: fuzz, lint, valgrind, mpi, or cuda=NVCC:FOLDER, which fetches the toolkit into FOLDER when there is
# no such NVCC; --no-install only says what is missing. optional: also what the program opens when it runs and can do
# without (ncurses and libmicrohttpd: snug monitor); cxx=COMPILER: a C++ compiler, with which tests play the GPU's
# kernels on the processor. Where these cannot be installed, a line says so.
set -u
here=$(dirname "$0") mk=$1; shift
cc=${CC:-cc} nvcc="" folder=""

package() { # name: packages of apt, dnf, pacman, zypper
    case $1 in
    compiler)   echo "gcc libc6-dev@gcc glibc-devel libasan libubsan@gcc@gcc glibc-devel" ;;
    jansson)    echo "libjansson-dev@jansson-devel@jansson@libjansson-devel" ;;
    yaml)       echo "libyaml-dev@libyaml-devel@libyaml@libyaml-devel" ;;
    pcre2)      echo "libpcre2-dev@pcre2-devel@pcre2@pcre2-devel" ;;
    utf8proc)   echo "libutf8proc-dev@utf8proc-devel@libutf8proc@utf8proc-devel" ;;
    zlib)       echo "zlib1g-dev@zlib-devel@zlib@zlib-devel" ;;
    zstd)       echo "libzstd-dev@libzstd-devel@zstd@libzstd-devel" ;;
    ncurses)    echo "libncurses-dev@ncurses-devel@ncurses@ncurses-devel" ;;
    microhttpd) echo "libmicrohttpd-dev@libmicrohttpd-devel@libmicrohttpd@libmicrohttpd-devel" ;;
    c++)        echo "g++@gcc-c++@gcc@gcc-c++" ;;
    mpi)        echo "libopenmpi-dev openmpi-bin@openmpi-devel@openmpi@openmpi-devel" ;;
    clang)      echo "clang@clang@clang@clang" ;;
    fuzzer)     echo "libclang-rt-dev@compiler-rt@compiler-rt@clang" ;;
    clang-tidy) echo "clang-tidy@clang-tools-extra@clang@clang" ;;
    cppcheck)   echo "cppcheck@cppcheck@cppcheck@cppcheck" ;;
    valgrind)   echo "valgrind@valgrind@valgrind@valgrind" ;;
    pip)        echo "python3 python3-pip@python3-pip@python-pip@python3-pip" ;;
    esac
}
packages() { # column, name...
    local column=$1 name; shift
    for name in "$@"; do package "$name" | cut -d@ -f"$column"; done | tr ' ' '\n' | awk 'NF && !seen[$0]++' |
        tr '\n' ' '
}

missing() { # the names of what is not here
    CC=$cc ERRORS=$errors "$here/libs.sh" "$mk"
    local found what; found=$(sed -n 's/^MISSING := *//p' "$mk")
    case $found in compiler*) # one that works, but not with these flags, is no matter of packages
        echo 'int main(void) { return 0; }' | $cc -x c -o "$errors.out" - 2>/dev/null && found=flags ;;
    esac
    echo "$found"
    for what in "$@"; do
        case $what in
        fuzz)
            if ! command -v clang >/dev/null; then echo clang fuzzer
            elif ! ls "$(clang -print-runtime-dir)"/libclang_rt.fuzzer* >/dev/null 2>&1; then echo fuzzer; fi ;;
        lint)
            command -v clang-tidy >/dev/null || echo clang-tidy
            command -v cppcheck >/dev/null || echo cppcheck ;;
        valgrind) command -v valgrind >/dev/null || echo valgrind ;;
        mpi) command -v mpicc >/dev/null || echo mpi ;;
        cuda=*) [ -x "$nvcc" ] || python3 -m pip --version >/dev/null 2>&1 || echo pip ;;
        esac
    done
}

advise() { # why, name...
    local why=$1; shift
    {
        echo "snug cannot be built yet: $why."
        echo "Missing: $*. Install these packages and give the same command again:"
        echo "  Debian, Ubuntu  sudo apt-get install $(packages 1 "$@")"
        echo "  Fedora, RHEL    sudo dnf install $(packages 2 "$@")"
        echo "  Arch            sudo pacman -S $(packages 3 "$@")"
        echo "  openSUSE        sudo zypper install $(packages 4 "$@")"
        echo "Libraries in folders of your own: make CFLAGS=-IDIR/include LDFLAGS=-LDIR/lib"
    } >&2
    exit 1
}

refuse_flags() {
    echo "snug cannot be built: $cc does not compile and link an empty program with these flags:" >&2
    echo "  ${CFLAGS:-} ${LDFLAGS:-}" >&2
    grep -v '^--' "$errors" | head -n 8 >&2
    echo "Choose another compiler with CC=... (gcc 11 or clang 13 and later will do). For DEBUG=1 clang also needs" \
         "its runtime: package libclang-rt-dev (Debian), compiler-rt (Fedora, Arch)." >&2
    exit 1
}

errors=$(mktemp); trap 'rm -f "$errors" "$errors.out"' EXIT
for what in "$@"; do case $what in cuda=*) folder=${what##*:} nvcc=${what#cuda=} nvcc=${nvcc%:*} ;; esac; done
need=($(missing "$@"))
case " ${need[*]:-} " in *" flags "*) refuse_flags ;; esac
if [ ${#need[@]} -gt 0 ]; then
    case " $* " in *" --no-install "*)
        advise "libraries are missing (make deps installs them on Debian and Ubuntu)" "${need[@]}" ;;
    esac
    command -v apt-get >/dev/null ||
        advise "something is missing, and there is no apt-get here to install it with" "${need[@]}"
    as=()
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || advise "something is missing, and installing it takes root or sudo" "${need[@]}"
        [ -t 0 ] || sudo -n true 2>/dev/null ||
            advise "something is missing, and sudo asks for a password that nobody is here to give" "${need[@]}"
        as=(sudo)
    fi
    list=($(packages 1 "${need[@]}"))
    echo "installing: ${list[*]}"
    "${as[@]}" apt-get update -qq || echo "apt-get update failed; trying with the lists that are here" >&2
    as+=(env DEBIAN_FRONTEND=noninteractive)
    "${as[@]}" apt-get install -y -qq --no-install-recommends "${list[@]}" >/dev/null ||
        advise "apt-get failed, see above" "${need[@]}"
    need=($(missing "$@"))
    case " ${need[*]:-} " in *" flags "*) refuse_flags ;; esac
    if [ ${#need[@]} -gt 0 ]; then
        grep -E '^--|error|cannot find' "$errors" | tail -n 12 >&2
        advise "${list[*]} were installed, but do not link" "${need[@]}"
    fi
fi

opens() { # library: whether a program finds it when it runs
    PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null | grep -qF "$1."
}
install_if_possible() { # who wants it, name...
    local who=$1 as=(); shift
    [ $# -gt 0 ] || return
    [ "$(id -u)" -eq 0 ] || as=(sudo -n)
    "${as[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        $(packages 1 "$@") >/dev/null 2>&1 ||
        echo "not here, and only $who wants it: $* (apt: $(packages 1 "$@"); dnf: $(packages 2 "$@");" \
             "pacman: $(packages 3 "$@"); zypper: $(packages 4 "$@"))"
}
case " $* " in *" optional "*)
    wanted=()
    opens libncursesw.so || wanted+=(ncurses)
    opens libmicrohttpd.so || wanted+=(microhttpd)
    install_if_possible "snug monitor" "${wanted[@]}" ;;
esac
for what in "$@"; do
    case $what in cxx=*) command -v "${what#cxx=}" >/dev/null || install_if_possible test-cuda-host c++ ;; esac
done
shared=$(sed -n 's/^SHARED := *//p' "$mk")
[ -z "$shared" ] || echo "there is no static library of: $shared; the binary needs the shared one where it runs"
[ -z "$nvcc" ] || [ -x "$nvcc" ] || "$here/cuda_toolkit.sh" "$folder"
