//! Code with instructions inserted, and the instructions that are built for it.

use std::collections::{HashMap, HashSet};
use std::process::Command;

use warpalloc_sass::edit::{Edit, schedule};
use warpalloc_sass::isa::{
    Address, Builder, Constant, Inst, Sm, Source, SpecialRegister, SpillMemory, Width,
};
use warpalloc_sass::object::{Change, Cubin, NewCode, Rewriter};
use warpalloc_sass::{Cfg, Code, Links, decode, hazard};

use crate::tools::{CorpusCubin, Folder, corpus_cubins, output, tool};

/// What nvdisasm says of words, one line each.
fn disassembled(insts: &[Inst], sm: Sm) -> Vec<String> {
    let folder = Folder::new();
    let bytes: Vec<u8> = insts.iter().flat_map(|i| i.word().to_le_bytes()).collect();
    let path = folder.write("a.bin", bytes);
    let arch = format!("SM{}", sm.number());
    let mut command = Command::new(tool("nvdisasm").unwrap());
    let said = output(command.args(["-b", &arch]).arg(path));
    let text = |line: &str| {
        Some(
            line.split_once("*/")?
                .1
                .split(';')
                .next()?
                .trim()
                .to_owned(),
        )
    };
    said.lines().filter_map(text).collect()
}

#[test]
fn built_instructions_are_what_nvdisasm_reads() {
    if tool("nvdisasm").is_none() {
        return;
    }
    let at = |register, uniform, offset| Address {
        register,
        uniform,
        offset,
    };
    let parameter = Constant {
        bank: 3,
        offset: 0x210,
    };
    for sm in Sm::ALL {
        let build = Builder::new(sm);
        let (local, shared) = (SpillMemory::Local, SpillMemory::Shared);
        let cases = [
            (build.nop(), "NOP"),
            (build.mov(4, Source::Reg(9)), "MOV R4, R9"),
            (build.mov(4, Source::Immediate(0x1234)), "MOV R4, 0x1234"),
            (
                build.mov(4, Source::Constant(parameter)),
                "MOV R4, c[0x3][0x210]",
            ),
            (build.s2r(7, SpecialRegister::Lane), "S2R R7, SR_LANEID"),
            (build.s2r(7, SpecialRegister::ThreadX), "S2R R7, SR_TID.X"),
            (build.s2r(7, SpecialRegister::ThreadY), "S2R R7, SR_TID.Y"),
            (build.s2r(7, SpecialRegister::ThreadZ), "S2R R7, SR_TID.Z"),
            (build.iadd3(1, 2, Source::Reg(3), 4), "IADD3 R1, R2, R3, R4"),
            (
                build.iadd3(1, 2, Source::Immediate(0x10), 255),
                "IADD3 R1, R2, 0x10, RZ",
            ),
            (
                build.iadd3(1, 2, Source::Constant(Constant::STACK), 255),
                "IADD3 R1, R2, c[0x0][0x28], RZ",
            ),
            (build.imad(1, 2, Source::Reg(3), 4), "IMAD R1, R2, R3, R4"),
            (
                build.imad(1, 2, Source::Immediate(0x580), 4),
                "IMAD R1, R2, 0x580, R4",
            ),
            (
                build.imad(1, 2, Source::Constant(Constant::BLOCK_Y), 4),
                "IMAD R1, R2, c[0x0][0x4], R4",
            ),
            (
                build.lea(3, 5, Source::Immediate(0x400), 2),
                "LEA R3, R5, 0x400, 0x2",
            ),
            (build.lea(3, 5, Source::Reg(6), 24), "LEA R3, R5, R6, 0x18"),
            (
                build.and(3, 4, Source::Immediate(0x1f)),
                "LOP3.LUT R3, R4, 0x1f, RZ, 0xc0, !PT",
            ),
            (build.shift_right(2, 3, 5), "SHF.R.U32.HI R2, RZ, 0x5, R3"),
            (build.ldc(9, Constant::STACK), "LDC R9, c[0x0][0x28]"),
            (build.uldc(9, Constant::STACK), "ULDC UR9, c[0x0][0x28]"),
            (
                build.uiadd3(9, 9, 0xffff_fff0),
                "UIADD3 UR9, UR9, -0x10, URZ",
            ),
            (
                build.load(local, Width::B32, 8, at(1, None, 0x10)),
                "LDL R8, [R1+0x10]",
            ),
            (
                build.load(local, Width::B64, 8, at(255, Some(9), 0x10)),
                "LDL.64 R8, [UR9+0x10]",
            ),
            (
                build.load(shared, Width::B128, 8, at(1, None, -16)),
                "LDS.128 R8, [R1+-0x10]",
            ),
            (
                build.load(shared, Width::B32, 8, at(1, Some(9), 0)),
                "LDS R8, [R1+UR9]",
            ),
            (
                build.store(local, Width::B128, at(1, None, 0x20), 12),
                "STL.128 [R1+0x20], R12",
            ),
            (
                build.store(local, Width::B32, at(255, Some(9), 0x20), 12),
                "STL [UR9+0x20], R12",
            ),
            (
                build.store(shared, Width::B32, at(1, None, 0x1000), 255),
                "STS [R1+0x1000], RZ",
            ),
            (
                build.store(shared, Width::B64, at(1, Some(9), 0), 12),
                "STS.64 [R1+UR9], R12",
            ),
        ];
        let (insts, expected): (Vec<Inst>, Vec<&str>) = cases
            .into_iter()
            .map(|(inst, text)| (inst.unwrap(), text))
            .unzip();
        assert_eq!(disassembled(&insts, sm), expected, "{sm}");
    }
    let cluster = Builder::new(Sm::new(90).unwrap()).s2r(5, SpecialRegister::BlockInCluster);
    let cluster = disassembled(&[cluster.unwrap()], Sm::new(90).unwrap());
    assert_eq!(cluster, ["S2R R5, SR_CgaCtaId"]);
}

