//! The commands of README.md and docs/guide.md do what the pages say.
//!
//! Every `sh` block runs, in the order of its page and in a folder like a checkout. A `text` block right
//! behind one is what it prints; `WARPALLOC_UPDATE=1` writes it anew, and the pictures of the guide.
#![cfg(unix)]

#[path = "common/ptxas.rs"]
mod ptxas;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A block of a page and the one behind it, if that is what it prints.
struct Block {
    script: String,
    printed: Option<String>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn blocks(page: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let mut rest = page;
    let mut is_behind = false;
    while let Some((before, block)) = rest.split_once("\n```") {
        let (language, block) = block.split_once('\n').unwrap();
        let (text, behind) = block.split_once("```").unwrap();
        match (language, found.last_mut()) {
            ("sh", _) => found.push(Block {
                script: text.to_owned(),
                printed: None,
            }),
            ("text", Some(last)) if is_behind && before.trim().is_empty() => {
                last.printed = Some(text.to_owned());
            }
            _ => {}
        }
        is_behind = language == "sh";
        rest = behind;
    }
    found
}

/// Programs that stand for those a reader has: this command, a ptxas, and a cargo that builds nothing.
fn programs(folder: &Path, ptxas: &Path) -> PathBuf {
    let bin = folder.join("bin");
    fs::create_dir(&bin).unwrap();
    symlink(env!("CARGO_BIN_EXE_warpalloc"), bin.join("warpalloc")).unwrap();
    for name in ["ptxas", "nvdisasm"] {
        symlink(ptxas.with_file_name(name), bin.join(name)).unwrap();
    }
    let cargo = "#!/usr/bin/env bash\n\
        case \"$*\" in\n\
        'run --release -- '*) shift 3; exec warpalloc \"$@\" ;;\n\
        'install --locked --path '*) test -f \"$4/Cargo.toml\" ;;\n\
        'test --workspace') ;;\n\
        *) echo \"cargo $* is not foreseen\" >&2; exit 1 ;;\n\
        esac\n";
    // README.md's name for one of the reader's own. A ptxas says which name it was called by.
    let own = "#!/usr/bin/env bash\nexec ptxas \"$@\"\n";
    for (name, script) in [("cargo", cargo), ("PTXAS", own)] {
        fs::write(bin.join(name), script).unwrap();
        fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    bin
}

fn run(folder: &Path, bin: &Path, script: &str) -> Output {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new("bash");
    command
        .current_dir(folder)
        .args(["-euo", "pipefail", "-c", script])
        .env("PATH", format!("{}:{path}", bin.display()))
        .env("XDG_CACHE_HOME", folder.join("cache"))
        .env("XDG_STATE_HOME", folder.join("state"))
        .env("NO_COLOR", "1");
    command.output().unwrap()
}

/// A folder like a checkout.
fn checkout() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in ["corpus", "crates"] {
        symlink(root().join(name), folder.path().join(name)).unwrap();
    }
    folder
}

/// Runs the blocks of a page; what each printed.
fn printed(page: &str, folder: &Path, ptxas: &Path) -> Vec<(Block, String)> {
    let bin = programs(folder, ptxas);
    let blocks = blocks(page);
    assert!(!blocks.is_empty());
    let run = |block: Block| {
        let run = run(folder, &bin, &block.script);
        let said = String::from_utf8_lossy(&run.stderr);
        assert!(run.status.success(), "{}\n{said}", block.script);
        let printed = String::from_utf8_lossy(&run.stdout).into_owned();
        (block, printed)
    };
    blocks.into_iter().map(run).collect()
}

#[test]
fn the_commands_of_the_readme_run() {
    let Some(ptxas) = ptxas::ptxas() else { return };
    let page = fs::read_to_string(root().join("README.md")).unwrap();
    let folder = checkout();
    // What the page calls its files.
    let kernel = ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry NAME(.param .u64 p) {\n\
        .reg .b32 %r<3>;\n.reg .b64 %rd<2>;\nld.param.u64 %rd1, [p];\nld.global.u32 %r1, [%rd1];\n\
        add.u32 %r2, %r1, %r1;\nst.global.u32 [%rd1], %r2;\nret;\n}\n";
    let at = |name: &str| folder.path().join(name);
    for name in ["build", "DIR"] {
        fs::create_dir(at(name)).unwrap();
    }
    for name in ["IN.ptx", "A.ptx", "B.ptx", "build/k.ptx"] {
        fs::write(at(name), kernel).unwrap();
    }
    for name in ["IN.cubin", "LIB.so", "OLD", "NEW"] {
        let made = Command::new(&ptxas)
            .args(["-arch", "sm_90", "-o"])
            .args([at(name), at("IN.ptx")])
            .status();
        assert!(made.unwrap().success());
    }
    printed(&page, folder.path(), &ptxas);
    let page = fs::read_to_string(at("report.html")).unwrap();
    assert!(page.contains("NAME"));
}

#[test]
fn the_guide_shows_what_its_commands_print() {
    let Some(ptxas) = ptxas::ptxas() else { return };
    let path = root().join("docs/guide.md");
    let page = fs::read_to_string(&path).unwrap();
    let folder = checkout();
    let is_update = std::env::var("WARPALLOC_UPDATE").is_ok_and(|value| value == "1");
    let mut updated = page.clone();
    for (block, printed) in printed(&page, folder.path(), &ptxas) {
        let Some(shown) = &block.printed else {
            continue;
        };
        match is_update {
            true => {
                let both = |text: &str| format!("{}```\n\n```text\n{text}```", block.script);
                updated = updated.replace(&both(shown), &both(&printed));
            }
            false => assert_eq!(&printed, shown, "{}", block.script),
        }
    }
    if is_update {
        fs::write(&path, updated).unwrap();
    }
    let picture = root().join("docs/pictures/quads.svg");
    let drawn = fs::read_to_string(folder.path().join("quads.svg")).unwrap();
    match is_update {
        true => fs::write(picture, drawn).unwrap(),
        false => assert_eq!(drawn, fs::read_to_string(picture).unwrap()),
    }
}
