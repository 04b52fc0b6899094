//! The real ptxas: where it is, and what it says of a kernel.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs, io};

use anyhow::{Context, anyhow, bail};

/// The name of the program.
pub const PTXAS: &str = "ptxas";

/// A ptxas that can be run.
#[derive(Clone, Debug)]
pub struct Assembler {
    path: PathBuf,
}

/// The bytes of spill code in a function, as `ptxas -v` counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpillBytes {
    pub stores: u32,
    pub loads: u32,
}

/// A module that ptxas assembled.
pub struct Assembled {
    pub cubin: Vec<u8>,
    /// By the name of the function.
    pub spills: BTreeMap<String, SpillBytes>,
}

impl Assembler {
    /// The one at `path`.
    pub fn at(path: &Path) -> Assembler {
        Assembler {
            path: path.to_owned(),
        }
    }

    /// Looks on the path, and in the toolkits that `CUDA_HOME` and
    /// `CUDA_PATH` name; never finds this program itself under another name.
    pub fn find() -> Option<Assembler> {
        let path = usual_places().find(|path| is_program(path))?;
        Some(Assembler { path })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The release, such as `13.0.88`, from the last line that has one.
    pub fn release(&self) -> Option<String> {
        let run = self.run([OsStr::new("--version")]).ok()?;
        let said = String::from_utf8_lossy(&run.stdout).into_owned();
        let mut words = said.split([' ', ',', '\n']);
        let release = words.rfind(|word| {
            let digits = word.strip_prefix('V').unwrap_or_default();
            digits.starts_with(|c: char| c.is_ascii_digit())
        })?;
        Some(release[1..].to_owned())
    }

    pub fn run<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(&self, args: I) -> io::Result<Output> {
        Command::new(&self.path).args(args).output()
    }

    /// Assembles a text for the machine `arch`. Errors are what ptxas says.
    pub fn assemble(
        &self,
        name: &str,
        text: &str,
        arch: &str,
        more: &[String],
    ) -> anyhow::Result<Assembled> {
        let told = || format!("cannot assemble {name}");
        let folder = tempfile::tempdir().with_context(told)?;
        let base = Path::new(name).file_name().unwrap_or(OsStr::new("in.ptx"));
        let input = folder.path().join(base);
        let output = folder.path().join("warpalloc.out.cubin");
        fs::write(&input, text).with_context(told)?;
        let mut args = vec![OsStr::new("-v"), OsStr::new("-arch"), OsStr::new(arch)];
        args.extend(more.iter().map(OsStr::new));
        args.extend([OsStr::new("-o"), output.as_os_str(), input.as_os_str()]);
        let run = self
            .run(args)
            .with_context(|| format!("cannot run {}", self.path.display()))?;
        let said = String::from_utf8_lossy(&run.stderr);
        if !run.status.success() {
            let here = input.display().to_string();
            bail!("{name}: {}", said.replace(&here, name).trim_end());
        }
        let cubin = fs::read(&output).with_context(told)?;
        Ok(Assembled {
            cubin,
            spills: spills(&said),
        })
    }
}

/// Where a ptxas is looked for that nobody named.
pub fn usual_places() -> impl Iterator<Item = PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = env::split_paths(&path).collect();
    let homes = ["CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"];
    let homes = homes.into_iter().filter_map(env::var_os).map(PathBuf::from);
    let homes = homes.chain([PathBuf::from("/usr/local/cuda")]);
    let folders = folders
        .into_iter()
        .chain(homes.map(|home| home.join("bin")));
    folders.map(|folder| folder.join(PTXAS))
}

/// Whether a path leads to a program other than this one.
pub fn is_program(path: &Path) -> bool {
    let Ok(real) = fs::canonicalize(path) else {
        return false;
    };
    let own = env::current_exe().and_then(fs::canonicalize).ok();
    real.is_file() && own.as_deref() != Some(&real) && is_executable(&real)
}

#[cfg(unix)]
fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path).is_ok_and(|meta| meta.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_executable(_: &Path) -> bool {
    true
}

/// Reads `Function properties for k` and the line of figures below it.
pub fn spills(said: &str) -> BTreeMap<String, SpillBytes> {
    let mut found = BTreeMap::new();
    let mut name = None;
    for line in said.lines() {
        if let Some((_, of)) = line.split_once("Function properties for ") {
            name = Some(of.trim().to_owned());
            continue;
        }
        let before = |what: &str| {
            let (figures, _) = line.split_once(what)?;
            figures
                .split([' ', ','])
                .rfind(|w| !w.is_empty())?
                .parse()
                .ok()
        };
        if let (Some(stores), Some(loads)) =
            (before(" bytes spill stores"), before(" bytes spill loads"))
            && let Some(name) = name.take()
        {
            found.insert(name, SpillBytes { stores, loads });
        }
    }
    found
}

/// The ptxas that was named, or one that is found unless it is not wanted.
pub fn wanted(named: Option<&Path>, is_wanted: bool) -> anyhow::Result<Option<Assembler>> {
    match named {
        Some(path) if is_program(path) => Ok(Some(Assembler::at(path))),
        Some(path) => Err(anyhow!(crate::UsageError(format!(
            "--ptxas {}: there is no such program",
            path.display()
        )))),
        None if is_wanted => Ok(Assembler::find()),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spill_bytes_are_read_by_function() {
        let said = "ptxas info    : 0 bytes gmem\n\
            ptxas info    : Compiling entry function 'k' for 'sm_90'\n\
            ptxas info    : Function properties for k\n    \
            16 bytes stack frame, 12 bytes spill stores, 20 bytes spill loads\n\
            ptxas info    : Used 24 registers, used 0 barriers, 16 bytes cumulative stack size\n\
            ptxas info    : Function properties for f\n    \
            0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n";
        let expected = [
            ("f".to_owned(), SpillBytes::default()),
            (
                "k".to_owned(),
                SpillBytes {
                    stores: 12,
                    loads: 20,
                },
            ),
        ];
        assert_eq!(spills(said), BTreeMap::from(expected));
    }

    #[test]
    fn this_program_is_not_its_own_assembler() {
        assert!(!is_program(&env::current_exe().unwrap()));
    }
}
