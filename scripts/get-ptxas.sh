#!/usr/bin/env bash
# Installs the NVIDIA assembler and disassemblers that our tests compare with, and prints the path of
# the assembler; nvdisasm and cuobjdump lie beside it.
#
#   scripts/get-ptxas.sh [FOLDER]
#
# FOLDER defaults to ${XDG_CACHE_HOME:-$HOME/.cache}/warpalloc/ptxas. Standard output carries the
# path and nothing else; a second call finds what the first one left and needs no network.
# The tools are proprietary: they are fetched from the package index for testing and never redistributed.
# What it needs: Linux on x86-64 or aarch64, Python 3 with pip, 120 MB of disk.
set -euo pipefail

version=13.0.88
disassemblers=13.2.51
folder=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/warpalloc/ptxas}

fail() {
    echo "get-ptxas: $*" >&2
    exit 1
}

installed() { printf '%s\n' "$folder/$version/nvidia/cu13/bin/ptxas"; }

works() {
    local beside
    beside=$(dirname "$1")
    [[ $("$1" --version 2>/dev/null) == *"V$version"* ]] &&
        "$beside/nvdisasm" --version >/dev/null 2>&1 && "$beside/cuobjdump" --version >/dev/null 2>&1
}

command -v python3 >/dev/null || fail "python3 is needed"
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)

if ! works "$(installed)"; then
    # Install beside the destination and rename, so that an interrupted run leaves nothing half made.
    staging=$(mktemp -d "$folder/.staging.XXXXXX")
    trap 'rm -rf "$staging"' EXIT
    python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --no-input --no-deps \
        --target "$staging/root" "nvidia-cuda-nvcc==$version" "nvidia-cuda-nvdisasm==$disassemblers" \
        "nvidia-cuda-cuobjdump==$disassemblers" >&2 || fail "pip could not install NVIDIA's tools"
    chmod -R u+rwX,go+rX "$staging/root"
    works "$staging/root/nvidia/cu13/bin/ptxas" || fail "the installed tools do not run on this machine"
    rm -rf "${folder:?}/$version"
    mv -T "$staging/root" "$folder/$version" 2>/dev/null || works "$(installed)" || fail "could not write $folder/$version"
fi

installed
