#!/usr/bin/env bash
# deps.sh [fuzz|lint|valgrind|cuda NVCC FOLDER] - installs the Debian packages that are missing, also for that target and (MPI=1) for MPI;
# says which, and how, when it may not. cuda: puts the toolkit into FOLDER when there is no such NVCC.
set -eu
need=()
nvcc="" folder=""
has() { echo "#include <$1>" | ${CC:-cc} -E -x c - >/dev/null 2>&1; }
command -v "${CC:-cc}" >/dev/null || need+=(gcc libc6-dev)
has cblas.h    || has openblas/cblas.h || need+=(libopenblas-dev)
has jansson.h  || need+=(libjansson-dev)
has yaml.h     || need+=(libyaml-dev)
has pcre2.h || echo '#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>' | ${CC:-cc} -E -x c - >/dev/null 2>&1 || need+=(libpcre2-dev)
has utf8proc.h || need+=(libutf8proc-dev)
has zlib.h     || need+=(zlib1g-dev)
has zstd.h     || need+=(libzstd-dev)
[ "${MPI:-0}" = 0 ] || command -v mpicc >/dev/null || need+=(libopenmpi-dev openmpi-bin)
case "${1:-}" in
    fuzz) # and its runtime, which carries libFuzzer
        if ! command -v clang >/dev/null; then need+=(clang libclang-rt-dev)
        elif ! ls "$(clang -print-runtime-dir)"/libclang_rt.fuzzer* >/dev/null 2>&1; then need+=(libclang-rt-dev); fi ;;
    lint)
        command -v clang-tidy >/dev/null || need+=(clang-tidy)
        command -v cppcheck >/dev/null || need+=(cppcheck) ;;
    valgrind)
        command -v valgrind >/dev/null || need+=(valgrind) ;;
    cuda)
        nvcc=$2 folder=$3
        [ -x "$nvcc" ] || python3 -m pip --version >/dev/null 2>&1 || need+=(python3 python3-pip) ;;
esac
toolkit() { [ -z "$nvcc" ] || [ -x "$nvcc" ] || "$(dirname "$0")/cuda_toolkit.sh" "$folder"; }
if [ ${#need[@]} -eq 0 ]; then toolkit; exit; fi
echo "installing: ${need[*]}"
as=""
[ "$(id -u)" -eq 0 ] || as=sudo
if ! command -v apt-get >/dev/null || { [ -n "$as" ] && ! command -v sudo >/dev/null; }; then
    echo "please install by hand: ${need[*]}" >&2
    exit 1
fi
$as apt-get update -qq
DEBIAN_FRONTEND=noninteractive $as apt-get install -y -qq --no-install-recommends "${need[@]}" >/dev/null
toolkit
