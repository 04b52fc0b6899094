//! What kernels of two builds are matched by.

use std::collections::BTreeMap;
use std::path::Path;

use super::Kernel;

/// What a kernel is found by.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub name: String,
    pub arch: String,
    /// Only where several kernels of that name take different amounts.
    pub file: Option<String>,
}

impl Key {
    pub fn without_file(&self) -> Key {
        Key {
            file: None,
            ..self.clone()
        }
    }
}

/// A kernel and what it is found by.
pub struct Keyed {
    pub key: Key,
    pub kernel: Kernel,
}

/// Gives each kernel its key. The same kernel in several files is one kernel where the
/// figures agree; else the file tells them apart.
pub fn keyed(kernels: Vec<Kernel>) -> Vec<Keyed> {
    let mut groups: BTreeMap<(String, String), Vec<Kernel>> = BTreeMap::new();
    for kernel in kernels {
        let group = groups.entry((kernel.name.clone(), kernel.arch.clone()));
        let group = group.or_default();
        let is_same = |other: &Kernel| other.figures == kernel.figures;
        if !group.iter().any(is_same) {
            group.push(kernel);
        }
    }
    let mut found = Vec::new();
    for ((name, arch), group) in groups {
        let is_ambiguous = group.len() > 1;
        let mut taken: BTreeMap<String, usize> = BTreeMap::new();
        for kernel in group {
            let path = Path::new(&kernel.file);
            let base = path.file_name().unwrap_or_default().to_string_lossy();
            let count = taken.entry(base.clone().into_owned()).or_default();
            *count += 1;
            let file = match *count {
                1 => base.into_owned(),
                more => format!("{base}#{more}"),
            };
            let key = Key {
                name: name.clone(),
                arch: arch.clone(),
                file: is_ambiguous.then_some(file),
            };
            found.push(Keyed { key, kernel });
        }
    }
    found
}
