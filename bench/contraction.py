#!/usr/bin/env python3
"""Finds out which products ptxas fuses into sums, and checks that we foresee it.

    bench/contraction.py --ptxas PTXAS --nvdisasm NVDISASM table
    bench/contraction.py --ptxas PTXAS --nvdisasm NVDISASM --contract BIN corpus [FILE...]
    bench/contraction.py --ptxas PTXAS --nvdisasm NVDISASM --contract BIN random SEED COUNT

`table` assembles small kernels and prints what each output is computed from in the machine code,
the evidence behind "Contraction" in docs/ptxas-behaviour.md. `corpus` and `random` assemble a module
as it is and with contraction made explicit by BIN (`cargo build -p warpalloc-micro --bin contract`), and compare
machine code; where it differs, the expressions that each output is computed from.
"""
import argparse
import collections
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile

CORPUS = pathlib.Path(__file__).resolve().parent.parent / "corpus" / "ptx"
INPUTS = "abcdefgh"
# Type: register type, bytes, type of loads and stores.
TYPES = {
    "f32": ("f32", 4, "f32"),
    "f64": ("f64", 8, "f64"),
    "f16": ("b16", 2, "b16"),
    "bf16": ("b16", 2, "b16"),
    "f16x2": ("b32", 4, "b32"),
    "bf16x2": ("b32", 4, "b32"),
    "f32x2": ("b64", 8, "b64"),
}
TOOLS = {}


def head(arch):
    return f".version 8.8\n.target {arch}\n.address_size 64\n"


def kernel(name, body, ty="f32"):
    """A kernel that loads `%a` to `%h`, runs `body`, and stores `%x` for each `out %x;` in it."""
    register, size, memory = TYPES[ty]
    out = [
        f".visible .entry {name}(.param .u64 p, .param .u32 n, .param .f32 k)",
        "{",
        f".reg .{register} %a,%b,%c,%d,%e,%f,%g,%h,%x<30>;",
        ".reg .b64 %p,%pp; .reg .pred %q,%q2; .reg .b32 %r,%i;",
        "ld.param.u64 %p,[p]; cvta.to.global.u64 %p,%p; ld.param.u32 %r,[n];",
        "setp.gt.s32 %q,%r,5; setp.gt.s32 %q2,%r,7;",
    ]
    out += [f"ld.global.{memory} %{n},[%p+{i * size}];" for i, n in enumerate(INPUTS)]
    stores = 0
    for part in re.split(r"(?<=[;:}{])\s*", body.strip()):
        store = re.match(r"(@!?%\w+ )?out (%\w+);", part)
        if store:
            address = 1024 + stores * size
            out.append(f"{store[1] or ''}st.global.{memory} [%p+{address}],{store[2]};")
            stores += 1
        elif part:
            out.append(part)
    return "\n".join([*out, "ret;", "}", ""])


def sass(text, arch, options=()):
    """The machine code of each function."""
    with tempfile.TemporaryDirectory() as folder:
        ptx, cubin = pathlib.Path(folder, "k.ptx"), pathlib.Path(folder, "k.cubin")
        ptx.write_text(text)
        command = [TOOLS["ptxas"], f"-arch={arch}", "-c", *options, str(ptx), "-o", str(cubin)]
        assembled = subprocess.run(command, capture_output=True, text=True)
        if assembled.returncode:
            raise RuntimeError(assembled.stderr)
        dump = subprocess.run([TOOLS["nvdisasm"], "-c", str(cubin)], capture_output=True, text=True)
    functions, current = {}, None
    for line in dump.stdout.splitlines():
        section = re.match(r"\s*\.section\s+\.text\.([\w$]+)", line)
        instruction = re.match(r"\s*/\*[0-9a-f]+\*/\s+(.*?)\s*;", line)
        if section:
            current = functions.setdefault(section[1], [])
        elif line.startswith("//---"):
            current = None
        elif instruction and current is not None:
            current.append(re.sub(r"\.L_\w+", "L", instruction[1]))
    return functions


