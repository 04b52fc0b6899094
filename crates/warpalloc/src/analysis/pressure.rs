//! How many units of each register file are in use at each point.
//!
//! A value takes its units wherever it is live, and where it is written even without a
//! reader: a dead result still lands in a register. Around one instruction that makes
//! two moments:
//!
//! ```text
//! before = live before + early results       an early result shares nothing with inputs
//! after  = live after ∪ results
//! ```
//!
//! At the start of a block its parameters count, dead ones included. Clobbered registers
//! hold no value and do not count. The maximum over all moments is a lower bound of what
//! allocation without spilling needs, and for values of one width in SSA form exactly
//! what it needs (S. Hack, D. Grund, G. Goos, "Register Allocation for Programs in
//! SSA-Form", CC 2006). Alignment is not part of it.

use super::{Code, LiveSet, Liveness};
use crate::function::{Block, Function, Inst, Role};
use crate::target::{File, MAX_FILES, Target};
use cranelift_entity::EntityRef;

/// A moment at which values occupy registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment<P = Inst> {
    /// The start of a block, its parameters written.
    Entry(Block),
    /// Right before an instruction, with the results it writes early.
    Before(P),
    /// Right after an instruction, with its dead results.
    After(P),
}

/// The greatest pressure on one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peak<P = Inst> {
    /// Units in use.
    pub units: usize,
    /// One moment at which they are; none if the file is never used.
    pub at: Option<Moment<P>>,
}

/// Greatest pressure on each file, of the whole code and of each block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pressure<P = Inst> {
    peaks: Vec<Peak<P>>,
    /// One row of files per block.
    blocks: Vec<u32>,
}

impl Pressure {
    /// Measures `function` on `target`.
    pub fn compute(function: &Function, target: &Target, liveness: &Liveness) -> Pressure {
        let files = target.files().len();
        Pressure::measure(function, liveness, files, |vreg| {
            let class = target.class(function.vreg(vreg).class);
            (class.file, class.width)
        })
    }
}

impl<P: Copy> Pressure<P> {
    /// Measures any code, given the number of files and the file and width of each value.
    pub fn measure<C: Code<Point = P>>(
        code: &C,
        liveness: &Liveness<C::Value>,
        files: usize,
        size: impl Fn(C::Value) -> (File, usize),
    ) -> Pressure<P> {
        let none = Peak { units: 0, at: None };
        let mut peaks = vec![none; files];
        let mut blocks = vec![0; files * code.block_count()];
        let mut walk = PressureWalk::new(code, liveness, files, size);
        for (block, row) in code.all_blocks().zip(blocks.chunks_exact_mut(files)) {
            walk.block(block, |moment, units| {
                for (file, &units) in units.iter().enumerate() {
                    row[file] = row[file].max(units as u32);
                    if units > peaks[file].units {
                        let at = Some(moment);
                        peaks[file] = Peak { units, at };
                    }
                }
            });
        }
        Pressure { peaks, blocks }
    }

    /// The greatest pressure on `file`, and where.
    pub fn peak(&self, file: File) -> Peak<P> {
        self.peaks[file.index()]
    }

    /// The greatest pressure on `file`, in units.
    pub fn max(&self, file: File) -> usize {
        self.peaks[file.index()].units
    }

    /// The greatest pressure on `file` within `block`, in units.
    pub fn block_max(&self, block: Block, file: File) -> usize {
        self.blocks[block.index() * self.peaks.len() + file.index()] as usize
    }
}

/// Visits the pressure at every moment, block by block.
pub struct PressureWalk<'a, C: Code, S> {
    code: &'a C,
    liveness: &'a Liveness<C::Value>,
    size: S,
    live: LiveSet<C::Value>,
    files: usize,
    /// Units of the live values, per file.
    units: [usize; MAX_FILES],
    /// The same with what counts only at one moment.
    moment: [usize; MAX_FILES],
}

impl<'a, C: Code, S: Fn(C::Value) -> (File, usize)> PressureWalk<'a, C, S> {
    /// A walk over `code`, given the number of files and the file and width of each value.
    pub fn new(
        code: &'a C,
        liveness: &'a Liveness<C::Value>,
        files: usize,
        size: S,
    ) -> PressureWalk<'a, C, S> {
        PressureWalk {
            code,
            liveness,
            size,
            live: LiveSet::new(code.value_count()),
            files,
            units: [0; MAX_FILES],
            moment: [0; MAX_FILES],
        }
    }

    /// Visits the moments of `block` from its end to its start with the units in use, one
    /// number per file.
    pub fn block(&mut self, block: Block, mut visit: impl FnMut(Moment<C::Point>, &[usize])) {
        let code = self.code;
        self.units.fill(0);
        self.live.clear();
        for value in self.liveness.live_out(block) {
            self.enter(value);
        }
        for point in code.points(block).rev() {
            let written = || code.accesses(point).filter(|(_, role)| role.writes());
            self.moment = self.units;
            for (value, _) in written() {
                self.leave(value);
            }
            visit(Moment::After(point), &self.moment[..self.files]);
            for (value, _) in code.accesses(point).filter(|(_, role)| role.reads()) {
                self.enter(value);
            }
            self.moment = self.units;
            for (value, _) in code.accesses(point).filter(is_early) {
                self.add(value);
            }
            visit(Moment::Before(point), &self.moment[..self.files]);
        }
        self.moment = self.units;
        for value in code.parameters(block) {
            self.leave(value);
        }
        visit(Moment::Entry(block), &self.moment[..self.files]);
    }

    fn add(&mut self, value: C::Value) {
        let (file, width) = (self.size)(value);
        self.moment[file.index()] += width;
    }

    fn enter(&mut self, value: C::Value) {
        if self.live.insert(value) {
            let (file, width) = (self.size)(value);
            self.units[file.index()] += width;
        }
    }

    /// Takes out a value that is written; one that nothing reads counts at this moment alone.
    fn leave(&mut self, value: C::Value) {
        let (file, width) = (self.size)(value);
        match self.live.remove(value) {
            true => self.units[file.index()] -= width,
            false => self.moment[file.index()] += width,
        }
    }
}

fn is_early<V>(access: &(V, Role)) -> bool {
    access.1 == Role::EarlyDef
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text;

    /// Two registers are in use from the second load to the use of both.
    #[test]
    fn a_peak_is_where_a_block_reaches_it_last_and_nowhere_in_a_file_without_values() {
        let case = text::parse(
            "target hardware sm_90
             kernel f {
             block0:
                 v0:r32 = load : read
                 v1:r32 = load : read
                 use v0, v1 : write
                 exit : exit write
             }",
        )
        .unwrap();
        let liveness = Liveness::compute(&case.function);
        let pressure = Pressure::compute(&case.function, &case.target, &liveness);
        let peak = pressure.peak(File::MAIN);
        let at = Some(Moment::Before(Inst::from_u32(2)));
        assert_eq!(peak, Peak { units: 2, at });
        assert_eq!(pressure.peak(File::P), Peak { units: 0, at: None });
    }
}
