//! Cycles from a producer of fixed latency to its reader.

use super::class::Class;
use crate::isa::{File, Sm};
use rustc_hash::FxHashMap;

/// How a register is read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Slot {
    /// As an operand of its file.
    Operand(File),
    /// As the guard.
    Guard(File),
}

/// The least cycles from the issue of a producer to that of a reader.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Latencies {
    least: FxHashMap<(Class, Class, Slot), u8>,
}

impl Latencies {
    /// The latencies of an SM.
    pub fn of(sm: Sm) -> Self {
        let rows = match sm.number() {
            ..80 => SM75,
            80..90 => SM80,
            _ => SM90,
        };
        Self {
            least: rows
                .iter()
                .map(|&(producer, reader, slot, cycles)| ((producer, reader, slot), cycles))
                .collect(),
        }
    }

    /// The cycles that must lie between. A pair that has not been seen has the longest
    /// latency that its producer has anywhere.
    pub fn least(&self, producer: Class, reader: Class, slot: Slot) -> u8 {
        let known = self.least.get(&(producer, reader, slot)).copied();
        known.unwrap_or_else(|| {
            let of_producer = self
                .least
                .iter()
                .filter(|((class, ..), _)| *class == producer);
            of_producer
                .map(|(_, &cycles)| cycles)
                .max()
                .unwrap_or(LONGEST)
        })
    }

    /// Notes a distance that was seen; says the least so far.
    pub fn note(&mut self, producer: Class, reader: Class, slot: Slot, cycles: u8) -> u8 {
        let least = self.least.entry((producer, reader, slot)).or_insert(cycles);
        *least = (*least).min(cycles);
        *least
    }

    /// The pairs, in order.
    pub fn rows(&self) -> Vec<(Class, Class, Slot, u8)> {
        let mut rows: Vec<_> = self
            .least
            .iter()
            .map(|(&(producer, reader, slot), &cycles)| (producer, reader, slot, cycles))
            .collect();
        rows.sort_unstable();
        rows
    }
}

/// No producer of fixed latency takes longer.
pub(super) const LONGEST: u8 = 40;

type Rows = &'static [(Class, Class, Slot, u8)];

use Class::*;

const R: Slot = Slot::Operand(File::R);
const UR: Slot = Slot::Operand(File::UR);
const P: Slot = Slot::Operand(File::P);
const UP: Slot = Slot::Operand(File::UP);
const ON_P: Slot = Slot::Guard(File::P);
const ON_UP: Slot = Slot::Guard(File::UP);

// The least distances that `--example coverage -- --measure` has seen: upper bounds of the
// hardware's latencies.

const SM75: Rows = &[
    (Alu, Alu, ON_P, 12),
    (Alu, Alu, P, 4),
    (Alu, Alu, R, 4),
    (Alu, Fma, ON_P, 12),
    (Alu, Fma, P, 5),
    (Alu, Fma, R, 5),
    (Alu, Wide, ON_P, 19),
    (Alu, Wide, P, 5),
    (Alu, Wide, R, 5),
    (Alu, Half, R, 6),
    (Alu, Double, ON_P, 13),
    (Alu, Double, P, 12),
    (Alu, Double, R, 6),
    (Alu, Xu, ON_P, 12),
    (Alu, Xu, R, 6),
    (Alu, Queue, ON_P, 12),
    (Alu, Queue, R, 6),
    (Alu, Control, ON_P, 12),
    (Alu, Control, P, 12),
    (Alu, Control, R, 6),
    (Fma, Alu, R, 5),
    (Fma, Fma, R, 4),
    (Fma, Wide, R, 4),
    (Fma, Half, R, 16),
    (Fma, Double, R, 6),
    (Fma, ToUniform, R, 8),
    (Fma, Xu, R, 6),
    (Fma, Queue, R, 6),
    (Fma, Control, R, 6),
    (Wide, Alu, P, 5),
    (Wide, Alu, R, 5),
    (Wide, Fma, P, 4),
    (Wide, Fma, R, 4),
    (Wide, Wide, R, 6),
    (Wide, Queue, R, 8),
    (Half, Alu, P, 8),
    (Half, Alu, R, 8),
    (Half, Half, R, 6),
    (Half, Queue, R, 8),
    (Tensor, Alu, R, 17),
    (Tensor, Fma, R, 16),
    (Tensor, Queue, R, 15),
    (Uniform, Alu, UP, 6),
    (Uniform, Alu, UR, 6),
    (Uniform, Fma, UR, 2),
    (Uniform, Wide, UR, 8),
    (Uniform, Uniform, UP, 4),
    (Uniform, Uniform, UR, 2),
    (Uniform, Queue, UR, 2),
    (ToUniform, Alu, UR, 4),
    (ToUniform, Uniform, UR, 2),
    (ToUniform, Xu, UR, 2),
];

