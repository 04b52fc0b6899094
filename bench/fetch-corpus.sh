#!/usr/bin/env bash
# Fetches real PTX from published Python packages, for tests and benchmarks at scale.
#
#   bench/fetch-corpus.sh FOLDER
#
# Leaves FOLDER/{xgboost,cupy,ctranslate2}/*.ptx, one file per PTX image found in the packages'
# shared libraries, named after the library and the image's number in it, and FOLDER/COUNTS.
# Everything else (wheels, unpacked libraries, tools) lies in FOLDER/.work and is removed at the end.
# The packages have their own licences: the extracted PTX is for local use and is never committed.
# What it needs: Linux on x86-64, Python 3 with pip and venv, 5 GB of disk while it runs.
# Set CUOBJDUMP to use one that is already installed.
set -euo pipefail

[ $# -eq 1 ] || { echo "usage: $0 FOLDER" >&2; exit 2; }
mkdir -p "$1"
folder=$(cd "$1" && pwd)
work=$folder/.work
mkdir -p "$work/wheels" "$work/libraries"
trap 'rm -rf "$work"' EXIT

if [ -z "${CUOBJDUMP:-}" ]; then
    python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --no-deps --target "$work/tools" \
        nvidia-cuda-cuobjdump==13.2.51 >&2
    CUOBJDUMP=$work/tools/nvidia/cu13/bin/cuobjdump
    chmod +x "$CUOBJDUMP"
fi

# The versions and the platform are pinned, so the same PTX comes out whoever runs this.
download() {
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
        --python-version 3.11 --implementation cp --abi cp311 --abi none \
        --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 --platform manylinux2014_x86_64 \
        --dest "$work/wheels" "$1" >&2
}

# extract NAME REQUIREMENT WHEEL-GLOB
extract() {
    local name=$1 requirement=$2 glob=$3 library
    download "$requirement"
    rm -rf "${folder:?}/$name" "$work/libraries" "$work/images"
    mkdir -p "$folder/$name"
    python3 - "$work/wheels" "$glob" "$work/libraries" <<'PY'
import glob, os, sys, zipfile
wheels, pattern, destination = sys.argv[1:]
for wheel in glob.glob(os.path.join(wheels, pattern)):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(destination, [n for n in archive.namelist() if ".so" in os.path.basename(n)])
PY
    while IFS= read -r library; do
        # Most extension modules hold no device code; ask for the list before unpacking anything.
        [[ $("$CUOBJDUMP" --list-ptx "$library" 2>/dev/null) == *.ptx* ]] || continue
        rm -rf "$work/images"
        mkdir -p "$work/images"
        (cd "$work/images" && "$CUOBJDUMP" --extract-ptx all "$library" >/dev/null)
        find "$work/images" -name '*.ptx' -exec mv -t "$folder/$name" {} +
    done < <(find "$work/libraries" -type f | LC_ALL=C sort)
    rm -rf "$work/libraries" "$work/images"
    rm -f "$work"/wheels/$glob
}

count() {
    python3 - "$folder" "$@" <<'PY'
import os, re, sys
root, names = sys.argv[1], sys.argv[2:]
entry = re.compile(rb"^\s*(?:\.(?:visible|weak|extern)\s+)*\.entry\b", re.M)
function = re.compile(rb"^\s*(?:\.(?:visible|weak|extern)\s+)*\.func\b", re.M)
statement = re.compile(rb"^\s*(?:@!?%?\w+\s+)?[a-z]\w*(?:[.:]+\w+)*(?:\s[^;{}]*|\s*\{[^;]*)?;", re.M)
print(f"{'package':<14}{'files':>8}{'entries':>10}{'functions':>11}{'instructions':>14}{'bytes':>14}")
for name in names:
    files = sorted(f for f in os.listdir(os.path.join(root, name)) if f.endswith(".ptx"))
    totals = [0, 0, 0, 0]
    for file in files:
        with open(os.path.join(root, name, file), "rb") as handle:
            text = handle.read()
        for at, value in enumerate((len(entry.findall(text)), len(function.findall(text)), len(statement.findall(text)), len(text))):
            totals[at] += value
    print(f"{name:<14}{len(files):>8}{totals[0]:>10}{totals[1]:>11}{totals[2]:>14}{totals[3]:>14}")
PY
}

extract xgboost xgboost==3.2.0 'xgboost-*.whl'
extract cupy cupy-cuda13x==14.2.0 'cupy_cuda13x-*.whl'
extract ctranslate2 ctranslate2==4.8.4 'ctranslate2-*.whl'
count xgboost cupy ctranslate2 | tee "$folder/COUNTS"
