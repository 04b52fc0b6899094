//! `warpalloc alloc` for cubins: other registers ([`recolour`]), spill code within a cap ([`cap`]),
//! or ptxas's spills in other memory ([`spills`]).

pub mod cap;
mod files;
pub mod recolour;
pub mod spills;

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use warpalloc_sass::object::Format;

use crate::UsageError;
use crate::alloc::AllocArgs;

/// Whether the inputs are cubins; a mixture of cubins and other files is refused.
pub fn are_cubins(inputs: &[PathBuf]) -> anyhow::Result<bool> {
    let mut cubins = Vec::new();
    // Standard input can be read but once, and is PTX.
    for path in inputs.iter().filter(|path| !crate::files::is_dash(path)) {
        if is_cubin(path) {
            cubins.push(path);
        }
    }
    if let Some(cubin) = cubins.first()
        && cubins.len() < inputs.len()
    {
        let told = cubin.display();
        return Err(UsageError(format!("{told} is a cubin, and other inputs are none")).into());
    }
    Ok(!cubins.is_empty())
}

/// A file that can't be read is none; reading it will say why.
fn is_cubin(path: &Path) -> bool {
    let mut start = [0; 20];
    let read = fs::File::open(path).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && Format::detect(&start) == Some(Format::Cubin)
}

/// Refuses flags that mean something for cubins only.
pub fn refuse_flags(args: &AllocArgs) -> Result<(), UsageError> {
    match args.fewest || args.shuffle_registers.is_some() {
        true => Err(UsageError("--fewest is for cubins".to_owned())),
        false => Ok(()),
    }
}

/// A flag that was given and means something for PTX only.
fn idle_flag(args: &AllocArgs) -> Option<&'static str> {
    let idle = [
        ("--occupancy-target", args.occupancy_target.is_some()),
        ("--preset", args.preset.is_some()),
        ("--sm", args.sm.is_some()),
        ("--promote-local", args.promote_local),
    ];
    let given = idle.into_iter().find(|(_, is_given)| *is_given);
    given.map(|(flag, _)| flag)
}