ARITHMETIC = re.compile(r"[FDH](?:MUL2?|ADD2?|FMA2?)\b")
VALUES = ("MOV", "PRMT", "FSEL", "SEL", "IMAD", "F2F", "F2FP", "LOP3", "LDC", "UMOV", "FMNMX")
REGISTER = re.compile(r"(-)?(\|)?\b(R\d+|UR\d+)\b\|?((?:\.\w+)*)")


def evaluate(instructions, size):
    """What operations there are, and the expression behind each output, blocks in order."""
    values, outputs, operations = {}, [], collections.Counter()

    def use(match):
        value = values.get(match[3], match[3])
        suffix = match[4].replace(".reuse", "").replace(".64", "")
        value = f"|{value}|" if match[2] else value
        return (match[1] or "") + value + suffix

    for instruction in instructions:
        guard, opcode, rest = re.match(r"(@!?U?P\w+ )?(\S+)\s*(.*)", instruction).groups()
        offset = re.search(r"\+(0x[0-9a-f]+)\]", rest)
        offset = int(offset[1], 16) if offset else 0
        words = 4 if ".128" in opcode else 2 if ".64" in opcode else 1
        if opcode.startswith("LDG") and not opcode.startswith("LDGSTS") and offset < 8 * size:
            first = int(rest.split(",")[0][1:])
            for byte in range(0, 4 * words, max(4, size)):
                number = (offset + byte) // size
                values[f"R{first + byte // 4}"] = INPUTS[number] if number < 8 else "?"
        elif opcode.startswith("STG") and 1024 <= offset < 2048:
            source = rest.split(",")[-1].strip()
            value = REGISTER.sub(use, source)
            if 4 * words > size >= 4:
                names = (f"R{int(source[1:]) + i}" for i in range(0, words, size // 4))
                value = ";".join(values.get(name, "?") for name in names)
            outputs.append(f"{guard or ''}o{(offset - 1024) // size}={value}")
        elif ARITHMETIC.match(opcode) or opcode.split(".")[0] in VALUES:
            target, *sources = re.split(r",\s*", rest)
            sources = [REGISTER.sub(use, source) for source in sources]
            is_constant = opcode.startswith("HFMA2") and "-RZ" in sources[0]
            if ARITHMETIC.match(opcode) and not is_constant:
                operations[opcode.split(".")[0]] += 1
            if opcode == "MOV" or opcode.startswith("IMAD.MOV"):
                value = sources[-1]
            else:
                name = opcode.replace(".MMA", "").replace(".F32", "")
                value = f"{name}({','.join(sources)})"
            target = target.split(".")[0]
            old = values.get(target, "_")
            values[target] = f"[{guard.strip()}?{value}:{old}]" if guard else value
    return operations, outputs


# Expressions in a form that equal values share: signs pulled out, operands sorted, a sum with one
# as a factor or with minus zero as what it is.


def parse(text):
    at = 0

    def value():
        nonlocal at
        negative = text[at : at + 1] == "-"
        at += negative
        if text[at : at + 1] == "|":
            at += 1
            result = ("abs", value())
            at += 1
        elif text[at : at + 1] == "[":
            mark = text.index("?", at)
            condition = text[at + 1 : mark]
            at = mark + 1
            first = value()
            at += 1
            result = ("choice", condition, first, value())
            at += 1
        else:
            name = re.compile(r"[\w.!+]+(?:\[\w+\])*").match(text, at)[0]
            at += len(name)
            result = name
            if text[at : at + 1] == "(":
                at += 1
                sources = []
                while text[at] != ")":
                    sources.append(value())
                    at += text[at] == ","
                at += 1
                result = ("operation", name, sources)
        suffix = re.compile(r"(?:\.\w+)*").match(text, at)[0]
        at += len(suffix)
        if suffix.replace(".H0_H0", ""):
            result = ("part", suffix, result)
        return ("minus", result) if negative else result

    result = value()
    if at != len(text):
        raise ValueError(text)
    return result


def canonical(tree):
    if isinstance(tree, str):
        name = tree.removesuffix(".H0_H0")
        return (1, "0" if name == "RZ" else name)
    if tree[0] == "minus":
        sign, value = canonical(tree[1])
        return (-sign, value)
    if tree[0] == "abs":
        value = canonical(tree[1])[1]
        is_positive = value[0] == "abs" or value[0] == "mul" and value[1] == value[2]
        return (1, value if is_positive else ("abs", value))
    if tree[0] == "part":
        sign, value = canonical(tree[2])
        return (sign, ("part", tree[1], value))
    if tree[0] == "choice":
        return choice(tree[1].lstrip("@"), canonical(tree[2]), canonical(tree[3]))
    return operation(tree[1], tree[2])


def choice(condition, first, second):
    if condition.startswith("!"):
        first, second, condition = second, first, condition[1:]
    return (1, ("choice", condition, first, second))


def operation(name, sources):
    base, *modifiers = name.split(".")
    modifiers = ".".join(m for m in modifiers if m not in ("MMA", "F32", "LUT"))
    values = [canonical(source) for source in sources]
    if base == "LOP3" and sources[1] in ("0x80008000", "0x80000000"):
        return (-values[0][0], values[0][1])
    if base in ("FSEL", "SEL") and isinstance(sources[2], str):
        return choice(sources[2], values[0], values[1])
    if base in ("FMUL", "DMUL", "HMUL2", "FMUL2"):
        return product(values, modifiers)
    if base in ("FADD", "DADD", "HADD2", "FADD2"):
        return addition(values[0], values[1], modifiers)
    if base in ("FFMA", "DFMA", "HFMA2", "FFMA2"):
        if len(values) == 4 and sources[1] == sources[2]:
            values = [values[0], values[1], values[3]]
        sign, (_, first, second, _) = product(values, modifiers)
        if "1" in (first, second):
            return addition((sign, second if first == "1" else first), values[2], modifiers)
        if (first, second) == ("0", "0"):
            return values[2]
        if values[2] == (-1, "0") and "SAT" not in modifiers:
            return (sign, ("mul", first, second, modifiers))
        return (1, ("fma", sign, first, second, values[2], modifiers))
    return (1, (name, *values))


def product(values, modifiers):
    factors = sorted((values[0][1], values[1][1]), key=repr)
    return (values[0][0] * values[1][0], ("mul", *factors, modifiers))


def addition(first, second, modifiers):
    terms = sorted((first, second), key=repr)
    others = [term for term in terms if term != (-1, "0")]
    if len(others) == 1 and "SAT" not in modifiers:
        return others[0]
    return (1, ("add", *terms, modifiers))


def expressions(outputs):
    result = []
    for output in outputs:
        name, value = output.split("=", 1)
        try:
            result.append((name, canonical(parse(value))))
        except (ValueError, IndexError):
            result.append((name, value))
    return sorted(result, key=repr)


# The table.

MUL, TWO = "mul.T %x0,%a,%b; ", "mul.T %x0,%a,%b; mul.T %x2,%c,%d; "
IF = "@%q bra L0; bar.sync 0; L0: "
LOOP = "add.s32 %r,%r,-1; setp.ne.s32 %q,%r,0; @%q bra L1; out %x1;"
PI = "0f40490FDB"
CASES = {
    "product and sum": MUL + "add.T %x1,%x0,%c; out %x1;",
    "sum and product": MUL + "add.T %x1,%c,%x0; out %x1;",
    "product less": MUL + "sub.T %x1,%x0,%c; out %x1;",
    "less product": MUL + "sub.T %x1,%c,%x0; out %x1;",
    "rounded product": "mul.rn.T %x0,%a,%b; add.T %x1,%x0,%c; out %x1;",
    "rounded sum": MUL + "add.rn.T %x1,%x0,%c; out %x1;",
    "through neg": MUL + "neg.T %x2,%x0; add.T %x1,%x2,%c; out %x1;",
    "through abs": MUL + "abs.T %x2,%x0; add.T %x1,%x2,%c; out %x1;",
    "two products": TWO + "add.T %x1,%x0,%x2; out %x1;",
    "two products, other order": TWO + "add.T %x1,%x2,%x0; out %x1;",
    "two, first read twice": TWO + "add.T %x1,%x0,%x2; add.T %x3,%x0,%e; out %x1; out %x3;",
    "two, first read before": TWO + "add.T %x3,%x0,%e; add.T %x1,%x0,%x2; out %x1; out %x3;",
    "two, both read twice": TWO + "add.T %x1,%x0,%x2; sub.T %x3,%x0,%x2; out %x1; out %x3;",
    "two, both read before": TWO + "add.T %x4,%x2,%f; add.T %x3,%x0,%e; add.T %x1,%x0,%x2; out %x1; out %x3; out %x4;",
    "three readers": MUL + "add.T %x1,%x0,%c; add.T %x2,%x0,%d; add.T %x3,%x0,%e; out %x1; out %x2; out %x3;",
    "stored as well": MUL + "add.T %x1,%x0,%c; out %x1; out %x0;",
    "addend of fma as well": MUL + "add.T %x1,%x0,%c; fma.rn.T %x2,%e,%d,%x0; out %x1; out %x2;",
    "dead reader": MUL + "add.T %x1,%x0,%c; mul.T %x2,%x0,%d; out %x1;",
    "added to itself": MUL + "add.T %x1,%x0,%x0; out %x1;",
    "added to an equal one": "mul.T %x0,%a,%b; mul.T %x2,%a,%b; add.T %x1,%x0,%x2; out %x1;",
    "less an equal one": "mul.T %x0,%a,%b; mul.T %x2,%a,%b; sub.T %x1,%x0,%x2; out %x1;",
    "three products": TWO + "mul.T %x5,%e,%f; add.T %x3,%x0,%x2; add.T %x4,%x3,%x5; out %x4;",
    "guarded sum": MUL + "mov.TB %x1,%d; @%q add.T %x1,%x0,%c; out %x1;",
    "guarded product": "mov.TB %x0,%d; @%q mul.T %x0,%a,%b; add.T %x1,%x0,%c; out %x1;",
}
SINGLE = {
    "saturated product": "mul.sat.T %x0,%a,%b; add.T %x1,%x0,%c; out %x1;",
    "saturated sum": MUL + "add.sat.T %x1,%x0,%c; out %x1;",
    "flushed product": "mul.ftz.T %x0,%a,%b; add.T %x1,%x0,%c; out %x1;",
    "flushed sum": MUL + "add.ftz.T %x1,%x0,%c; out %x1;",
    "both flushed": "mul.ftz.T %x0,%a,%b; add.ftz.T %x1,%x0,%c; out %x1;",
    "product with one": f"mul.T %x0,%a,0f3F800000; mul.T %x2,%c,%d; add.T %x1,%x0,%x2; out %x1;",
    "through memory": ".local .f32 v; mul.T %x0,%a,%b; st.local.T [v],%x0; ld.local.T %x2,[v]; add.T %x1,%x2,%c; out %x1;",
    "approximate quotient": "div.approx.ftz.T %x0,%a,%b; add.ftz.T %x1,%x0,%c; out %x1;",
    "label between": MUL + "L1: add.T %x1,%x0,%c; out %x1;",
    "barrier between": MUL + "bar.sync 0; add.T %x1,%x0,%c; out %x1;",
    "fence between": MUL + "membar.gl; add.T %x1,%x0,%c; out %x1;",
    "guarded store between": MUL + "@%q st.global.b32 [%p+4096],%r; add.T %x1,%x0,%c; out %x1;",
    "exact division between": MUL + "div.rn.T %x5,%d,%e; add.T %x1,%x0,%c; out %x1; out %x5;",
    "branch between": MUL + IF + "add.T %x1,%x0,%c; out %x1;",
    "branch between, constant factor": f"mul.T %x0,%a,{PI}; {IF} add.T %x1,%x0,%c; out %x1;",
    "branch between, parameter": f"ld.param.f32 %x5,[k]; mul.T %x0,%a,%x5; {IF} add.T %x1,%x0,%c; out %x1;",
    "into a loop": MUL + "mov.f32 %x1,%c; L1: add.T %x1,%x1,%x0; " + LOOP,
    "into a loop of 4 turns": MUL + "mov.f32 %x1,%c; mov.u32 %r,4; L1: add.T %x1,%x1,%x0; " + LOOP,
    "to the next turn": "mov.f32 %x1,%c; mov.f32 %x0,%d; L1: add.T %x1,%x1,%x0; mul.T %x0,%x1,%b; " + LOOP,
    "to the next turn, nounroll": 'mov.f32 %x1,%c; mov.f32 %x0,%d; L1: .pragma "nounroll"; add.T %x1,%x1,%x0; mul.T %x0,%x1,%b; ' + LOOP,
}


def table(_):
    runs = [(ty, "sm_90", (), CASES) for ty in TYPES if ty != "f32x2"]
    runs += [("f32x2", "sm_100", (), CASES), ("f32", "sm_90", (), SINGLE)]
    few = {name: CASES[name] for name in ("product and sum", "two products", "three readers")}
    runs += [("f32", "sm_90", (level,), few) for level in ("-O0", "-O1", "-O2", "-O3")]
    runs += [("f32", "sm_90", ("-fmad", "false"), few), ("f32x2", "sm_100", ("-fmad", "false"), few)]
    for ty, arch, options, cases in runs:
        print(f"\n{ty}, {arch} {' '.join(options)}")
        bits = 8 * TYPES[ty][1]
        for name, body in cases.items():
            body = body.replace(".TB", f".b{bits}").replace(".T ", f".{ty} ").replace(".T", f".{ty}")
            try:
                code = sass(head(arch) + kernel("k", body, ty), arch, options)["k"]
            except RuntimeError:
                print(f"  {name:32} not in this type")
                continue
            operations, outputs = evaluate(code, TYPES[ty][1])
            counts = " ".join(f"{n} {op}" for op, n in sorted(operations.items()))
            shown = "  ".join(o if len(o) < 100 else o[:97] + "..." for o in outputs)
            print(f"  {name:32} {counts:24} {shown}")


# Comparison with ours.


def contracted(path):
    run = subprocess.run([TOOLS["contract"], "ptxas", str(path)], capture_output=True, text=True)
    if run.returncode:
        sys.exit(run.stderr)
    left = dict(line.split(": left: ") for line in run.stderr.splitlines() if ": left: " in line)
    return run.stdout, left


def corpus(args):
    files = [pathlib.Path(f) for f in args.rest] or sorted(CORPUS.glob("*.ptx"))
    total = identical = 0
    for path in files:
        source = path.read_text()
        arch = re.search(r"\.target\s+(\w+)", source)[1]
        text, left = contracted(path)
        for name, reason in left.items():
            print(f"{path.name}: {name} is left alone: {reason}")
        before, after = sass(source, arch), sass(text, arch)
        for name in before:
            total += 1
            identical += before[name] == after[name]
            if before[name] != after[name]:
                print(f"{path.name}: {name} differs", *(evaluate(f[name], 4)[0] for f in (before, after)))
    print(f"{total} functions, {identical} with identical machine code")


def random_body(rng, ty):
    """Statements at random: names written again, guards, fences, branches, constants."""
    bits = 8 * TYPES[ty][1]
    values, products, defined, lines = [f"%{n}" for n in INPUTS], [], [], []
    flushes = ty in ("f32", "f16", "f16x2") and rng.random() < 0.25

    def constant():
        number = rng.choice([1.0, -1.0, 2.0, 3.1415927, 0.0])
        if ty == "f32":
            return "0f%08X" % struct.unpack("<I", struct.pack("<f", number))[0]
        return "0d%016X" % struct.unpack("<Q", struct.pack("<d", number))[0]

    def factor():
        is_constant = ty in ("f32", "f64") and rng.random() < 0.12
        return constant() if is_constant else rng.choice(values)

    kinds = {"mul": 6, "add": 6, "sub": 4, "neg": 1, "mov": 0.7, "guard": 0.8, "end": 0.5, "if": 0.5, "abs": 0.3, "fma": 0.4}
    for number in range(rng.randint(5, 22)):
        kind = rng.choices(list(kinds), list(kinds.values()))[0]
        is_new = not defined or len(defined) < 29 and rng.random() < 0.85
        target = f"%x{len(defined)}" if is_new else rng.choice(defined)
        ftz = ".ftz" if flushes and rng.random() < 0.9 else ""
        rounding = ".rn" if rng.random() < 0.06 else ""
        any_value = rng.choice(products + values)
        if kind == "mul":
            lines.append(f"mul{rounding}{ftz}.{ty} {target},{rng.choice(values)},{factor()};")
        elif kind in ("add", "sub"):
            addends = [rng.choice(products) if products and rng.random() < 0.6 else rng.choice(values) for _ in "12"]
            lines.append(f"{kind}{rounding}{ftz}.{ty} {target},{','.join(addends)};")
        elif kind == "neg":
            lines.append(f"neg.{ty} {target},{any_value};")
        elif kind == "mov":
            lines.append(f"mov.b{bits} {target},{any_value};")
        elif kind == "abs":
            lines.append(f"abs.{ty} {target},{any_value};")
        elif kind == "fma":
            lines.append(f"fma.rn{ftz}.{ty} {target},{rng.choice(values)},{rng.choice(values)},{any_value};")
        elif kind == "guard" and defined:
            guard = rng.choice(["@%q", "@!%q", "@%q2"])
            opcode = rng.choice(["mul", "add", "sub"])
            lines.append(f"{guard} {opcode}{ftz}.{ty} {rng.choice(defined)},{any_value},{rng.choice(products + values)};")
            continue
        elif kind == "end":
            lines.append(rng.choice(["bar.sync 0;", "membar.gl;", "@%q st.global.b32 [%p+8192],%r;", "st.global.b32 [%p+8192],%r;"]))
            continue
        elif kind == "if":
            lines.append(f"@%q bra L{number}; st.global.b32 [%p+{8200 + 4 * number}],%r; L{number}:")
            continue
        else:
            continue
        if is_new:
            defined.append(target)
        here, there = (products, values) if kind in ("mul", "neg", "mov") else (values, products)
        here.append(target)
        while target in there:
            there.remove(target)
    outputs = [d for d in defined if rng.random() < (0.12 if d in products else 0.85)]
    return " ".join(lines + [f"out {o};" for o in outputs])


def at_random(args):
    seed, count = map(int, args.rest)
    rng = random.Random(seed)
    kinds = ["f32"] * 6 + ["f64"] * 2 + ["f16", "f16x2"]
    kinds += ["bf16", "bf16x2"] if int(args.arch[3:].rstrip("af")) >= 90 else []
    bodies = []
    while len(bodies) < count:
        ty = rng.choice(kinds)
        body = random_body(rng, ty)
        if "out" in body:
            bodies.append((ty, body))
    source = head(args.arch) + "".join(kernel(f"k{i}", b, ty) for i, (ty, b) in enumerate(bodies))
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(source)
        file.flush()
        text, left = contracted(file.name)
    before, after = sass(source, args.arch), sass(text, args.arch)
    identical = different = 0
    for index, (ty, body) in enumerate(bodies):
        name = f"k{index}"
        if name in left or before[name] == after[name]:
            identical += name not in left
            continue
        runs = [evaluate(f[name], TYPES[ty][1]) for f in (before, after)]
        pair = [expressions(outputs) for _, outputs in runs]
        # Halves that ptxas computes two at a time do not show which half is stored.
        if "PRMT" in str(pair) and runs[0][0].total() == runs[1][0].total():
            continue
        if pair[0] != pair[1]:
            different += 1
            print(ty, body)
            for ours, theirs in zip(pair[1], pair[0]):
                if ours != theirs:
                    print("  ptxas", theirs, "\n  ours ", ours)
    print(f"{count} kernels for {args.arch}: {len(left)} left alone, {identical} with identical machine code, {different} with other expressions")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ptxas", required=True)
    parser.add_argument("--nvdisasm", required=True)
    parser.add_argument("--contract", help="the example `contract` of warpalloc-ptx")
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("what", choices=["table", "corpus", "random"])
    parser.add_argument("rest", nargs="*")
    args = parser.parse_args()
    TOOLS.update(ptxas=args.ptxas, nvdisasm=args.nvdisasm, contract=args.contract)
    if args.what != "table" and not args.contract:
        parser.error("--contract is needed")
    {"table": table, "corpus": corpus, "random": at_random}[args.what](args)


if __name__ == "__main__":
    main()
