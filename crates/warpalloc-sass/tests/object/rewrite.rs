//! Cubins with changed functions.

use std::process::Command;

use warpalloc_fuzz::image;
use warpalloc_sass::Code;
use warpalloc_sass::object::{AttributeKind, Change, Cubin, IndirectBranch, NewCode, Rewriter};

use crate::tools::{CorpusCubin, Folder, corpus_cubins, output, tool};

fn changed(bytes: &[u8], function: &str, change: Change) -> Result<Vec<u8>, String> {
    let mut rewriter = Rewriter::new(bytes).unwrap();
    let result = rewriter.change(function, change);
    let result = result.and_then(|()| rewriter.finish());
    result.map_err(|error| error.to_string())
}

/// `code` with `count` NOPs before the instruction at `at`; jumps to it go to the NOPs.
fn with_nops(code: &[u8], at: usize, count: usize) -> NewCode {
    let nops = image::words(&image::NOP).repeat(count);
    let end = code.len() / 16;
    let moved =
        |index: usize, from: usize| index * 16 + if index * 16 >= from { nops.len() } else { 0 };
    NewCode {
        bytes: [&code[..at], &nops, &code[at..]].concat(),
        instructions: (0..=end).map(|index| moved(index, at)).collect(),
        targets: (0..=end).map(|index| moved(index, at + 1)).collect(),
    }
}

#[test]
fn a_cubin_without_changes_comes_out_as_it_was() {
    let hand_made = CorpusCubin {
        name: "hand-made".to_owned(),
        bytes: image::cubin(),
    };
    for CorpusCubin { name, bytes } in corpus_cubins().iter().chain([&hand_made]) {
        let mut rewriter = Rewriter::new(bytes).unwrap();
        assert!(rewriter.finish().unwrap() == *bytes, "{name}");
        let functions = rewriter.cubin().functions.clone();
        for function in functions {
            let change = Change {
                code: Some(NewCode::in_place(function.code.to_vec())),
                registers: function.registers.map(|registers| registers as u8),
                frame_bytes: function.frame_bytes,
                stack_bytes: function.stack_bytes,
                shared_bytes: Some(function.shared_bytes),
                mask_registers: None,
            };
            rewriter.change(function.name, change).unwrap();
        }
        assert!(
            rewriter.finish().unwrap() == *bytes,
            "{name}: with equal changes"
        );
    }
}

#[test]
fn numbers_are_changed_wherever_they_stand() {
    let mut parts = image::cubin_parts();
    parts[0].info |= 24 << 24;
    let bytes = image::elf(190, 7, 0x005a_055a, &parts);
    let change = Change {
        registers: Some(40),
        frame_bytes: Some(64),
        stack_bytes: Some(96),
        shared_bytes: Some(0x800),
        ..Change::default()
    };
    let out = changed(&bytes, "k", change).unwrap();
    let cubin = Cubin::read(&out).unwrap();
    let k = cubin.function("k").unwrap();
    assert_eq!(k.registers, Some(40));
    assert_eq!(cubin.sections[k.section].info, 40 << 24 | 1);
    assert_eq!((k.frame_bytes, k.stack_bytes), (Some(64), Some(96)));
    assert_eq!((k.shared_bytes, k.reserved_shared_bytes), (0x800, 0x400));
    assert_eq!(k.inner[0].frame_bytes, Some(8));
    assert_eq!(out.len(), bytes.len());
}

#[test]
fn everything_that_names_a_place_in_code_follows_it() {
    let mut parts = image::cubin_parts();
    // Three exits, one of them behind the place where code is put.
    parts[2]
        .data
        .extend(image::attribute(0x1c, &[0x10, 0x20, 0x50]));
    parts[2].size = parts[2].data.len() as u64;
    let bytes = image::elf(190, 8, 0x0600_5a04, &parts);
    let old = Cubin::read(&bytes).unwrap();
    let code = with_nops(old.function("k").unwrap().code, 0x20, 3);
    let change = Change {
        code: Some(code.clone()),
        ..Change::default()
    };
    let out = changed(&bytes, "k", change).unwrap();
    let cubin = Cubin::read(&out).unwrap();
    let k = cubin.function("k").unwrap();
    assert_eq!(k.code, code.bytes);
    let exits = k.attribute(AttributeKind::EXIT_INSTR_OFFSETS).unwrap();
    assert_eq!(exits.words().collect::<Vec<_>>(), [0x10, 0x50, 0x80]);
    // A jump to the instruction behind the NOPs passes through them.
    let targets = vec![0x20, 0x60];
    assert_eq!(
        k.indirect_branches(),
        [IndirectBranch {
            offset: 0x10,
            targets
        }]
    );
    assert_eq!((k.inner[0].offset, k.inner[0].size), (0x70, 0x20));
    assert_eq!(cubin.symbols[1].size, 0x90);
    // The relocated instruction is behind the NOPs, and so is the place it speaks of.
    let relocation = k.relocations[0];
    assert_eq!((relocation.offset, relocation.addend), (0x50, Some(0x60)));
    for (before, after) in old.sections.iter().zip(&cubin.sections) {
        let (name, growth) = (before.name, after.offset - before.offset);
        assert!(growth == 0 || growth == 128, "{name} moved by {growth}");
        let may_differ = [".text.k", ".nv.info.k", ".symtab", ".rela.text.k"];
        assert!(
            may_differ.contains(&name) || before.data == after.data,
            "{name}"
        );
    }
}

