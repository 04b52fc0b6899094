//! `warpalloc shim install`: a folder that compilers take for a toolkit.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use clap::Args;
use serde_json::json;

use super::real::{self, BESIDE};
use crate::assembler::{PTXAS, is_program};
use crate::report::SCHEMA;
use crate::{UsageError, output};

/// Where to put it.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpalloc shim install ~/warpalloc-cuda
  export TRITON_PTXAS_PATH=~/warpalloc-cuda/bin/ptxas    for Triton and Inductor
  ~/warpalloc-cuda/bin/nvcc -arch=sm_90 kernel.cu        nvcc looks for ptxas beside itself")]
pub struct InstallArgs {
    /// The folder; made where it is not there, links of an earlier call are made anew
    folder: PathBuf,
    /// The real ptxas [default: the first of WARPALLOC_REAL_PTXAS, PATH, CUDA_HOME]
    #[arg(long, value_name = "FILE")]
    ptxas: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A user of ptxas and what it wants to be told.
type Setting = (&'static str, String);

/// Lays out the folder.
pub fn run(args: &InstallArgs) -> anyhow::Result<()> {
    let real = match &args.ptxas {
        Some(path) if is_program(path) => path.clone(),
        Some(path) => {
            let message = format!("--ptxas {}: there is no such program", path.display());
            return Err(UsageError(message).into());
        }
        None => real::find().ok_or_else(|| {
            anyhow!("no ptxas is on PATH or in CUDA_HOME: name one with --ptxas FILE")
        })?,
    };
    let real =
        fs::canonicalize(&real).with_context(|| format!("cannot read {}", real.display()))?;
    let own = std::env::current_exe().and_then(fs::canonicalize);
    let own = own.context("cannot tell where this program is")?;
    let told = || format!("cannot write {}", args.folder.display());
    let bin = args.folder.join("bin");
    fs::create_dir_all(&bin).with_context(told)?;
    let folder = fs::canonicalize(&args.folder).with_context(told)?;
    let bin = folder.join("bin");
    let toolkit = toolkit_of(&real);
    if let Some(toolkit) = &toolkit {
        if folder.starts_with(toolkit) {
            let message = format!("{} lies in the toolkit itself", folder.display());
            return Err(UsageError(message).into());
        }
        link_all(toolkit, &folder, &["bin"])?;
        link_all(&toolkit.join("bin"), &bin, &[PTXAS])?;
    }
    link(&real, &bin.join(BESIDE))?;
    link(&own, &bin.join(PTXAS))?;
    let settings = settings(&folder, toolkit.is_some());
    let text = match args.json {
        true => {
            let settings = settings
                .iter()
                .map(|(user, set)| json!({ "user": user, "set": set }));
            let value = json!({
                "schema": SCHEMA,
                "folder": folder.display().to_string(),
                "ptxas": real.display().to_string(),
                "toolkit": toolkit.map(|toolkit| toolkit.display().to_string()),
                "settings": settings.collect::<Vec<_>>(),
            });
            format!("{value:#}\n")
        }
        false => {
            let mut text = format!("{} calls {}\n\n", bin.join(PTXAS).display(), real.display());
            for (user, set) in &settings {
                text += &format!("{user:<26} {set}\n");
            }
            text
        }
    };
    output::print(&text)
}

/// The toolkit that a ptxas is part of: the folder above `bin`, where nvcc or libdevice is.
fn toolkit_of(real: &Path) -> Option<PathBuf> {
    let bin = real.parent()?;
    let toolkit = bin.parent()?;
    let is_toolkit = bin.join("nvcc.profile").is_file() || toolkit.join("nvvm").is_dir();
    (bin.file_name()? == "bin" && is_toolkit).then(|| toolkit.to_owned())
}

/// Links to everything in a folder but some.
fn link_all(from: &Path, to: &Path, but: &[&str]) -> anyhow::Result<()> {
    let told = || format!("cannot read {}", from.display());
    for entry in fs::read_dir(from).with_context(told)? {
        let entry = entry.with_context(told)?;
        let name = entry.file_name();
        if but.iter().all(|but| name != *but) {
            link(&entry.path(), &to.join(&name))?;
        }
    }
    Ok(())
}

/// A symbolic link, in place of one that is there.
fn link(target: &Path, link: &Path) -> anyhow::Result<()> {
    let told = || format!("cannot link {}", link.display());
    match fs::symlink_metadata(link) {
        Ok(meta) if meta.is_symlink() => fs::remove_file(link).with_context(told)?,
        Ok(_) => bail!(
            "{} is in the way: it is no link of an earlier call",
            link.display()
        ),
        Err(_) => {}
    }
    symlink(target, link).with_context(told)
}

#[cfg(unix)]
fn symlink(target: &Path, link: &Path) -> std::io::Result<()> {
    std::os::unix::fs::symlink(target, link)
}

#[cfg(not(unix))]
fn symlink(_: &Path, _: &Path) -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}

fn settings(folder: &Path, has_toolkit: bool) -> Vec<Setting> {
    let ptxas = folder.join("bin").join(PTXAS).display().to_string();
    let root = folder.display();
    let mut settings = vec![
        (
            "Triton, Inductor",
            format!("export TRITON_PTXAS_PATH={ptxas}"),
        ),
        (
            "  for newer machines",
            format!("export TRITON_PTXAS_BLACKWELL_PATH={ptxas}"),
        ),
        ("clang", format!("clang++ --ptxas-path={ptxas}")),
        // What they do with the cubin was not tried.
        (
            "FlashAttention, quack",
            format!("export CUTE_DSL_PTXAS_PATH={ptxas}  # untried"),
        ),
        (
            "Mojo",
            format!("export MODULAR_NVPTX_COMPILER_PATH={ptxas}"),
        ),
    ];
    if has_toolkit {
        // JAX puts the toolkit that it finds itself in the place of the flag's, unless the variable names one.
        settings.push((
            "JAX",
            format!("export CUDA_ROOT={root} XLA_FLAGS=--xla_gpu_cuda_data_dir={root}"),
        ));
        settings.push(("nvcc", format!("{root}/bin/nvcc in place of nvcc")));
    }
    settings
}
