//! Attributes: their names, and what is kept of them.

use std::process::Command;

use warpalloc_fuzz::image;
use warpalloc_sass::object::{AttributeKind, AttributeValue, Cubin};

use crate::tools::{CorpusCubin, Folder, assemble, corpus, corpus_cubins, output, tool};

#[test]
fn values_of_every_format_are_kept() {
    let mut parts = image::cubin_parts();
    parts[2].data.extend(image::attribute(0x7e, &[77]));
    parts[2].size = parts[2].data.len() as u64;
    let bytes = image::elf(190, 8, 0x0600_5a04, &parts);
    let cubin = Cubin::read(&bytes).unwrap();
    let k = cubin.function("k").unwrap();
    let value = |kind| k.attribute(kind).unwrap().value;
    assert_eq!(
        value(AttributeKind::MAXREG_COUNT),
        AttributeValue::Half(0xff)
    );
    assert_eq!(value(AttributeKind::SW2861232_WAR), AttributeValue::Present);
    assert_eq!(value(AttributeKind::NUM_BARRIERS), AttributeValue::Byte(1));
    let unknown = k.attribute(AttributeKind(0x7e)).unwrap();
    assert_eq!(unknown.kind.to_string(), "attribute 0x7e");
    assert_eq!(unknown.number(), Some(77));
}

/// The attributes of `section`, as `cuobjdump -elf` lists them.
fn listed(text: &str, section: &str) -> Vec<String> {
    let heading = format!("{section}\n");
    let start = text
        .find(&format!("\n{heading}"))
        .map(|at| at + 1 + heading.len());
    let lines = text[start.unwrap_or(text.len())..].lines();
    lines
        .take_while(|line| line.is_empty() || line.starts_with('\t'))
        .filter_map(|line| line.trim().strip_prefix("Attribute:"))
        .map(|name| name.trim().to_owned())
        .collect()
}

#[test]
fn attributes_are_those_that_cuobjdump_lists_or_is_skipped() {
    let Some(cuobjdump) = tool("cuobjdump") else {
        return;
    };
    let folder = Folder::new();
    let mut seen = 0;
    for CorpusCubin { name, bytes } in corpus_cubins() {
        let path = folder.write("a.cubin", bytes);
        let said = output(Command::new(&cuobjdump).arg("-elf").arg(path));
        let cubin = Cubin::read(bytes).unwrap();
        let names = |attributes: &[warpalloc_sass::object::Attribute]| -> Vec<String> {
            attributes.iter().map(|a| a.kind.to_string()).collect()
        };
        assert_eq!(
            names(&cubin.attributes),
            listed(&said, ".nv.info"),
            "{name}"
        );
        for function in &cubin.functions {
            let section = format!(".nv.info.{}", function.name);
            let own = names(&function.attributes);
            assert_eq!(own, listed(&said, &section), "{name}: {section}");
            seen += own.len();
        }
    }
    assert!(seen == 0 || seen > 500, "{seen} attributes");
}

/// Writes each number in turn over the first attribute of a kernel and asks for its name.
#[test]
fn every_kind_has_the_name_that_cuobjdump_gives_it_or_is_skipped() {
    let (Some(ptxas), Some(cuobjdump)) = (tool("ptxas"), tool("cuobjdump")) else {
        return;
    };
    let (_, saxpy) = corpus()
        .into_iter()
        .find(|(name, _)| name.starts_with("saxpy"))
        .unwrap();
    let bytes = assemble(&ptxas, &saxpy, "sm_80", &[]).unwrap();
    let cubin = Cubin::read(&bytes).unwrap();
    let info = cubin
        .sections
        .iter()
        .find(|s| s.name == ".nv.info.saxpy")
        .unwrap();
    let (start, size) = (info.offset as usize, info.size as usize);
    let folder = Folder::new();
    let mut named = 0;
    for number in 0..=0x70 {
        let mut changed = bytes.clone();
        changed[start..start + size].fill(0);
        let [low, high] = (size as u16 - 4).to_le_bytes();
        changed[start..start + 4].copy_from_slice(&[4, number, low, high]);
        let path = folder.write("a.cubin", &changed);
        let said = output(Command::new(&cuobjdump).arg("-elf").arg(path));
        let kind = AttributeKind(number);
        // Numbers without a name are printed as numbers, or not at all; a newer cuobjdump may
        // know more of them.
        if kind.name().is_some() {
            assert_eq!(
                listed(&said, ".nv.info.saxpy"),
                [kind.to_string()],
                "{number:#x}"
            );
            named += 1;
        }
    }
    assert_eq!(named, AttributeKind::NAMED.len());
}
