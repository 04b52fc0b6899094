#!/usr/bin/env bash
# Builds the wheel, installs it into a clean environment, and tests what was installed.
#
#     scripts/test-wheel.sh [PACKAGE ...]      packages to install beside it, such as triton
set -euo pipefail
cd "$(dirname "$0")/.."

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# The profile of the other tests, whose builds are there already.
export MATURIN_PEP517_ARGS=${MATURIN_PEP517_ARGS---profile dev --locked}

python3 -m venv "$folder/build"
"$folder/build/bin/pip" --quiet wheel --no-deps --wheel-dir "$folder" crates/warpalloc-py
python3 -m venv "$folder/clean"
"$folder/clean/bin/pip" --quiet install "$folder"/warpalloc-*.whl pytest mypy "$@"
"$folder/clean/bin/python" -m pytest --quiet -p no:cacheprovider crates/warpalloc-py/tests
