//! The library's top-level modules import each other in one direction only.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

type Imports = BTreeMap<String, BTreeSet<String>>;

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the sources are there") {
        let path = entry.expect("it can be read").path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "tests") {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") && !path.ends_with("tests.rs") {
            found.push(path);
        }
    }
}

/// Modules that `text` names as `crate::module`, code of tests and comments left out.
fn imported(text: &str) -> BTreeSet<String> {
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or("");
    let lines = code.lines().filter(|l| !l.trim_start().starts_with("//"));
    let paths = lines.flat_map(|line| line.split("crate::").skip(1));
    let name = |path: &str| {
        let end = path.find(|c: char| !c.is_ascii_lowercase() && c != '_');
        path[..end.unwrap_or(path.len())].to_owned()
    };
    paths.map(name).filter(|name| !name.is_empty()).collect()
}

fn imports() -> Imports {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let mut imports = Imports::new();
    for file in files {
        let inside = file.strip_prefix(&root).expect("it is below the root");
        let module = inside.iter().next().and_then(|first| first.to_str());
        let module = module.expect("it has a name").trim_end_matches(".rs");
        if module != "lib" {
            let text = fs::read_to_string(&file).expect("it is text");
            let entry = imports.entry(module.to_owned()).or_default();
            entry.extend(imported(&text));
        }
    }
    let modules: BTreeSet<String> = imports.keys().cloned().collect();
    for (module, imported) in &mut imports {
        imported.retain(|name| name != module && modules.contains(name));
    }
    imports
}

/// A cycle, if there is one: what is left when modules without imports are taken away.
fn cycle(mut imports: Imports) -> Imports {
    loop {
        let leaves: BTreeSet<String> = imports
            .iter()
            .filter(|(_, imported)| imported.is_empty())
            .map(|(module, _)| module.clone())
            .collect();
        if leaves.is_empty() {
            return imports;
        }
        imports.retain(|module, _| !leaves.contains(module));
        for imported in imports.values_mut() {
            imported.retain(|name| !leaves.contains(name));
        }
    }
}

#[test]
fn top_level_modules_have_no_import_cycle() {
    let imports = imports();
    assert!(imports.len() > 15, "{:?}", imports.keys());
    assert!(imports["pipeline"].contains("colour"), "{imports:?}");
    let cycle = cycle(imports);
    assert!(cycle.is_empty(), "these import each other: {cycle:#?}");
}

/// The front door stays small; what a feature adds does not count.
#[test]
fn ten_modules_are_public() {
    let items = include_str!("../src/lib.rs").split(';');
    let always = items.filter(|item| !item.contains("#[cfg("));
    let public: Vec<&str> = always
        .filter_map(|item| Some(item.split_once("pub mod ")?.1))
        .collect();
    let expected = "allocation analysis check cycles error function options stats target text";
    assert_eq!(public.join(" "), expected);
}

#[test]
fn a_cycle_is_found() {
    let of = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    let imports = Imports::from([
        ("a".to_owned(), of(&["b"])),
        ("b".to_owned(), of(&["c", "d"])),
        ("c".to_owned(), of(&["a"])),
        ("d".to_owned(), of(&[])),
    ]);
    let names: Vec<String> = cycle(imports).into_keys().collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert_eq!(
        imported("use crate::ir::Program;\n// crate::text"),
        of(&["ir"])
    );
}
