//! The assembler, for tests that ask it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The assembler, or `None` with a word about it.
pub fn ptxas() -> Option<PathBuf> {
    let named = std::env::var_os("WARPALLOC_PTXAS").map(PathBuf::from);
    let on_path = || {
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path)
            .map(|folder| folder.join("ptxas"))
            .find(|candidate| candidate.is_file())
    };
    let found = named.or_else(on_path);
    if found.is_none() {
        let required = std::env::var("WARPALLOC_REQUIRE_PTXAS").is_ok_and(|value| value == "1");
        assert!(!required, "ptxas is required: set WARPALLOC_PTXAS");
        eprintln!("skipped: no ptxas; set WARPALLOC_PTXAS");
    }
    found
}

/// Assembles `text` and returns what ptxas has to say.
pub fn assemble(ptxas: &Path, name: &str, text: &str) -> String {
    let target = text.lines().find_map(|line| line.strip_prefix(".target "));
    let arch = target
        .unwrap_or("sm_90")
        .split(',')
        .next()
        .unwrap_or("sm_90")
        .trim();
    let own = format!("warpalloc-{name}-{}", std::process::id());
    let folder = std::env::temp_dir().join(own);
    std::fs::create_dir_all(&folder).unwrap();
    let input = folder.join(format!("{name}.ptx"));
    std::fs::write(&input, text).unwrap();
    let run = Command::new(ptxas)
        .args(["-v", "-arch", arch, "-o"])
        .arg(folder.join(format!("{name}.cubin")))
        .arg(&input)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(run.status.success(), "{name}: {said}");
    std::fs::remove_dir_all(&folder).unwrap();
    said
}