#[test]
fn spill_code_changes_its_memory_and_keeps_the_rest() {
    let sm = Sm::new(90).unwrap();
    let r1 = |offset| Address {
        register: 1,
        uniform: None,
        offset,
    };
    // @!P0 STL.64 [R1+0x8], R4 and LDL.LU.64 R6, [R1+0x8], as ptxas schedules them.
    let store = decode(0x0001e80000100a00_0000080401008387, sm).unwrap();
    let load = decode(0x000ea80000300a00_0000080001067983, sm).unwrap();
    let shared = |inst: &Inst| {
        inst.with_spill_address(SpillMemory::Shared, r1(0x100))
            .unwrap()
    };
    let frame = Address {
        register: 255,
        uniform: Some(20),
        offset: 8,
    };
    let local = |inst: &Inst| inst.with_spill_address(SpillMemory::Local, frame).unwrap();
    let word = |inst: &Inst, number| {
        inst.spilled_word(number, SpillMemory::Shared, r1(0x180))
            .unwrap()
    };
    let insts = [
        shared(&store),
        shared(&load),
        local(&store),
        local(&load),
        word(&store, 1),
        word(&load, 1),
    ];
    for (inst, old) in insts.iter().zip([&store, &load].into_iter().cycle()) {
        assert_eq!(inst.control(), old.control());
    }
    assert_eq!(insts[3].spill_address(), Some((SpillMemory::Local, frame)));
    if tool("nvdisasm").is_some() {
        let expected = [
            "@!P0 STS.64 [R1+0x100], R4",
            "LDS.64 R6, [R1+0x100]",
            "@!P0 STL.64 [UR20+0x8], R4",
            "LDL.LU.64 R6, [UR20+0x8]",
            "@!P0 STS [R1+0x180], R5",
            "LDS R7, [R1+0x180]",
        ];
        assert_eq!(disassembled(&insts, sm), expected);
    }
}

#[test]
fn what_does_not_fit_a_field_is_refused() {
    let build = Builder::new(Sm::new(90).unwrap());
    let far = Address {
        register: 1,
        uniform: None,
        offset: 1 << 23,
    };
    let refusals = [
        build.lea(1, 2, Source::Reg(3), 32),
        build.load(SpillMemory::Local, Width::B32, 4, far),
        build.mov(
            4,
            Source::Constant(Constant {
                bank: 0,
                offset: 0x12,
            }),
        ),
        // R255 is RZ, and four registers from R253 on leave the file.
        build.load(
            SpillMemory::Shared,
            Width::B128,
            253,
            Address { offset: 0, ..far },
        ),
    ];
    let said = refusals.map(|refusal| refusal.unwrap_err().to_string());
    assert_eq!(said[0], "0x20 does not fit the shift of LEA");
    assert_eq!(said[1], "0x800000 does not fit the offset of LDL");
    assert_eq!(said[2], "0x12 does not fit the offset of a constant of MOV");
    assert!(said[3].contains("more than there are"), "{}", said[3]);
}

