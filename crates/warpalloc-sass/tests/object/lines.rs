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