#[test]
fn notes_on_instructions_follow_them() {
    let mut parts = image::cubin_parts();
    let notes = image::attribute(0x55, &[1, 0x10, 1, 0x30]);
    let unused = image::attribute(0x44, &[0x40, 0xfff0]);
    parts[2].data = [notes, unused].concat();
    parts[2].size = parts[2].data.len() as u64;
    let bytes = image::elf(190, 8, 0x0600_5a04, &parts);
    let change = Change {
        code: Some(with_nops(&parts[0].data, 0x20, 3)),
        ..Change::default()
    };
    let out = changed(&bytes, "k", change.clone()).unwrap();
    let cubin = Cubin::read(&out).unwrap();
    let k = cubin.function("k").unwrap();
    let words = |kind| k.attribute(kind).unwrap().words().collect::<Vec<_>>();
    assert_eq!(words(AttributeKind::ANNOTATIONS), [1, 0x10, 1, 0x60]);
    assert_eq!(
        words(AttributeKind::UNUSED_LOAD_BYTE_OFFSET),
        [0x70, 0xfff0]
    );
    parts[2].data = image::attribute(0x55, &[2, 0x10]);
    parts[2].size = parts[2].data.len() as u64;
    let bytes = image::elf(190, 8, 0x0600_5a04, &parts);
    assert_eq!(
        changed(&bytes, "k", change).unwrap_err(),
        "k: what EIATTR_ANNOTATIONS notes is not known"
    );
}

#[test]
fn a_kernel_without_shared_memory_gets_a_section_for_it() {
    let mut parts = image::cubin_parts();
    parts[3].name = ".nv.other.k";
    for (flags, kept) in [(0x0600_5a04, 0x400), (0x0600_5004, 0)] {
        let bytes = image::elf(190, 8, flags, &parts);
        let change = Change {
            code: Some(with_nops(&parts[0].data, 0x20, 3)),
            shared_bytes: Some(0x1600),
            ..Change::default()
        };
        let out = changed(&bytes, "k", change).unwrap();
        let (old, new) = (Cubin::read(&bytes).unwrap(), Cubin::read(&out).unwrap());
        let k = new.function("k").unwrap();
        assert_eq!((k.shared_bytes, k.reserved_shared_bytes), (0x1600, kept));
        let added = new.sections.last().unwrap();
        assert_eq!(added.name, ".nv.shared.k");
        assert_eq!(added.info as usize, k.section);
        let names = |cubin: &Cubin| cubin.sections.iter().map(|s| s.name.to_owned()).collect();
        let (old, mut new): (Vec<_>, Vec<_>) = (names(&old), names(&new));
        new.pop();
        assert_eq!(old, new);
    }
}

#[test]
fn code_behind_the_last_instruction_belongs_to_the_kernel() {
    let bytes = image::cubin();
    let change = Change {
        code: Some(with_nops(&[0; 0x60], 0x60, 2)),
        ..Change::default()
    };
    let out = changed(&bytes, "k", change).unwrap();
    let cubin = Cubin::read(&out).unwrap();
    let sizes: Vec<_> = cubin.symbols.iter().map(|symbol| symbol.size).collect();
    assert_eq!(sizes, [0, 0x80, 0x20]);
}

