//! NVIDIA's tools, for tests that ask them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A folder of its own for each user, gone when it goes out of scope.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Folder {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let own = format!("warpalloc-object-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(own);
        std::fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Left over files are no reason to fail.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The tool of this name, or `None` with a word about it.
pub fn tool(name: &str) -> Option<PathBuf> {
    let beside = std::env::var_os("WARPALLOC_PTXAS")
        .map(PathBuf::from)
        .and_then(|ptxas| Some(ptxas.parent()?.join(name)))
        .filter(|path| path.is_file());
    let on_path = || {
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path)
            .map(|folder| folder.join(name))
            .find(|candidate| candidate.is_file())
    };
    let found = beside.or_else(on_path);
    if found.is_none() {
        let required = std::env::var("WARPALLOC_REQUIRE_PTXAS").is_ok_and(|value| value == "1");
        assert!(!required, "{name} is required: set WARPALLOC_PTXAS");
        eprintln!("skipped: no {name}; set WARPALLOC_PTXAS");
    }
    found
}

/// What a tool prints; it must succeed.
pub fn output(command: &mut Command) -> String {
    let run = command.output().unwrap();
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{command:?}: {said}");
    String::from_utf8_lossy(&run.stdout).into_owned()
}

/// Assembles PTX for `arch`; the `.target` of the text is replaced.
pub fn assemble(ptxas: &Path, text: &str, arch: &str, flags: &[&str]) -> Option<Vec<u8>> {
    let folder = Folder::new();
    let retargeted: Vec<String> = text.lines().map(|line| retarget(line, arch)).collect();
    let input = folder.write("a.ptx", retargeted.join("\n"));
    let cubin = folder.path("a.cubin");
    let mut command = Command::new(ptxas);
    command.args(flags).args(["-arch", arch, "-o"]);
    let run = command.arg(&cubin).arg(&input).output().unwrap();
    // Some PTX needs a newer architecture than the one asked for.
    run.status.success().then(|| std::fs::read(&cubin).unwrap())
}

fn retarget(line: &str, arch: &str) -> String {
    match line.starts_with(".target ") {
        true => format!(".target {arch}"),
        false => line.to_owned(),
    }
}

/// The PTX of the corpus, by name, without functions of many thousand instructions, which take
/// ptxas long.
pub fn corpus() -> Vec<(String, String)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../corpus/ptx");
    let mut paths: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            !["fft16", "sha256"]
                .iter()
                .any(|huge| path.to_string_lossy().contains(huge))
        })
        .collect();
    paths.sort();
    let named = |path: PathBuf| {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        (name, std::fs::read_to_string(path).unwrap())
    };
    paths.into_iter().map(named).collect()
}

/// A cubin that ptxas made of a text of the corpus.
pub struct CorpusCubin {
    pub name: String,
    pub bytes: Vec<u8>,
}

/// Cubins of the corpus with line tables, for several architectures; those that ptxas refuses
/// for an architecture are left out. Empty without ptxas.
pub fn corpus_cubins() -> &'static [CorpusCubin] {
    static CUBINS: LazyLock<Vec<CorpusCubin>> = LazyLock::new(|| {
        let Some(ptxas) = tool("ptxas") else {
            return Vec::new();
        };
        let mut cubins = Vec::new();
        for (name, text) in corpus() {
            for arch in ["sm_75", "sm_80", "sm_90"] {
                if let Some(bytes) = assemble(&ptxas, &text, arch, &["-lineinfo"]) {
                    let name = format!("{name} for {arch}");
                    cubins.push(CorpusCubin { name, bytes });
                }
            }
        }
        assert!(cubins.len() > 40, "{} cubins", cubins.len());
        cubins
    });
    &CUBINS
}
