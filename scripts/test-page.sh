#!/usr/bin/env bash
# Tests the page of `warpalloc report` in a browser.
#
#   scripts/test-page.sh
#
# What it needs: Node 20 with npm and a Chromium, which CHROMIUM names or which is on the path; both are installed by
# apt where they are missing and the caller may do that. WARPALLOC names the command, which is built where it is not given.
set -euo pipefail
cd "$(dirname "$0")/.."

has() { command -v "$1" >/dev/null; }

missing=()
has node || missing+=(nodejs)
has npm || missing+=(npm)
[[ -n ${CHROMIUM:-} ]] || has chromium || has chromium-browser || has google-chrome || missing+=(chromium fonts-dejavu-core)
if ((${#missing[@]})); then
    as_root=()
    [[ $(id -u) == 0 ]] || as_root=(sudo)
    "${as_root[@]}" apt-get update -qq
    DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

if [[ -z ${WARPALLOC:-} ]]; then
    cargo build -p warpalloc-cli --locked
    WARPALLOC=${CARGO_TARGET_DIR:-$PWD/target}/debug/warpalloc
fi
export WARPALLOC
cd crates/warpalloc-cli/tests/page
npm ci --silent --no-audit --no-fund
npm test --silent
