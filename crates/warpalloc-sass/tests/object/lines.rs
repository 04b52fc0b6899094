//! Source lines, compared with the annotations of nvdisasm.

use std::process::Command;

use warpalloc_fuzz::image;
use warpalloc_sass::object::{Cubin, LineTable};

use crate::tools::{CorpusCubin, Folder, assemble, corpus_cubins, output, tool};

/// File and line of each instruction, by function, as `nvdisasm -g` annotates them:
/// `//## File "a.cu", line 2` stands before the first instruction of a line.
fn annotated(text: &str) -> Vec<(String, u64, String, u32)> {
    let mut found = Vec::new();
    let (mut function, mut place) = (String::new(), None);
    for line in text.lines() {
        let trimmed = line.trim();
        if let Some(name) = trimmed.strip_prefix(".section\t.text.") {
            let name = name.split(',').next().unwrap_or_default();
            function = name.trim_matches('"').to_owned();
            place = None;
        } else if let Some(rest) = trimmed.strip_prefix("//## File \"") {
            let (file, rest) = rest.split_once('"').unwrap();
            let number = rest.trim_start_matches(", line ");
            let number: String = number.chars().take_while(char::is_ascii_digit).collect();
            place = Some((file.to_owned(), number.parse().unwrap()));
        } else if let Some(rest) = trimmed.strip_prefix("/*")
            && let Some((offset, _)) = rest.split_once("*/")
            && trimmed.ends_with(';')
            && let Some((file, number)) = &place
        {
            let offset = u64::from_str_radix(offset, 16).unwrap();
            found.push((function.clone(), offset, file.clone(), *number));
        }
    }
    found
}

/// Compares every instruction that has a line; returns how many there were.
fn compare(bytes: &[u8], name: &str, flag: &str, lines: &LineTable) -> usize {
    let nvdisasm = tool("nvdisasm").unwrap();
    let cubin = Cubin::read(bytes).unwrap();
    let folder = Folder::new();
    let path = folder.write("a.cubin", bytes);
    let said = output(Command::new(nvdisasm).args([flag, "-c"]).arg(path));
    let annotated = annotated(&said);
    for (function, offset, file, line) in &annotated {
        let section = cubin.function(function).unwrap().section;
        let found = lines.find(section, *offset);
        let found = found.map(|found| (found.file, found.line));
        // The table of PTX lines names no file: the text is in the cubin.
        let file = if file == ".nv_debug_ptx_txt" {
            ""
        } else {
            file
        };
        assert_eq!(
            found,
            Some((file, *line)),
            "{name}: {function} at {offset:#x}"
        );
    }
    annotated.len()
}

const WITH_LINES: &str = ".version 8.7\n.target sm_75\n.address_size 64\n\
.file 1 \"/src/first.cu\"\n.file 2 \"/src/second.cuh\"\n\
.visible .entry a(.param .u64 p)\n{\n\
 .reg .b32 %r<4>;\n .reg .b64 %d<2>;\n\
 .loc 1 10 3\n ld.param.u64 %d0, [p];\n mov.u32 %r0, %tid.x;\n\
 .loc 2 77 1\n mul.lo.s32 %r1, %r0, %r0;\n\
 .loc 1 12 3\n st.global.u32 [%d0], %r1;\n ret;\n}\n\
.visible .entry b(.param .u64 p)\n{\n\
 .reg .b32 %r<4>;\n .reg .b64 %d<2>;\n\
 .loc 2 5 1\n ld.param.u64 %d0, [p];\n\
 .loc 2 6 1\n mov.u32 %r1, 7;\n st.global.u32 [%d0+4], %r1;\n ret;\n}\n";

#[test]
fn source_lines_are_those_of_nvdisasm_or_is_skipped() {
    let (Some(ptxas), Some(_)) = (tool("ptxas"), tool("nvdisasm")) else {
        return;
    };
    for arch in ["sm_75", "sm_80", "sm_90"] {
        let bytes = assemble(&ptxas, WITH_LINES, arch, &["-lineinfo"]).unwrap();
        let lines = Cubin::read(&bytes).unwrap().source_lines().unwrap();
        let count = compare(&bytes, arch, "-g", &lines);
        assert!(count >= 10, "{arch}: {count} instructions have lines");
    }
}

#[test]
fn ptx_lines_are_those_of_nvdisasm_or_is_skipped() {
    if tool("nvdisasm").is_none() || corpus_cubins().is_empty() {
        return;
    }
    let mut count = 0;
    let of_one_architecture = |cubin: &&CorpusCubin| cubin.name.ends_with("sm_90");
    for CorpusCubin { name, bytes } in corpus_cubins().iter().filter(of_one_architecture) {
        let lines = Cubin::read(bytes).unwrap().ptx_lines().unwrap();
        count += compare(bytes, name, "-gp", &lines);
    }
    assert!(count > 1000, "{count} instructions have lines");
}

#[test]
fn cubins_without_lines_have_an_empty_table() {
    let bytes = image::cubin();
    let cubin = Cubin::read(&bytes).unwrap();
    let lines = cubin.source_lines().unwrap();
    assert!(lines.is_empty());
    assert_eq!(lines.find(1, 0), None);
}

/// A sequence of a line program: an address that a relocation fills in, a line that holds for
/// `bytes` of code.
fn sequence(line: u8, bytes: u8) -> Vec<u8> {
    let address = [&[0, 9, 2], [0; 8].as_slice()].concat();
    // Advance the line and copy; advance the address; end.
    [address, vec![3, line - 1, 1, 2, bytes, 0, 1, 1]].concat()
}

/// The function within the kernel comes first, so that sequences are not in the order of code.
#[test]
fn lines_of_a_kernel_come_in_any_order() {
    let lengths = [0, 1, 1, 1, 1, 0, 0, 0, 1];
    let names = b"src\0\0a.cu\0\x01\0\0\0";
    let head = [&[1, 1, 0xfb, 14, 10], lengths.as_slice(), names].concat();
    let program = [sequence(10, 0x20), sequence(2, 0x40)].concat();
    let mut data = (2 + 4 + head.len() as u32 + program.len() as u32)
        .to_le_bytes()
        .to_vec();
    data.extend([2, 0]);
    data.extend((head.len() as u32).to_le_bytes());
    data.extend(head);
    let first = data.len() as u32 + 3;
    data.extend(&program);
    let second = first + program.len() as u32 / 2;
    let rows = [[first, 0, 2, 2, 0, 0], [second, 0, 2, 1, 0, 0]];
    let rela = rows.iter().flat_map(|row| image::words(row)).collect();
    let mut parts = image::cubin_parts();
    let index = parts.len() as u32 + 1;
    parts.push(image::part(".debug_line", image::PROGBITS, 0, data));
    parts.push(image::part(".rela.debug_line", image::RELA, index, rela));
    let bytes = image::elf(190, 8, 0x0600_5a04, &parts);
    let cubin = Cubin::read(&bytes).unwrap();
    let lines = cubin.source_lines().unwrap();
    let at = |offset| lines.find(1, offset).map(|found| (found.file, found.line));
    assert_eq!(
        (at(0), at(0x30)),
        (Some(("src/a.cu", 2)), Some(("src/a.cu", 2)))
    );
    assert_eq!(
        (at(0x40), at(0x50)),
        (Some(("src/a.cu", 10)), Some(("src/a.cu", 10)))
    );
    assert_eq!((at(0x60), lines.find(2, 0)), (None, None));
}
