//! What functions of the corpus need, compared with nvdisasm's text.

use std::collections::BTreeMap;
use std::process::Command;

use warpalloc_sass::isa::File;
use warpalloc_sass::measure;
use warpalloc_sass::object::Cubin;

use crate::tools::{CorpusCubin, Folder, corpus_cubins, output, tool};

/// Mnemonics by offset, by function, of `nvdisasm -c`.
fn mnemonics(text: &str) -> BTreeMap<String, BTreeMap<usize, String>> {
    let mut found: BTreeMap<String, BTreeMap<usize, String>> = BTreeMap::new();
    let mut function = String::new();
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix(".section\t.text.") {
            let name = name.split(',').next().unwrap_or_default();
            function = name.trim_matches('"').to_owned();
        } else if let Some(rest) = line.strip_prefix("/*")
            && let Some((offset, rest)) = rest.split_once("*/")
            && line.ends_with(';')
        {
            let offset = usize::from_str_radix(offset, 16).unwrap();
            let mut words = rest.trim_end_matches(';').split_whitespace();
            let name = words.find(|word| !word.starts_with('@') && *word != "{");
            let name = name.unwrap_or_default().split('.').next();
            let of_function = found.entry(function.clone()).or_default();
            of_function.insert(offset, name.unwrap_or_default().to_owned());
        }
    }
    found
}

/// ptxas names all the registers below the highest, and a launch takes two more from sm_90 on.
#[test]
fn measures_agree_with_the_cubin_and_with_nvdisasm_or_is_skipped() {
    let Some(nvdisasm) = tool("nvdisasm") else {
        return;
    };
    let folder = Folder::new();
    let mut with_local = 0;
    for CorpusCubin { name, bytes } in corpus_cubins() {
        let path = folder.write("a.cubin", bytes);
        let said = mnemonics(&output(Command::new(&nvdisasm).arg("-c").arg(path)));
        let cubin = Cubin::read(bytes).unwrap();
        for function in &cubin.functions {
            let name = format!("{name}: {}", function.name);
            let measures = measure(&cubin, function);
            let measures = measures.unwrap_or_else(|error| panic!("{name}: {error}"));
            let said = &said[function.name];
            assert_eq!(measures.instructions, said.len(), "{name}");
            let peak = measures.peak(File::R).unwrap();
            let launched = function.registers.unwrap();
            assert!(peak.registers <= peak.named, "{name}");
            assert!(peak.named <= launched, "{name}");
            if cubin.arch.sm == 90 {
                assert_eq!(peak.named + 2, launched, "{name}");
            }
            let at_peak = &said[&peak.offset.unwrap()];
            assert_eq!(peak.mnemonic, Some(at_peak.as_str()), "{name}");
            let count = |wanted| said.values().filter(|name| *name == wanted).count();
            let local = measures.local.iter();
            let (loads, stores) = local.fold((0, 0), |(l, s), a| (l + a.loads, s + a.stores));
            assert_eq!((loads, stores), (count("LDL"), count("STL")), "{name}");
            with_local += usize::from(loads > 0);
        }
    }
    assert!(
        with_local > 5,
        "{with_local} functions load from local memory"
    );
}
