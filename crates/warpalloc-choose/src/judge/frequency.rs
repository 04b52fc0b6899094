//! How often each block runs, where only the shape of the control flow is known.

use warpalloc_sass::Cfg;
use warpalloc_sass::loops::Loops;

/// The frequency of each block: `trips` per loop around it, and an equal share of its
/// predecessors' where a branch stays on one level of nesting. A loop that is left is left once.
pub fn frequencies(cfg: &Cfg, loops: &Loops, trips: f64) -> Vec<f64> {
    let blocks = cfg.blocks();
    let mut share = vec![0.0; blocks.len()];
    for &entry in cfg.entries() {
        share[entry] = 1.0;
    }
    for block in cfg.reverse_postorder() {
        let depth = loops.depth(block);
        let succs = &blocks[block].succs;
        let stays = |succ: usize| loops.depth(succ) >= depth;
        let staying = succs.iter().filter(|&&s| stays(s)).count();
        let leaving = succs.len() - staying;
        for &succ in succs {
            let ways = if stays(succ) { staying } else { leaving };
            if !is_back_edge(loops, block, succ) {
                share[succ] += share[block] / ways as f64;
            }
        }
    }
    let frequency = |(block, share): (usize, &f64)| {
        let depth = i32::try_from(loops.depth(block)).unwrap_or(i32::MAX);
        share.min(1.0) * trips.powi(depth)
    };
    share.iter().enumerate().map(frequency).collect()
}

/// Edges to a header that stands before them in the code close its loop.
fn is_back_edge(loops: &Loops, from: usize, to: usize) -> bool {
    to <= from && loops.headers().binary_search(&to).is_ok()
}
