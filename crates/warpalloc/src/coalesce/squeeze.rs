//! How many starts one body blocks for another.
//!
//! `degree < K` says little where pairs, quads and halves share a file: one quad may cost
//! a pair two places or a single register four. M. Smith, N. Ramsey and G. Holloway ("A
//! Generalized Algorithm for Graph-Coloring Register Allocation", PLDI 2004) count
//! instead the *places* `p(n)` where a node may go and, for each neighbour, the most
//! places `q(n, m)` that it can block wherever it goes itself. A node with
//! `Σ q(n, m) < p(n)` finds a place whatever its neighbours do.
//!
//! `q` depends on shapes alone: widths, alignments, and at which residue of its alignment
//! a body starts. Shapes are few, so the bounds are tabulated.

use cranelift_entity::{EntityRef, PrimaryMap};
use rustc_hash::FxHashMap;

/// The outline of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Units from its first to its last.
    pub width: u16,
    /// Starts are `residue` plus a multiple of this power of two.
    pub step: u16,
    /// Where starts stand within a step.
    pub residue: u16,
}

/// A tabulated shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShapeId(u16);

impl EntityRef for ShapeId {
    fn new(index: usize) -> ShapeId {
        ShapeId(index as u16)
    }

    fn index(self) -> usize {
        self.0 as usize
    }
}

/// The table of `q` over all shapes seen so far.
#[derive(Clone, Debug, Default)]
pub struct Squeeze {
    shapes: PrimaryMap<ShapeId, Shape>,
    ids: FxHashMap<Shape, ShapeId>,
    /// `q(n, m)` at `m * stride + n`.
    table: Vec<u16>,
    stride: usize,
}

impl Squeeze {
    /// The number of `shape`.
    pub fn shape(&mut self, shape: Shape) -> ShapeId {
        if let Some(&id) = self.ids.get(&shape) {
            return id;
        }
        let id = self.shapes.push(shape);
        self.ids.insert(shape, id);
        if self.shapes.len() > self.stride {
            self.widen();
        }
        for (other_id, &other) in self.shapes.iter() {
            self.table[other_id.index() * self.stride + id.index()] = most_blocked(shape, other);
            self.table[id.index() * self.stride + other_id.index()] = most_blocked(other, shape);
        }
        id
    }

    /// Makes room for twice as many shapes.
    fn widen(&mut self) {
        let stride = (2 * self.stride).max(32);
        let mut table = vec![0; stride * stride];
        for n in 0..self.stride {
            let row = &self.table[n * self.stride..][..self.stride];
            table[n * stride..][..self.stride].copy_from_slice(row);
        }
        (self.table, self.stride) = (table, stride);
    }

    /// The most starts of a body of shape `n` that one body of shape `m` blocks.
    pub fn blocked(&self, n: ShapeId, m: ShapeId) -> u32 {
        u32::from(self.blocking(m)[n.index()])
    }

    /// The same for a body of shape `m` and every shape `n`, by number.
    pub fn blocking(&self, m: ShapeId) -> &[u16] {
        &self.table[m.index() * self.stride..][..self.stride]
    }
}

/// The most starts of `n` that overlap some placement of `m`.
fn most_blocked(n: Shape, m: Shape) -> u16 {
    // Placements repeat with the larger step; far from the file's ends is the worst case.
    let period = n.step.max(m.step) as i32;
    let placements = (m.residue as i32..period.max(1)).step_by(m.step as usize);
    let count = |t: i32| {
        let (low, high) = (t - n.width as i32 + 1, t + m.width as i32 - 1);
        let up_to = |end: i32| (end - n.residue as i32).div_euclid(n.step as i32);
        up_to(high) - up_to(low - 1)
    };
    placements.map(count).max().unwrap_or(0) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aligned(width: u16) -> Shape {
        Shape {
            width,
            step: width,
            residue: 0,
        }
    }

    fn q(n: Shape, m: Shape) -> u16 {
        most_blocked(n, m)
    }

    #[test]
    fn aligned_registers_block_as_their_aliases_say() {
        let [single, pair, quad] = [1, 2, 4].map(aligned);
        assert_eq!(
            [q(single, single), q(single, pair), q(single, quad)],
            [1, 2, 4]
        );
        assert_eq!([q(pair, single), q(pair, pair), q(pair, quad)], [1, 1, 2]);
        assert_eq!([q(quad, single), q(quad, pair), q(quad, quad)], [1, 1, 1]);
    }

    #[test]
    fn a_pair_that_starts_odd_blocks_two_even_pairs() {
        let odd = Shape {
            width: 2,
            step: 2,
            residue: 1,
        };
        assert_eq!(q(aligned(2), odd), 2);
        assert_eq!(q(odd, aligned(2)), 2);
        assert_eq!(q(odd, odd), 1);
    }

    #[test]
    fn bounds_hold_for_every_placement() {
        let shapes: Vec<Shape> = [1u16, 2, 3, 4, 6, 8]
            .iter()
            .flat_map(|&width| {
                [1u16, 2, 4, 8].into_iter().flat_map(move |step| {
                    (0..step).map(move |residue| Shape {
                        width,
                        step,
                        residue,
                    })
                })
            })
            .collect();
        let starts = |s: Shape| (s.residue as i32..64).step_by(s.step as usize);
        let mut table = Squeeze::default();
        for &n in &shapes {
            for &m in &shapes {
                let blocked_by = |t: i32| {
                    let overlaps = |s: &i32| *s < t + m.width as i32 && t < *s + n.width as i32;
                    starts(n).filter(overlaps).count() as u32
                };
                let worst = starts(m).map(blocked_by).max();
                let (n, m) = (table.shape(n), table.shape(m));
                assert_eq!(Some(table.blocked(n, m)), worst);
            }
        }
    }
}
