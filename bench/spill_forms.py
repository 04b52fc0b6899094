#!/usr/bin/env python3
"""Measures what ptxas does with spill code written in PTX, form by form.

    bench/spill_forms.py --ptxas PTXAS --nvdisasm NVDISASM [FORM...]

For each kernel below a fixed set of virtual registers is spilled everywhere: stored after every
definition, reloaded before every use. That is poor spilling and a good probe: it shows which
accesses survive. The table printed is the evidence behind docs/ptxas-behaviour.md.
"""
import argparse
import collections
import pathlib
import re
import subprocess
import tempfile

CORPUS = pathlib.Path(__file__).resolve().parent.parent / "corpus" / "ptx"
REGISTER = re.compile(r"%(?:rd|r|f|p)\d+\b")
STATEMENT = re.compile(r"(?:@!?%p\d+\s+)?([a-z][\w.:]*)\s+(.*);")
COUNTED = ("LDL", "STL", "LD", "ST", "LDS", "STS")
BLOCK = 256  # threads per block assumed by the shared forms


class Form:
    """One way to write a spill: what the function declares, its prologue, a store and a reload."""

    def __init__(self, store, load, address, prologue=(), load_address=None, shared=False, each=()):
        self.store, self.load, self.address = store, load, address
        self.load_address = load_address or address
        self.prologue, self.shared, self.each = list(prologue), shared, list(each)

    def declaration(self, size):
        space, bytes_ = (".shared", size * BLOCK) if self.shared else (".local", size)
        return f"{space} .align 16 .b8 __spill[{bytes_}];"

    def spill(self, offset, register):
        where = self.address(offset)
        if register.startswith("%tp"):
            return [*self.each, f"selp.b32 %w0, 1, 0, {register};", f"{self.store}.b32 [{where}], %w0;"]
        if self.shared and width(register) == "b64":
            halves = [f"{self.store}.b32 [{self.address(offset + 4 * i)}], %w{i};" for i in (0, 1)]
            return [f"mov.b64 {{%w0, %w1}}, {register};", *halves]
        return [*self.each, f"{self.store}.{width(register)} [{where}], {register};"]

    def reload(self, offset, register):
        where = self.load_address(offset)
        if register.startswith("%tp"):
            return [*self.each, f"{self.load}.b32 %w0, [{where}];", f"setp.ne.b32 {register}, %w0, 0;"]
        if self.shared and width(register) == "b64":
            halves = [f"{self.load}.b32 %w{i}, [{self.load_address(offset + 4 * i)}];" for i in (0, 1)]
            return [*halves, f"mov.b64 {register}, {{%w0, %w1}};"]
        return [*self.each, f"{self.load}.{width(register)} {register}, [{where}];"]


def width(register):
    return "b64" if register.startswith("%td") else "b32"


def direct(offset):
    return f"__spill+{offset}"


def based(offset):
    return f"%base+{offset}"


GENERIC = ["mov.u64 %base, __spill;", "cvta.local.u64 %base, %base;"]
# A zero that ptxas cannot see through: the shared memory of a block never reaches 2 GB.
HIDDEN_ZERO = ["mov.u32 %w1, %total_smem_size;", "shr.u32 %w1, %w1, 31;", "cvt.u64.u32 %zero, %w1;"]
OPAQUE = HIDDEN_ZERO + ["mov.u64 %base, __spill;", "add.u64 %base, %base, %zero;"]
SECOND = ["mov.u32 %w2, %warpid;", "shr.u32 %w2, %w2, 16;", "cvt.u64.u32 %zero, %w2;", "add.u64 %other, %base, %zero;"]
LINEAR_THREAD = [
    "mov.u32 %w0, %tid.z;",
    "mov.u32 %w1, %ntid.y;",
    "mov.u32 %w2, %tid.y;",
    "mad.lo.u32 %w0, %w0, %w1, %w2;",
    "mov.u32 %w1, %ntid.x;",
    "mov.u32 %w2, %tid.x;",
    "mad.lo.u32 %w0, %w0, %w1, %w2;",
    "mov.u32 %w3, __spill;",
    "mad.lo.u32 %w3, %w0, 4, %w3;",
]


def by_thread(offset):
    # Word by word across the block: a 64-bit slot takes two words, so that no access is misaligned.
    return f"%w3+{offset * BLOCK}"


FORMS = {
    "local": Form("st.local", "ld.local", direct),
    "local-cv": Form("st.local.wt", "ld.local.cv", direct),
    "local-lu": Form("st.local.cs", "ld.local.lu", direct),
    "opaque": Form("st.local", "ld.local", based, OPAQUE),
    "opaque-two": Form("st.local", "ld.local", based, OPAQUE + SECOND, lambda o: f"%other+{o}"),
    "generic": Form("st", "ld", based, GENERIC),
    "generic-volatile": Form("st.volatile", "ld.volatile", based, GENERIC),
    "generic-relaxed": Form("st.relaxed.cta", "ld.relaxed.cta", based, GENERIC),
    "relaxed-fresh": Form("st.relaxed.cta", "ld.relaxed.cta", based, each=GENERIC),
    "shared": Form("st.shared", "ld.shared", by_thread, LINEAR_THREAD, shared=True),
    "shared-volatile": Form("st.volatile.shared", "ld.volatile.shared", by_thread, LINEAR_THREAD, shared=True),
}


def pick(prefixes, uses, count, defs=1):
    def choose(defined, used):
        chosen = [r for r in defined if re.fullmatch(f"%(?:{prefixes})\\d+", r)]
        return set([r for r in chosen if used[r] >= uses and defined[r] >= defs][:count])

    return choose


