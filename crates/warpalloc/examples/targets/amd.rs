//! A machine like AMD's CDNA: vector, scalar and accumulator registers.
//!
//! - Vector registers (`v`) are loaded, stored and copied. Tuples of any width up to 32 start
//!   anywhere.
//! - Scalar registers (`s`) hold what is the same in all lanes. They reach memory lane by lane
//!   through vector registers. Pairs are aligned to two, wider tuples to four. The last six of
//!   108 are not allocated: they hold the carry, the execution mask and the like.
//! - Accumulators (`a`) are written by matrix instructions. No instruction copies one into
//!   another, loads it or stores it: all of that goes by way of vector registers.
//!
//! Nothing is exchanged in any file.

use warpalloc::target::{FileInfo, MovePath, Target, TargetError};

/// Widths of tuples, in registers.
pub const WIDTHS: std::ops::RangeInclusive<usize> = 1..=32;

/// The machine with this many vector registers and as many accumulators.
pub fn target(vectors: usize) -> Result<Target, TargetError> {
    let mut machine = Target::builder("amd");
    let v = FileInfo::new("v", 256).moves(MovePath::Move).granule(8);
    let v = machine.file(v);
    let s = FileInfo::new("s", 108)
        .spills_via(v)
        .moves(MovePath::Move)
        .reserved(102..108);
    let s = machine.file(s);
    let a = FileInfo::new("a", 256)
        .spills_via(v)
        .moves(MovePath::Via(v));
    let a = machine.file(a);
    for width in WIDTHS {
        machine.class(format!("v{width}"), v, width, 1);
    }
    for (width, align) in [(1, 1), (2, 2), (4, 4), (8, 4), (16, 4)] {
        machine.class(format!("s{width}"), s, width, align);
    }
    for width in WIDTHS {
        machine.class(format!("a{width}"), a, width, 1);
    }
    machine
        .arguments((0..32).map(|n| machine.reg(v, n)).collect::<Vec<_>>())
        .results((0..32).map(|n| warpalloc::target::PReg::new(v, n)))
        .preserved((40..48).map(|n| warpalloc::target::PReg::new(v, n)))
        .slot_align(16);
    let target = machine.finish()?;
    Ok(target.with_budget(v, vectors).with_budget(a, vectors))
}
