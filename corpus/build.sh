#!/usr/bin/env bash
# Compiles corpus/*.cu into corpus/ptx/NAME.sm_ARCH.ptx, the files that tests read; with a folder of
# corpus/ as the first argument, the sources of that folder.
#
#   NVCC=/path/to/nvcc corpus/build.sh [holdout|fresh|newest|blind|unseen|sealed] [NAME...]
#
# The committed PTX comes from nvcc 13.0.88 (PTX ISA 9.0):
#   pip install nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-crt==13.0.88 \
#       nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85
# ptx/handwritten.sm_90.ptx has no CUDA source. Only a change of a source calls for running this again; the output is committed with it.
set -euo pipefail
cd "$(dirname "$0")"
if [ $# -gt 0 ] && [ -d "$1" ]; then
    cd "$1"
    shift
fi
nvcc=${NVCC:-nvcc}

# Every kernel is built for sm_90; these also for an older and a newer architecture, whose code
# generators choose other instructions.
architectures() {
    case $1 in
        mma | sgemm_rb | halves | warpops) echo 80 90 100 ;;
        *) echo 90 ;;
    esac
}

# What else nvcc is told: `locals` is about local variables that it would otherwise promote itself.
flags() {
    case $1 in
        locals) echo -Xcicc -O0 ;;
    esac
}

mkdir -p ptx
[ $# -gt 0 ] || set -- $(basename -s .cu -- *.cu)
for name in "$@"; do
    for architecture in $(architectures "$name"); do
        # Several words or none.
        # shellcheck disable=SC2046
        "$nvcc" -ptx -O3 $(flags "$name") -arch="sm_$architecture" "$name.cu" -o "ptx/$name.sm_$architecture.ptx"
    done
done