# kernel file, entry, which registers to spill, cap to try beside none
KERNELS = [
    ("sgemm_rb", "sgemm_rb8", pick("f", 1, 12, 2), 80),
    ("nbody", "nbody", pick("rd|r|f", 2, 10), 24),
    ("stencil", "stencil25", pick("rd|f", 3, 16), 32),
    ("sha256", "sha256", pick("r", 3, 40), 32),
    ("bigbb", "bigbb", pick("f", 2, 40), 128),
    ("switchboard", "predicates", pick("p", 2, 16), 32),
    ("localarr", "topk", pick("rd|r|f", 2, 12), 24),
]


def read(file, entry):
    """The module's opening, the entry's signature up to its brace, and the lines of its body."""
    text = (CORPUS / f"{file}.sm_90.ptx").read_text()
    start = text.index(f".visible .entry {entry}(")
    brace = text.index("\n{", start)
    end = text.index("\n}", brace)
    return text[: text.index(".visible .entry")], text[start : brace + 2], text[brace + 3 : end].split("\n")


def operands(line):
    """(registers defined, registers used) of one instruction line, or None for anything else."""
    stripped = line.strip()
    match = STATEMENT.match(stripped)
    if stripped.startswith(".") or not match:
        return None
    opcode, arguments = match.groups()
    guard = REGISTER.findall(stripped.split()[0]) if stripped.startswith("@") else []
    if opcode.split(".")[0] in ("st", "bra", "ret", "bar", "red", "membar"):
        return [], REGISTER.findall(arguments) + guard
    cut = arguments.index("}") + 1 if arguments.startswith("{") else (arguments + ",").index(",")
    return REGISTER.findall(arguments[:cut]), REGISTER.findall(arguments[cut:]) + guard


def census(body):
    defined, used = collections.Counter(), collections.Counter()
    for line in body:
        found = operands(line)
        if found:
            defined.update(found[0])
            used.update(found[1])
    return defined, used


def slots(registers):
    offsets, size = {}, 0
    for register in sorted(registers):
        step = 8 if register.startswith("%rd") else 4
        size = (size + step - 1) // step * step
        offsets[register] = size
        size += step
    return offsets, size


def rewrite(body, registers, form):
    """The body with `registers` spilled everywhere, and how many stores and reloads were written."""
    offsets, size = slots(registers)
    fresh, out, counts, started = [], [], collections.Counter(), False
    letters = {"%rd": "d", "%r": "r", "%f": "f", "%p": "p"}
    for line in body:
        found = operands(line)
        if found is None:
            out.append(line)
            continue
        if not started:
            out += [form.declaration(size), *form.prologue]
            started = True
        defined, used = (set(part) & registers for part in found)
        if line.strip().startswith("@"):
            used |= defined  # a guarded definition keeps the old value where the guard fails
        names = {}
        for register in sorted(defined | used):
            letter = letters[re.match(r"%[a-z]+", register)[0]]
            names[register] = f"%t{letter}{len(fresh)}"
            fresh.append((letter, names[register]))
        for register in sorted(used):
            out += form.reload(offsets[register], names[register])
            counts["reloads"] += 1
        out.append(REGISTER.sub(lambda m: names.get(m[0], m[0]), line))
        for register in sorted(defined):
            out += form.spill(offsets[register], names[register])
            counts["stores"] += 1
    types = {"d": "b64", "r": "b32", "f": "f32", "p": "pred"}
    declared = [f".reg .{types[letter]} {name};" for letter, name in fresh]
    declared += [".reg .b32 %w<4>;", ".reg .b64 %base, %other, %zero;"]
    return declared + out, counts


def assemble(tools, head, signature, body, cap):
    if cap:
        signature = signature.replace("\n{", f"\n.maxnreg {cap}\n{{")
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = f"{folder}/k.ptx", f"{folder}/k.cubin"
        pathlib.Path(source).write_text(head + signature + "\n" + "\n".join(body) + "\n}\n")
        done = subprocess.run([tools.ptxas, "-v", "-arch=sm_90", source, "-o", cubin], capture_output=True, text=True)
        if done.returncode:
            return done.stderr.strip().split("\n")[0]
        sass = subprocess.run([tools.nvdisasm, "-c", cubin], capture_output=True, text=True, check=True).stdout
    opcodes = collections.Counter(re.findall(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+ )?([A-Z][A-Z0-9_]*)", sass))
    used = re.search(r"Used (\d+) registers", done.stderr)[1]
    spills = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", done.stderr).groups()
    accesses = " ".join(f"{name} {opcodes[name]}" for name in COUNTED if opcodes[name])
    return f"registers {used:>3}  ptxas spills {spills[0]:>4}/{spills[1]:<4}  {accesses}"


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--ptxas", default="ptxas")
    arguments.add_argument("--nvdisasm", default="nvdisasm")
    arguments.add_argument("forms", nargs="*", choices=[*FORMS, []])
    tools = arguments.parse_args()
    for file, entry, choose, cap in KERNELS:
        head, signature, body = read(file, entry)
        registers = choose(*census(body))
        print(f"{entry}: {len(registers)} registers spilled")
        for name in ["as it is", *(tools.forms or FORMS)]:
            text, counts = (body, {}) if name == "as it is" else rewrite(body, registers, FORMS[name])
            written = f"{counts['stores']:>3} st {counts['reloads']:>3} ld" if counts else ""
            for limit in (0, cap):
                label = f"cap {limit}" if limit else "no cap"
                print(f"  {name:<17}{label:<8}{written:<16}{assemble(tools, head, signature, text, limit)}")


if __name__ == "__main__":
    main()