const SM80: Rows = &[
    (Alu, Alu, ON_P, 13),
    (Alu, Alu, P, 4),
    (Alu, Alu, R, 4),
    (Alu, Fma, ON_P, 13),
    (Alu, Fma, P, 5),
    (Alu, Fma, R, 5),
    (Alu, Wide, ON_P, 13),
    (Alu, Wide, P, 5),
    (Alu, Wide, R, 5),
    (Alu, Half, ON_P, 13),
    (Alu, Half, P, 13),
    (Alu, Half, R, 5),
    (Alu, HalfTensor, R, 6),
    (Alu, Double, ON_P, 13),
    (Alu, Double, P, 13),
    (Alu, Double, R, 6),
    (Alu, ToUniform, ON_P, 19),
    (Alu, ToUniform, P, 13),
    (Alu, ToUniform, R, 4),
    (Alu, Xu, ON_P, 13),
    (Alu, Xu, R, 4),
    (Alu, Queue, ON_P, 13),
    (Alu, Queue, P, 13),
    (Alu, Queue, R, 4),
    (Alu, Control, ON_P, 13),
    (Alu, Control, P, 13),
    (Alu, Control, R, 4),
    (Fma, Alu, R, 5),
    (Fma, Fma, R, 4),
    (Fma, Wide, R, 4),
    (Fma, Half, R, 14),
    (Fma, Double, R, 6),
    (Fma, ToUniform, R, 4),
    (Fma, Xu, R, 4),
    (Fma, Queue, R, 4),
    (Fma, Control, R, 4),
    (Wide, Alu, P, 5),
    (Wide, Alu, R, 5),
    (Wide, Fma, P, 4),
    (Wide, Fma, R, 4),
    (Wide, Wide, R, 6),
    (Wide, Double, R, 27),
    (Wide, Xu, R, 8),
    (Wide, Queue, R, 5),
    (Half, Alu, ON_P, 13),
    (Half, Alu, P, 5),
    (Half, Alu, R, 5),
    (Half, Fma, ON_P, 13),
    (Half, Fma, R, 5),
    (Half, Half, ON_P, 13),
    (Half, Half, R, 4),
    (Half, HalfTensor, R, 6),
    (Half, Xu, R, 6),
    (Half, Queue, ON_P, 13),
    (Half, Queue, R, 5),
    (Half, Control, ON_P, 13),
    (HalfTensor, Alu, R, 10),
    (HalfTensor, Fma, R, 10),
    (HalfTensor, Wide, R, 10),
    (HalfTensor, Half, R, 10),
    (HalfTensor, HalfTensor, R, 6),
    (HalfTensor, Double, R, 6),
    (HalfTensor, Xu, R, 6),
    (HalfTensor, Queue, R, 6),
    (HalfTensor, Control, R, 6),
    (Tensor, Tensor, R, 24),
    (Tensor, Queue, R, 15),
    (Uniform, Alu, UP, 6),
    (Uniform, Alu, UR, 2),
    (Uniform, Fma, UR, 2),
    (Uniform, Wide, UR, 6),
    (Uniform, Double, UR, 9),
    (Uniform, Uniform, ON_UP, 11),
    (Uniform, Uniform, UP, 4),
    (Uniform, Uniform, UR, 2),
    (Uniform, Xu, UR, 2),
    (Uniform, Queue, UR, 2),
    (Uniform, Control, UR, 10),
    (ToUniform, Alu, UP, 1),
    (ToUniform, Alu, UR, 2),
    (ToUniform, Fma, UR, 10),
    (ToUniform, Uniform, ON_UP, 6),
    (ToUniform, Uniform, UR, 2),
    (ToUniform, Xu, UR, 2),
    (ToUniform, Control, UR, 3),
    (Control, Alu, R, 9),
];