#[test]
fn what_would_be_guessed_is_refused() {
    let growing = |parts: &[image::Part]| {
        let bytes = image::elf(190, 8, 0x0600_5a04, parts);
        let code = with_nops(&parts[0].data, 0x20, 1);
        let change = Change {
            code: Some(code),
            ..Change::default()
        };
        changed(&bytes, "k", change).unwrap_err()
    };
    let mut parts = image::cubin_parts();
    parts[2].data = image::attribute(0x39, &[0x10, 7]);
    parts[2].size = parts[2].data.len() as u64;
    assert_eq!(
        growing(&parts),
        "k: how to move what EIATTR_MBARRIER_INSTR_OFFSETS says is not known"
    );
    parts[2].data = image::attribute(0x7e, &[0x10]);
    parts[2].size = parts[2].data.len() as u64;
    assert_eq!(
        growing(&parts),
        "k: how to move what attribute 0x7e says is not known"
    );
    parts[2].data = image::attribute(0x1c, &[0x14]);
    parts[2].size = parts[2].data.len() as u64;
    assert_eq!(
        growing(&parts),
        "k: EIATTR_EXIT_INSTR_OFFSETS names 0x14, where no instruction begins"
    );
    let mut parts = image::cubin_parts();
    parts[4].name = ".nv.constant2.k";
    parts[4].data = image::words(&[0x20, 0x30, 0x40]);
    parts[4].size = 12;
    assert_eq!(
        growing(&parts),
        "k: .nv.constant2.k holds 0x40 among the targets of branches"
    );
    // `CALL.REL.NOINC R2 0x10`: by an address in registers.
    let mut parts = image::cubin_parts();
    let call = [0x0200_7344, 0, 0x03c0_0000, 0x000f_ea00];
    parts[0].data[..16].copy_from_slice(&image::words(&call));
    assert!(Code::decode(&parts[0].data, 90).is_ok());
    assert_eq!(
        growing(&parts),
        "k: functions within it may be called by their old addresses"
    );
    let mut parts = image::cubin_parts();
    parts.push(image::part(
        ".nv.capmerc.text.k",
        image::INFO + 0x16,
        1,
        vec![0; 16],
    ));
    assert_eq!(
        growing(&parts),
        "k: .nv.capmerc.text.k describes the code a second time"
    );
    let bytes = image::cubin();
    let refusal = |change| changed(&bytes, "k", change).unwrap_err();
    let shorter = Change {
        code: Some(NewCode::in_place(vec![0; 0x50])),
        ..Change::default()
    };
    assert_eq!(
        refusal(shorter),
        "k: 80 bytes of code for 96: code can only grow"
    );
    let mut code = with_nops(&[0; 0x60], 0x20, 1);
    code.targets.pop();
    let change = Change {
        code: Some(code),
        ..Change::default()
    };
    assert_eq!(
        refusal(change),
        "k: 7 places in the new code are needed, in order"
    );
    let absent = changed(&bytes, "other", Change::default()).unwrap_err();
    assert_eq!(absent, "there is no function other");
    let mut parts = image::cubin_parts();
    parts[1].data.clear();
    parts[1].size = 0;
    let bytes = image::elf(190, 8, 0x0600_5a04, &parts);
    let change = Change {
        registers: Some(32),
        ..Change::default()
    };
    let error = changed(&bytes, "k", change).unwrap_err();
    assert_eq!(error, "k: there is no EIATTR_REGCOUNT to change");
}

/// Offset and text of each instruction that `nvdisasm -c` prints, without labels, which are
/// numbered anew.
fn listing(bytes: &[u8]) -> Vec<(usize, String)> {
    let folder = Folder::new();
    let path = folder.write("a.cubin", bytes);
    let said = output(Command::new(tool("nvdisasm").unwrap()).arg("-c").arg(path));
    let instruction = |line: &str| {
        let (offset, rest) = line.trim().strip_prefix("/*")?.split_once("*/")?;
        let rest = rest.trim().strip_suffix(';')?;
        let offset = usize::from_str_radix(offset, 16).ok()?;
        let rest = rest.split(['`', '(']).next().unwrap_or_default();
        Some((offset, rest.trim().to_owned()))
    };
    said.lines().filter_map(instruction).collect()
}

/// NOPs before the first instruction keep every relative branch; indirect ones and calls by
/// address are for whoever writes the code, so that functions with these are left out.
#[test]
fn nvdisasm_reads_cubins_whose_code_has_grown_or_is_skipped() {
    if tool("nvdisasm").is_none() {
        return;
    }
    let mut grown = 0;
    for CorpusCubin { name, bytes } in corpus_cubins() {
        let mut rewriter = Rewriter::new(bytes).unwrap();
        let functions = rewriter.cubin().functions.clone();
        let is_plain = |f: &warpalloc_sass::object::Function| {
            f.inner.is_empty()
                && f.indirect_branches().is_empty()
                && f.attribute(AttributeKind::MBARRIER_INSTR_OFFSETS).is_none()
        };
        if !functions.iter().all(is_plain) {
            continue;
        }
        for function in &functions {
            let change = Change {
                code: Some(with_nops(function.code, 0, 5)),
                registers: Some(200),
                ..Change::default()
            };
            rewriter.change(function.name, change).unwrap();
        }
        let out = rewriter
            .finish()
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let expected = listing(bytes).into_iter().flat_map(|(offset, text)| {
            let nops = (0..5).map(|index| (16 * index, "NOP".to_owned()));
            let nops: Vec<_> = nops.filter(|_| offset == 0).collect();
            nops.into_iter().chain([(offset + 80, text)])
        });
        assert!(listing(&out) == expected.collect::<Vec<_>>(), "{name}");
        let cubin = Cubin::read(&out).unwrap();
        assert!(
            cubin.functions.iter().all(|f| f.registers == Some(200)),
            "{name}"
        );
        grown += functions.len();
    }
    assert!(
        grown > 40 || corpus_cubins().is_empty(),
        "{grown} functions"
    );
}
