//! A small RISC with the registers and the convention of RISC-V: 32 integer and 32
//! floating-point registers of eight bytes.
//!
//! Zero, the stack pointer, the global pointer and the thread pointer are never allocated.
//! Registers are copied but not exchanged. Those that a compressed instruction can name are
//! preferred, and of the others those that calls overwrite.

use warpalloc::target::{Class, File, FileInfo, MovePath, PReg, Target, TargetError};

/// An integer.
pub const INT: Class = Class::new(0);
/// A floating-point number.
pub const FLOAT: Class = Class::new(1);

/// The machine.
pub fn target() -> Result<Target, TargetError> {
    let mut machine = Target::builder("risc");
    let temporaries = [5, 6, 7].into_iter().chain(28..32);
    let integers = FileInfo::new("x", 32)
        .register_bytes(8)
        .moves(MovePath::Move)
        .reserved([0, 2, 3, 4])
        .preferred((10..16).chain([16, 17]).chain(temporaries));
    let x = machine.file(integers);
    let floats = FileInfo::new("f", 32)
        .register_bytes(8)
        .moves(MovePath::Move);
    let f = machine.file(floats);
    machine.class("int", x, 1, 1);
    machine.class("float", f, 1, 1);
    let both = |x_regs: Vec<usize>, f_regs: Vec<usize>| -> Vec<PReg> {
        let of =
            |file: File, numbers: Vec<usize>| numbers.into_iter().map(move |n| PReg::new(file, n));
        of(x, x_regs).chain(of(f, f_regs)).collect()
    };
    let saved = || [8, 9].into_iter().chain(18..28).collect::<Vec<_>>();
    machine
        .arguments(both((10..18).collect(), (10..18).collect()))
        .results(both(vec![10, 11], vec![10, 11]))
        .preserved(both(saved(), saved()))
        .slot_align(8);
    machine.finish()
}
