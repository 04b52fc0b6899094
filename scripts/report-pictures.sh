#!/usr/bin/env bash
# Takes the pictures of pages that README.md and docs/guide.md show: docs/pictures/*.png.
#
#   scripts/report-pictures.sh
#
# What it needs: what scripts/test-page.sh needs, its packages installed, and a ptxas on the path.
set -euo pipefail
cd "$(dirname "$0")/.."

if [[ -z ${WARPALLOC:-} ]]; then
    cargo build -p warpalloc-cli --locked
    WARPALLOC=${CARGO_TARGET_DIR:-$PWD/target}/debug/warpalloc
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

picture() { node crates/warpalloc-cli/tests/page/picture.mjs "$@"; }

"$WARPALLOC" report corpus/ptx/sgemm_rb.sm_90.ptx --block 256 --all -o "$folder/sgemm.html"
"$WARPALLOC" report corpus/ptx/wide.sm_90.ptx --kernel quads --block 256 --maxnreg 32 --all -o "$folder/quads.html"
for theme in light dark; do
    picture "$folder/sgemm.html#cap=80" "docs/pictures/report-$theme.png" "$theme"
done
picture "$folder/quads.html#cap=32" docs/pictures/quads.png light 1280 1000
