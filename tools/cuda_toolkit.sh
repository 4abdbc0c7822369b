#!/usr/bin/env bash
# cuda_toolkit.sh DIR - puts nvcc, headers, the static runtime, cuBLAS and cuDNN into DIR, from the vendor's packages on
# the Python package index: for a machine that has a driver, python3 and pip, and no toolkit. About 1.2 GB on the way.
#
#   CUDA_RELEASE=13.0   which toolkit: a driver runs programs of its own major release (nvidia-smi shows it)
#   CUDA_LIBRARIES=0    only what compiling needs: without the libraries that are opened at run time
set -eu
to=$1 release=${CUDA_RELEASE:-13.0}
if [ -x "$to/bin/nvcc" ] && { [ "${CUDA_LIBRARIES:-1}" = 0 ] || ls "$to"/lib/libcudnn.so.* >/dev/null 2>&1; }; then
    exit 0
fi
python3 -m pip --version >/dev/null 2>&1 || { echo "please install pip for python3 (package python3-pip)" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
packages=()
for part in nvidia-cuda-nvcc nvidia-cuda-crt nvidia-nvvm nvidia-cuda-runtime nvidia-cuda-cccl; do
    packages+=("$part==$release.*")
done
packages+=("nvidia-cublas==${release%%.*}.*") # its header is needed to compile
[ "${CUDA_LIBRARIES:-1}" = 0 ] || packages+=("nvidia-cudnn-cu${release%%.*}")
echo "fetching: ${packages[*]}"
python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
    --dest "$work/wheels" "${packages[@]}"
mkdir -p "$work/all"
for wheel in "$work"/wheels/*.whl; do python3 -m zipfile -e "$wheel" "$work/all"; done
rm -rf "$to"
mkdir -p "$to/lib" "$to/include"
cp -a "$work/all/nvidia/cu${release%%.*}/." "$to/"
if [ -d "$work/all/nvidia/cudnn" ]; then cp -a "$work/all/nvidia/cudnn/lib/." "$to/lib/"; fi
chmod +x "$to"/bin/* "$to"/nvvm/bin/* 2>/dev/null || true # archives of this kind do not keep it
[ -x "$to/bin/nvcc" ] || { echo "$to: no nvcc came with ${packages[*]}" >&2; exit 1; }
"$to/bin/nvcc" --version | tail -n 1