const SM90: Rows = &[
    (Alu, Alu, ON_P, 13),
    (Alu, Alu, P, 4),
    (Alu, Alu, R, 4),
    (Alu, Fma, ON_P, 13),
    (Alu, Fma, P, 5),
    (Alu, Fma, R, 4),
    (Alu, Wide, ON_P, 13),
    (Alu, Wide, P, 5),
    (Alu, Wide, R, 3),
    (Alu, Half, ON_P, 13),
    (Alu, Half, P, 13),
    (Alu, Half, R, 5),
    (Alu, HalfTensor, R, 6),
    (Alu, Double, ON_P, 13),
    (Alu, Double, P, 13),
    (Alu, Double, R, 6),
    (Alu, Tensor, R, 7),
    (Alu, ToUniform, ON_P, 13),
    (Alu, ToUniform, P, 13),
    (Alu, ToUniform, R, 4),
    (Alu, Xu, ON_P, 13),
    (Alu, Xu, R, 4),
    (Alu, Queue, ON_P, 13),
    (Alu, Queue, P, 16),
    (Alu, Queue, R, 4),
    (Alu, Control, ON_P, 13),
    (Alu, Control, P, 13),
    (Alu, Control, R, 4),
    (Fma, Alu, R, 4),
    (Fma, Fma, R, 4),
    (Fma, Wide, R, 2),
    (Fma, Half, R, 12),
    (Fma, Double, R, 6),
    (Fma, Tensor, R, 7),
    (Fma, ToUniform, R, 5),
    (Fma, Xu, R, 4),
    (Fma, Queue, R, 4),
    (Fma, Control, R, 4),
    (Wide, Alu, P, 5),
    (Wide, Alu, R, 3),
    (Wide, Fma, P, 4),
    (Wide, Fma, R, 4),
    (Wide, Wide, R, 4),
    (Wide, Double, R, 26),
    (Wide, Xu, R, 6),
    (Wide, Queue, R, 5),
    (Half, Alu, ON_P, 13),
    (Half, Alu, P, 5),
    (Half, Alu, R, 5),
    (Half, Fma, ON_P, 13),
    (Half, Fma, R, 5),
    (Half, Half, ON_P, 13),
    (Half, Half, R, 4),
    (Half, HalfTensor, R, 6),
    (Half, Queue, R, 5),
    (Half, Control, ON_P, 13),
    (HalfTensor, Alu, R, 10),
    (HalfTensor, Fma, R, 10),
    (HalfTensor, Wide, R, 8),
    (HalfTensor, Half, R, 10),
    (HalfTensor, HalfTensor, R, 8),
    (HalfTensor, Double, R, 8),
    (HalfTensor, Xu, R, 6),
    (HalfTensor, Queue, R, 7),
    (HalfTensor, Control, R, 6),
    (Double, Alu, ON_P, 14),
    (Double, Alu, P, 6),
    (Double, Alu, R, 10),
    (Double, Fma, ON_P, 14),
    (Double, Fma, P, 15),
    (Double, Fma, R, 10),
    (Double, Wide, ON_P, 21),
    (Double, Wide, R, 37),
    (Double, Double, ON_P, 14),
    (Double, Double, P, 6),
    (Double, Double, R, 8),
    (Double, ToUniform, R, 10),
    (Double, Xu, R, 6),
    (Double, Queue, ON_P, 14),
    (Double, Queue, R, 7),
    (Double, Control, ON_P, 14),
    (Double, Control, P, 14),
    (Tensor, Alu, R, 5),
    (Tensor, Fma, R, 5),
    (Tensor, Half, R, 24),
    (Tensor, Tensor, R, 16),
    (Tensor, Queue, R, 15),
    (Uniform, Alu, UP, 6),
    (Uniform, Alu, UR, 2),
    (Uniform, Fma, UR, 2),
    (Uniform, Wide, UR, 2),
    (Uniform, Half, UR, 2),
    (Uniform, Double, UR, 2),
    (Uniform, Uniform, ON_UP, 11),
    (Uniform, Uniform, UP, 4),
    (Uniform, Uniform, UR, 2),
    (Uniform, Xu, UR, 2),
    (Uniform, Queue, UR, 2),
    (Uniform, Control, UP, 9),
    (Uniform, Control, UR, 3),
    (ToUniform, Alu, P, 8),
    (ToUniform, Alu, UP, 1),
    (ToUniform, Alu, UR, 2),
    (ToUniform, Fma, ON_P, 37),
    (ToUniform, Fma, UR, 13),
    (ToUniform, Tensor, UP, 7),
    (ToUniform, Tensor, UR, 13),
    (ToUniform, Uniform, ON_UP, 5),
    (ToUniform, Uniform, UR, 2),
    (ToUniform, Xu, UR, 2),
    (ToUniform, Queue, UR, 13),
    (ToUniform, Control, ON_P, 13),
    (ToUniform, Control, UR, 13),
    (Control, Alu, ON_P, 13),
    (Control, Alu, P, 4),
    (Control, Fma, UR, 2),
    (Control, ToUniform, ON_P, 13),
];
