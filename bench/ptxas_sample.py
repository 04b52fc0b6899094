#!/usr/bin/env python3
"""Allocates PTX files of others and asks ptxas to assemble a fixed random sample of their entries.

    bench/ptxas_sample.py --ptxas PTXAS --warpalloc WARPALLOC [--count 200] [--seed 1] FILE.ptx...

Prints one line per file and, last, how many entries were sampled, assembled and refused; exits
with 1 if any was refused. `bench/fetch-corpus.sh` fetches the files the documentation names.
"""
import argparse
import collections
import os
import random
import re
import subprocess
import sys
import tempfile

ENTRY = re.compile(rb"\.entry\s+([\w$.%]+)")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ptxas", required=True)
    parser.add_argument("--warpalloc", required=True)
    parser.add_argument("--regalloc", default="briggs")
    parser.add_argument("--maxnreg")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("files", nargs="+")
    return parser.parse_args()


def sample(args):
    """The sampled entries by file, the same for the same files and seed."""
    entries = []
    for path in sorted(args.files):
        with open(path, "rb") as file:
            entries += [(path, name.decode()) for name in ENTRY.findall(file.read())]
    chosen = random.Random(args.seed).sample(entries, min(args.count, len(entries)))
    by_file = collections.defaultdict(list)
    for path, name in chosen:
        by_file[path].append(name)
    return by_file


def main():
    args = arguments()
    assembled, refused = 0, 0
    with tempfile.TemporaryDirectory() as folder:
        out, cubin = os.path.join(folder, "out.ptx"), os.path.join(folder, "out.cubin")
        for path, names in sample(args).items():
            entries = [word for name in names for word in ("--entry", name)]
            cap = ["--maxnreg", args.maxnreg] if args.maxnreg else []
            command = [args.warpalloc, "alloc", path, "-o", out, "--regalloc", args.regalloc, *cap, *entries]
            ours = subprocess.run(command, capture_output=True, text=True)
            arch = re.search(r"sm_\w+", open(path, errors="replace").read(4096)).group(0)
            theirs = None
            if ours.returncode == 0:
                command = [args.ptxas, "-arch", arch, "-o", cubin, out, *entries]
                theirs = subprocess.run(command, capture_output=True, text=True)
            good = theirs is not None and theirs.returncode == 0
            assembled, refused = assembled + good * len(names), refused + (not good) * len(names)
            why = "" if good else (ours.stderr if theirs is None else theirs.stderr)[:400]
            print(f"{os.path.basename(path)}: {len(names)} {'assembled' if good else 'REFUSED ' + why}", flush=True)
    print(f"{assembled + refused} sampled, {assembled} assembled, {refused} refused")
    sys.exit(refused > 0)


main()
