//! The machine that regalloc2's generator has in mind.

use regalloc2::{PReg, RegClass};
use warpalloc::target::{self, Class, FileInfo, MovePath, Target, TargetError};

/// Registers of each class that are allocated; those above name fixed stack slots.
pub(crate) const REGISTERS: usize = 32;

/// The target, and its class for each of regalloc2's.
pub struct Machine {
    /// Three files of registers that are copied and never exchanged.
    pub target: Target,
    classes: [Class; 3],
    files: [target::File; 3],
}

impl Machine {
    /// Describes it.
    pub fn new() -> Result<Machine, TargetError> {
        let mut builder = Target::builder("regalloc2");
        let kinds = [("i", 8), ("f", 8), ("v", 16)];
        let files = kinds.map(|(name, bytes)| {
            let file = FileInfo::new(name, REGISTERS).register_bytes(bytes);
            builder.file(file.moves(MovePath::Move))
        });
        let mut names = ["int", "float", "vector"].into_iter().zip(files);
        let classes = [(); 3].map(|()| match names.next() {
            Some((name, file)) => builder.class(name, file, 1, 1),
            None => Class::new(0),
        });
        Ok(Machine {
            target: builder.finish()?,
            classes,
            files,
        })
    }

    pub(crate) fn class(&self, class: RegClass) -> Class {
        self.classes[class as usize]
    }

    /// The register, if it is one that is allocated.
    pub(crate) fn reg(&self, reg: PReg) -> Option<target::PReg> {
        let file = self.files[reg.class() as usize];
        (reg.hw_enc() < REGISTERS).then(|| target::PReg::new(file, reg.hw_enc()))
    }
}
