//! `warpalloc completions`, `warpalloc man` and `warpalloc options`: what a shell and a reader
//! want to know of the command.

use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, Command};
use clap_complete::Shell;
use warpalloc::Options;

use crate::output;

/// Which shell.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpalloc completions bash > ~/.local/share/bash-completion/completions/warpalloc
  warpalloc completions zsh > ~/.zfunc/_warpalloc")]
pub struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Prints what a shell needs to complete the command line.
pub fn completions(args: CompletionsArgs, mut command: Command) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "warpalloc", &mut script);
    output::print_bytes(&script)
}

/// Where to.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warpalloc man ~/.local/share/man/man1            then: man warpalloc-alloc")]
pub struct ManArgs {
    /// The folder for the pages
    folder: PathBuf,
}

/// Writes a page per subcommand.
pub fn man(args: ManArgs, command: Command) -> anyhow::Result<()> {
    let told = || format!("cannot write pages to {}", args.folder.display());
    std::fs::create_dir_all(&args.folder).with_context(told)?;
    clap_mangen::generate_to(command, &args.folder).with_context(told)
}

/// Lists the options that `--option` sets.
pub fn options() -> anyhow::Result<()> {
    let width = Options::known().map(|(name, ..)| name.len()).max();
    let width = width.unwrap_or(0);
    let mut out = format!(
        "{:<width$} {:<8} {:<36} meaning\n",
        "name", "default", "values"
    );
    for (name, default, values, meaning) in Options::known() {
        let values = values.to_string();
        out += &format!("{name:<width$} {default:<8} {values:<36} {meaning}\n");
    }
    output::print(&out)
}
