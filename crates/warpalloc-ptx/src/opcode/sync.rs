//! Parallel synchronisation and communication.

use super::row::{Row, ordered, pure, together};

pub(super) const ROWS: &[Row] = &[
    // Barriers. Numbers and thread counts may be registers.
    together("bar.sync", "32 32?"),
    together("bar.arrive", "32 32"),
    together(
        "bar.red",
        ".popc: =32 32 1; .popc: =32 32 32 1; =1 32 1; =1 32 32 1",
    ),
    together("bar.cta.sync", "32 32?"),
    together("bar.cta.arrive", "32 32"),
    together(
        "bar.cta.red",
        ".popc: =32 32 1; .popc: =32 32 32 1; =1 32 1; =1 32 32 1",
    ),
    together("bar.warp.sync", "32"),
    together("barrier.sync", "32 32?"),
    together("barrier.arrive", "32 32"),
    together(
        "barrier.red",
        ".popc: =32 32 1; .popc: =32 32 32 1; =1 32 1; =1 32 32 1",
    ),
    together("barrier.cta.sync", "32 32?"),
    together("barrier.cta.arrive", "32 32"),
    together(
        "barrier.cta.red",
        ".popc: =32 32 1; .popc: =32 32 32 1; =1 32 1; =1 32 32 1",
    ),
    together("barrier.cluster.arrive", ""),
    together("barrier.cluster.wait", ""),
    ordered("membar", ""),
    ordered("fence", "[] #; "),
    // Atomics. A cache policy may follow.
    ordered("atom", ".cas: =T [] T T 64?; =T* [] T* 64?").grouped(4),
    ordered("red", "[] T* 64?").grouped(4),
    // mbarrier.
    ordered("mbarrier.init", "[] 32"),
    ordered("mbarrier.inval", "[]"),
    ordered("mbarrier.expect_tx", "[] 32"),
    ordered("mbarrier.complete_tx", "[] 32"),
    ordered("mbarrier.arrive", "=64 [] 32?; [] 32?"),
    ordered("mbarrier.arrive_drop", "=64 [] 32?; [] 32?"),
    ordered("mbarrier.test_wait", ".parity: =1 [] 32; =1 [] 64"),
    ordered("mbarrier.try_wait", ".parity: =1 [] 32 32?; =1 [] 64 32?"),
    ordered("mbarrier.check_layout", "=1 []"),
    pure("mbarrier.pending_count", "=32 64"),
    // Launching.
    ordered("griddepcontrol", ""),
    ordered("clusterlaunchcontrol.try_cancel", "[] []"),
    pure("clusterlaunchcontrol.query_cancel.is_canceled", "=1 128"),
    pure(
        "clusterlaunchcontrol.query_cancel.get_first_ctaid",
        "=32* 128",
    ),
];
