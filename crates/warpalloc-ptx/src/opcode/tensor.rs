//! Matrix instructions: `wmma`, `mma`, `wgmma`, `tcgen05`.
//!
//! A fragment is a vector of 32-bit registers, or of 64-bit ones for `f64`, whatever the elements are. Hardware reads
//! WMMA and warpgroup fragments in aligned eights and those of `mma` in aligned fours or twos.

use super::row::{Row, exchanges, ordered, together};
use super::{AsyncKind, Asynchronous};

pub(super) const ROWS: &[Row] = &[
    exchanges("wmma.load", "=F* [] 32?").grouped(8),
    together("wmma.store", "[] F* 32?").grouped(8),
    // ptxas makes several steps of it, and the first ones write part of D while A and B are still needed.
    exchanges("wmma.mma", "=F* F* F* F*").grouped(8).in_place(),
    // Sparse forms add metadata and a selector, block-scaled ones the scales with their `{byte, thread}` selectors.
    exchanges("mma", "=F* F* F* F* ...").grouped(4),
    // The accumulator is read even where `scale-d` is false: which it is, is known only at run time.
    together("wgmma.mma_async", "+F* 64 64 ...; +F* F* 64 ...")
        .grouped(8)
        .asynchronously(Asynchronous::Starts(AsyncKind::WarpgroupMma)),
    together("wgmma.fence", ""),
    together("wgmma.commit_group", "")
        .asynchronously(Asynchronous::Commits(AsyncKind::WarpgroupMma)),
    together("wgmma.wait_group", "#")
        .asynchronously(Asynchronous::Completes(AsyncKind::WarpgroupMma)),
    together("tcgen05.alloc", "[] 32"),
    together("tcgen05.dealloc", "32 32"),
    together("tcgen05.relinquish_alloc_permit", ""),
    together("tcgen05.ld", "=32* [] #?")
        .grouped(8)
        .asynchronously(Asynchronous::Starts(AsyncKind::TensorLoad)),
    together("tcgen05.ld.red", "=32* =32 [] #?")
        .grouped(8)
        .asynchronously(Asynchronous::Starts(AsyncKind::TensorLoad)),
    // A store has read its registers when it has issued; `wait::st` is about tensor memory.
    together("tcgen05.st", "[] 32*; [] # 32*").grouped(8),
    together("tcgen05.wait::ld", "").asynchronously(Asynchronous::Completes(AsyncKind::TensorLoad)),
    together("tcgen05.wait::st", ""),
    ordered("tcgen05.cp", "[] 64"),
    ordered("tcgen05.shift", "[]"),
    ordered("tcgen05.mma", "[] 64 64 ...; [] [] 64 ..."),
    ordered("tcgen05.commit", "[] any?"),
    ordered("tcgen05.fence", ""),
    together("setmaxnreg", "#"),
];