/// A label or an instruction as nvdisasm prints it.
#[derive(Clone, Debug, PartialEq)]
enum Line {
    Label(String),
    Inst(usize, String),
}

fn listing(bytes: &[u8]) -> Vec<Line> {
    let folder = Folder::new();
    let path = folder.write("a.cubin", bytes);
    let said = output(Command::new(tool("nvdisasm").unwrap()).arg("-c").arg(path));
    let line = |line: &str| {
        let line = line.trim();
        if let Some(label) = line.strip_suffix(':') {
            return Some(Line::Label(label.to_owned()));
        }
        let (offset, text) = line.strip_prefix("/*")?.split_once("*/")?;
        let text = text.trim().split(';').next()?.trim();
        let offset = usize::from_str_radix(offset, 16).ok()?;
        // A hint; cleared where another instruction follows.
        let text = text.replace(".reuse", "");
        // An indirect branch counts from the beginning of the code.
        let origin = format!(" -{:#x}", offset + 16);
        let text = match text.contains("BRANCH_TARGETS") {
            true => text.replace(&origin, " from the beginning"),
            false => text,
        };
        let words: Vec<&str> = text.split_whitespace().collect();
        Some(Line::Inst(offset, words.join(" ")))
    };
    numbered(said.lines().filter_map(line).collect())
}

/// Labels that instructions name, numbered in the order of the code. `.debug_frame`, which keeps
/// its old numbers, makes nvdisasm print others.
fn numbered(mut lines: Vec<Line>) -> Vec<Line> {
    let text = |line: &Line| match line {
        Line::Inst(_, text) => Some(text.clone()),
        Line::Label(_) => None,
    };
    let words = |text: String| {
        let is_part = |c: char| !c.is_alphanumeric() && !"._$".contains(c);
        text.split(is_part).map(str::to_owned).collect::<Vec<_>>()
    };
    let named: HashSet<String> = lines.iter().filter_map(text).flat_map(words).collect();
    lines.retain(|line| !matches!(line, Line::Label(label) if !named.contains(label)));
    let labels = lines.iter().filter_map(|line| match line {
        Line::Label(label) if label.starts_with(".L_x_") => Some(label.clone()),
        _ => None,
    });
    let numbers: HashMap<String, usize> = labels.zip(0..).collect();
    let renamed = |text: &str| {
        let mut parts = text.split(".L_x_");
        let mut out = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let digits = part.len() - part.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let number = numbers[&format!(".L_x_{}", &part[..digits])];
            out += &format!("L{number}{}", &part[digits..]);
        }
        out
    };
    for line in &mut lines {
        match line {
            Line::Inst(_, text) | Line::Label(text) => *text = renamed(text),
        }
    }
    lines
}

/// The code of a function with a NOP before every instruction.
fn with_nops_everywhere(cubin: &Cubin, name: &str) -> Result<NewCode, String> {
    let function = cubin.function(name).unwrap();
    let code = Code::decode(function.code, cubin.arch.sm).unwrap();
    let links = cubin.links(function, &code);
    let mut edit = Edit::new(function, &code, &links);
    let nop = Builder::new(code.sm()).nop().unwrap();
    for index in 0..code.insts().len() {
        edit.before(index, [nop.clone()]);
    }
    edit.finish().map_err(|error| error.to_string())
}

/// Removes the NOPs that were inserted and brings offsets and return addresses back.
fn without_nops(lines: Vec<Line>) -> Vec<Line> {
    let back = |line: Line| match line {
        Line::Inst(offset, _) if offset % 32 == 0 => None,
        Line::Inst(offset, text) => {
            let old = (offset - 16) / 2;
            Some(Line::Inst(old, text))
        }
        label => Some(label),
    };
    lines.into_iter().filter_map(back).collect()
}

/// Whether two lines are moves of the same return address, before and after.
fn is_return_address(old: &Line, new: &Line) -> bool {
    let number = |line: &Line| match line {
        Line::Inst(_, text) => {
            let (start, number) = text.rsplit_once(", 0x")?;
            Some((start.to_owned(), usize::from_str_radix(number, 16).ok()?))
        }
        Line::Label(_) => None,
    };
    match (number(old), number(new)) {
        (Some((old_text, old)), Some((new_text, new))) => old_text == new_text && new == 2 * old,
        _ => false,
    }
}

#[test]
fn a_nop_before_every_instruction_changes_nothing_else() {
    if tool("nvdisasm").is_none() {
        return;
    }
    let (mut edited, mut refused) = (0, Vec::new());
    for CorpusCubin { name, bytes } in corpus_cubins() {
        let mut rewriter = Rewriter::new(bytes).unwrap();
        let cubin = rewriter.cubin().clone();
        let mut of_this = Vec::new();
        for function in &cubin.functions {
            match with_nops_everywhere(&cubin, function.name) {
                Err(error) => refused.push(format!("{name}: {}: {error}", function.name)),
                Ok(code) => of_this.push((function.name, code)),
            }
        }
        // Functions that are left as they are would have to be told apart in the listing.
        if of_this.len() < cubin.functions.len() {
            continue;
        }
        for (function, code) in of_this {
            let change = Change {
                code: Some(code),
                ..Change::default()
            };
            rewriter.change(function, change).unwrap();
        }
        let out = match rewriter.finish() {
            Ok(out) => out,
            Err(error) => {
                refused.push(format!("{name}: {error}"));
                continue;
            }
        };
        let (old, new) = (listing(bytes), without_nops(listing(&out)));
        for (old, new) in old.iter().zip(&new) {
            let texts = match (old, new) {
                (Line::Inst(at, old), Line::Inst(new_at, new)) => at == new_at && old == new,
                (old, new) => old == new,
            };
            assert!(
                texts || is_return_address(old, new),
                "{name}: {old:?}, {new:?}"
            );
        }
        assert_eq!(old.len(), new.len(), "{name}");
        let cubin = Cubin::read(&out).unwrap();
        for function in &cubin.functions {
            let code = Code::decode(function.code, cubin.arch.sm).unwrap();
            let cfg = Cfg::build(&code, &cubin.links(function, &code)).unwrap();
            let hazards = hazard::check(&code, &cfg);
            let found = hazards.first();
            assert!(found.is_none(), "{name}: {}: {}", function.name, hazards[0]);
            edited += 1;
        }
    }
    eprintln!("{edited} functions; refused: {refused:#?}");
    assert!(
        edited > 100 || corpus_cubins().is_empty(),
        "{edited} functions"
    );
}

fn code(words: &[u128]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

#[test]
fn jumps_to_the_first_instruction_pass_the_entry_by() {
    let sm = Sm::new(90).unwrap();
    let nop = Builder::new(sm).nop().unwrap();
    // BRA to itself, then EXIT.
    let bra = decode(0x000fc0000383ffff_fffffffc00fc7947, sm).unwrap();
    let exit = decode(0x000fea0003800000_000000000000794d, sm).unwrap();
    let bytes = code(&[nop.word(), bra.with_place(-32).unwrap().word(), exit.word()]);
    let function = warpalloc_fuzz::image::cubin();
    let function = Cubin::read(&function).unwrap().functions[0].clone();
    let code = Code::decode(&bytes, 90).unwrap();
    let links = Links::default();
    let mut edit = Edit::new(&function, &code, &links);
    edit.at_entry([nop.clone(), nop.clone()]);
    edit.after(1, [nop.clone()]);
    let new = edit.finish().unwrap();
    assert_eq!(new.instructions, [0x20, 0x30, 0x50, 0x60]);
    assert_eq!(new.targets, [0, 0x30, 0x50, 0x60]);
    let moved = Code::decode(&new.bytes, 90).unwrap();
    let expected = bra.with_place(-32).unwrap();
    assert_eq!(moved.insts()[3], expected, "behind the entry");
}

#[test]
fn a_sequence_waits_for_what_it_needs_and_leaves_nothing_pending() {
    let sm = Sm::new(90).unwrap();
    let build = Builder::new(sm);
    let insts = [
        build.s2r(2, SpecialRegister::ThreadX).unwrap(),
        build.and(3, 2, Source::Immediate(31)).unwrap(),
        build.lea(1, 3, Source::Immediate(0x400), 2).unwrap(),
        build.s2r(4, SpecialRegister::ThreadY).unwrap(),
    ];
    let scheduled = schedule(&insts, &[3, 5]).unwrap();
    let control: Vec<_> = scheduled.iter().map(|inst| inst.control()).collect();
    assert_eq!(control[0].write_scoreboard, Some(3));
    assert_eq!(control[1].wait_mask, 1 << 3);
    assert!(
        control[1].stall >= 4,
        "LEA reads what LOP3 writes: {}",
        control[1].stall
    );
    assert_eq!(control[3].write_scoreboard, Some(5));
    assert_eq!((scheduled.len(), scheduled[4].mnemonic()), (5, "NOP"));
    assert_eq!(control[4].wait_mask, 1 << 5);
    assert!(schedule(&insts, &[]).is_err());
}
