//! How many registers a step needs, and whether they are there.
//!
//! A [`Load`] counts units by file and by alignment: at level `l`, the units of everything
//! aligned to `2^l` or more, each rounded up to whole runs of `2^l`. Values of power-of-two
//! widths, packed largest first, fit exactly when at each level the load is no more than the
//! file has in whole aligned runs; [`super::place`] moves values so that they are packed
//! that way where nothing less will do.

use super::code::{Access, Code, FILES, Shape, Step};
use crate::function::{Block, Clobbers, Role};
use crate::ir::{Link, Op, Value};
use crate::target::{RegSet, SpillPath, UnitSet};
use smallvec::SmallVec;

/// A set of files, one bit each.
pub(super) type Files = u8;

/// Every file.
pub(super) const ALL: Files = (1 << FILES) - 1;

/// The files of a set.
#[inline]
pub(super) fn each_of(files: Files) -> impl Iterator<Item = usize> {
    let mut files = files & ALL;
    std::iter::from_fn(move || {
        let file = (files != 0).then(|| files.trailing_zeros() as usize)?;
        files &= files - 1;
        Some(file)
    })
}

/// Alignments 1, 2, 4, 8 and 16.
const LEVELS: usize = 5;

/// Units in use, by file and alignment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Load([[i32; LEVELS]; FILES]);

/// Units in use of one file, by alignment.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileLoad([i32; LEVELS]);

impl FileLoad {
    #[inline]
    pub fn add(&mut self, shape: Shape) {
        count(&mut self.0, shape.width, shape.align, 1);
    }

    #[inline]
    pub fn remove(&mut self, shape: Shape) {
        count(&mut self.0, shape.width, shape.align, -1);
    }

    /// Whether this is nowhere more than the room of `file`.
    #[inline]
    pub fn fits(&self, room: &Load, file: usize) -> bool {
        is_within(&self.0, &room.0[file])
    }
}

#[inline]
fn count(load: &mut [i32; LEVELS], width: usize, align: usize, times: i32) {
    load[0] += times * width as i32;
    let mut level = 1;
    while level < LEVELS && 1 << level <= align {
        load[level] += times * width.next_multiple_of(1 << level) as i32;
        level += 1;
    }
}

// Without an early exit the comparison takes a few vector instructions.
#[inline]
fn is_within(load: &[i32; LEVELS], room: &[i32; LEVELS]) -> bool {
    let pairs = load.iter().zip(room);
    !pairs.fold(false, |more, (load, room)| more | (load > room))
}

impl Load {
    #[inline]
    pub fn add(&mut self, shape: Shape) {
        self.count(shape.file, shape.width, shape.align, 1);
    }

    #[inline]
    pub fn remove(&mut self, shape: Shape) {
        self.count(shape.file, shape.width, shape.align, -1);
    }

    #[inline]
    fn count(&mut self, file: usize, width: usize, align: usize, times: i32) {
        count(&mut self.0[file], width, align, times);
    }

    /// Units that nobody else can have break up every aligned run that they touch, which
    /// matters where something that wide has to be placed.
    fn add_fixed(&mut self, file: usize, units: &UnitSet<8>) {
        for (level, load) in self.0[file].iter_mut().enumerate() {
            if level > 0 && *load == 0 {
                continue;
            }
            let run = 1 << level;
            let mut last = usize::MAX;
            for unit in units.iter() {
                if unit / run != last {
                    last = unit / run;
                    *load += run as i32;
                }
            }
        }
    }

    /// Units in use of one file.
    pub fn units(&self, file: usize) -> i32 {
        self.0[file][0]
    }

    /// Whether this load is nowhere more than `room`.
    #[inline]
    pub fn fits(&self, room: &Load) -> bool {
        let pairs = self.0.as_flattened().iter().zip(room.0.as_flattened());
        // Without an early exit the comparison takes a few vector instructions.
        !pairs.fold(false, |more, (load, room)| more | (load > room))
    }

    /// The same for one file.
    #[inline]
    pub fn fits_file(&self, room: &Load, file: usize) -> bool {
        is_within(&self.0[file], &room.0[file])
    }

    /// The part that belongs to `file`.
    #[inline]
    pub fn of_file(&self, file: usize) -> FileLoad {
        FileLoad(self.0[file])
    }

    /// The file, of `files`, and the alignment where this load is more than `room`.
    #[inline]
    pub fn excess(&self, room: &Load, files: Files) -> Option<Excess> {
        if self.fits(room) {
            return None;
        }
        for file in each_of(files) {
            for level in 0..LEVELS {
                if self.0[file][level] > room.0[file][level] {
                    let align = 1 << level;
                    return Some(Excess { file, align });
                }
            }
        }
        None
    }

    /// The room of the units that are not in `taken`.
    pub fn room(code: &Code, taken: &RegSet) -> Load {
        let mut room = Load::default();
        for (file, info) in code.target.files() {
            let is_free = |unit: usize| {
                let register = crate::target::PReg::new(file, unit);
                !taken.contains(code.target.unit(register))
            };
            for level in 0..LEVELS {
                let run = 1 << level;
                let starts = (0..info.units / run).map(|n| n * run);
                let whole = starts.filter(|&start| (start..start + run).all(is_free));
                room.0[file.index()][level] = (whole.count() * run) as i32;
            }
        }
        room
    }

    /// Takes `units` away from every alignment of the files that reach memory.
    pub fn narrowed(mut self, code: &Code, units: i32) -> Load {
        for (file, info) in code.target.files() {
            if info.spill == SpillPath::Memory {
                self.0[file.index()].iter_mut().for_each(|n| *n -= units);
            }
        }
        self
    }
}

/// Where too much is in use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Excess {
    pub file: usize,
    pub align: usize,
}

/// What is in use around a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    /// While its inputs are read.
    pub before: Load,
    /// Once its results are written.
    pub after: Load,
    /// By values that live through it.
    pub through: Load,
}

/// The files whose values cannot be stored.
pub(super) fn indirect_files(code: &Code) -> Files {
    let files = code.target.files();
    let indirect = files.filter(|(_, info)| info.spill != SpillPath::Memory);
    indirect.fold(0, |set, (file, _)| set | 1 << file.index())
}

/// The room there is.
pub(super) struct Rooms {
    whole: Load,
    /// What the calling convention lets calls keep.
    kept_by_calls: Load,
}

impl Rooms {
    pub fn new(code: &Code) -> Rooms {
        let mut clobbered = code.target.clobbered();
        clobbered.union_with(code.pinned_units());
        Rooms {
            whole: Load::room(code, code.pinned_units()),
            kept_by_calls: Load::room(code, &clobbered),
        }
    }

    /// All of it.
    pub fn whole(&self) -> &Load {
        &self.whole
    }

    /// What values that live through `step` may use, where that is not all.
    fn kept(&self, code: &Code, step: Step) -> Option<Load> {
        let inst = step.inst().filter(|_| step.constrained)?;
        match code.function.inst(inst).clobbers {
            Clobbers::None => None,
            Clobbers::Abi => Some(self.kept_by_calls),
            Clobbers::List(_) => {
                let mut clobbers = code.function.clobbers(code.target, inst);
                clobbers.union_with(code.pinned_units());
                Some(Load::room(code, &clobbers))
            }
        }
    }

    /// Where `demand` is more than there is, `tight` units of which are not to be used.
    pub fn excess(
        &self,
        code: &Code,
        step: Step,
        demand: &Demand,
        tight: i32,
        files: Files,
    ) -> Option<Excess> {
        let whole = match tight {
            0 => self.whole,
            units => self.whole.narrowed(code, units),
        };
        demand.after.excess(&whole, files).or_else(|| {
            let kept = self.kept(code, step)?;
            demand.through.excess(&kept.narrowed(code, tight), files)
        })
    }

    /// Where the inputs of a step are more than there is.
    pub fn excess_before(
        &self,
        code: &Code,
        demand: &Demand,
        tight: i32,
        files: Files,
    ) -> Option<Excess> {
        match tight {
            0 => demand.before.excess(&self.whole, files),
            units => demand
                .before
                .excess(&self.whole.narrowed(code, units), files),
        }
    }
}

/// What a step needs when `before` is in registers before it. `dies` tells whether the
/// contents that the step reads are not read again.
pub(super) fn demand(
    code: &Code,
    block: Block,
    step: Step,
    accesses: &[Access],
    mut before: Load,
    dies: impl Fn(u32) -> bool,
) -> Demand {
    let mut after = before;
    let rewritten = |v: u32| {
        let mut all = accesses.iter();
        all.any(|a| a.value == v && matches!(a.role, Role::Def | Role::EarlyDef))
    };
    for (at, &Access { value, role, .. }) in accesses.iter().enumerate() {
        let mut before = accesses[..at].iter();
        let again = before.any(|a| a.value == value && a.role == role);
        if role == Role::Use && !again && (dies(value) || rewritten(value)) {
            after.remove(code.shape(value));
        }
    }
    let mut through = after;
    for &Access { value, role, .. } in accesses {
        let shape = code.shape(value);
        match role {
            Role::Use => {}
            Role::UseDef => through.remove(shape),
            Role::Def => after.add(shape),
            Role::EarlyDef => {
                before.add(shape);
                after.add(shape);
            }
        }
    }
    if step.constrained {
        add_links(code, block, step, &mut before, &mut after, &dies);
    }
    Demand {
        before,
        after,
        through,
    }
}

/// Puts the links of a step in the place of the values that sit in them.
fn add_links(
    code: &Code,
    block: Block,
    step: Step,
    before: &mut Load,
    after: &mut Load,
    dies: &impl Fn(u32) -> bool,
) {
    let seated = code.seated(block, step);
    let unseated = code.unseated(block, step);
    let mut fixed = [[UnitSet::<8>::EMPTY; FILES]; 2];
    for link in links(code, block, step) {
        let is_member = |seat| link.members.iter().any(|m| m.0 == seat);
        let mut is_read = false;
        let mut stays = unseated.iter().any(|&(_, seat)| is_member(seat));
        for &(seat, real) in seated.iter().filter(|(seat, _)| is_member(*seat)) {
            is_read = true;
            let value = real.as_u32();
            let first =
                seated.iter().position(|s| s.1 == real) == seated.iter().position(|s| s.0 == seat);
            if first && (dies(value) || unseated.iter().any(|u| u.0 == real)) {
                before.remove(code.shape(value));
            } else if is_shared(code, block, step, seat.as_u32(), value) {
                before.remove(code.shape(value));
                after.remove(code.shape(value));
                stays = true;
            }
        }
        for &(real, _) in unseated.iter().filter(|(_, seat)| is_member(*seat)) {
            after.remove(code.shape(real.as_u32()));
        }
        let (file, width, align) = extent(code, link);
        let early = writes_early(code, block, step, link);
        let times = [is_read || early, stays || early];
        for (at, load) in [&mut *before, &mut *after].into_iter().enumerate() {
            match link.fixed {
                _ if !times[at] => {}
                Some(reg) => {
                    let start = reg.unit as usize;
                    (start..start + width).for_each(|unit| fixed[at][file].insert(unit));
                }
                None => load.count(file, width, align, 1),
            }
        }
    }
    for (load, fixed) in [before, after].into_iter().zip(&fixed) {
        for (file, units) in fixed
            .iter()
            .enumerate()
            .filter(|(_, units)| !units.is_empty())
        {
            load.add_fixed(file, units);
        }
    }
}

/// Whether a value that is read again may live in a seat: the step leaves the seat alone,
/// the value has no other, and no result can be fixed to the same place.
pub(super) fn is_shared(code: &Code, block: Block, step: Step, seat: u32, real: u32) -> bool {
    let seats = code.seated(block, step).iter();
    let clobbers = |inst| code.function.inst(inst).clobbers != Clobbers::None;
    let is_fixed = |link: &&Link| link.fixed.is_some();
    let fixed = links(code, block, step)
        .into_iter()
        .filter(is_fixed)
        .count();
    let own = code.link_of(seat).map(|n| &code.program.links[n as usize]);
    let meets_another = fixed > 1 && own.as_ref().is_some_and(is_fixed);
    let is_result = code.program.values[Value::from_u32(seat)].is_result;
    let has_others = seats.filter(|(_, r)| r.as_u32() == real).count() != 1;
    let is_clobbered = step.inst().is_some_and(clobbers);
    !(is_result || meets_another || has_others || is_clobbered)
}

/// The links of a step.
pub(super) fn links<'a>(code: &'a Code, block: Block, step: Step) -> SmallVec<[&'a Link; 4]> {
    let mut numbers: SmallVec<[u32; 4]> = SmallVec::new();
    if let Some(Op::Inst { values, .. }) = code.op(block, step) {
        for value in values {
            if let Some(link) = code.link_of(value.as_u32())
                && !numbers.contains(&link)
            {
                numbers.push(link);
            }
        }
    }
    let links = &code.program.links;
    numbers.iter().map(|&n| &links[n as usize]).collect()
}

/// The file, width and alignment of a link.
pub(super) fn extent(code: &Code, link: &Link) -> (usize, usize, usize) {
    let ends = link
        .members
        .iter()
        .map(|&(seat, at)| at as usize + code.shape(seat.as_u32()).width);
    let file = code.shape(link.members[0].0.as_u32()).file;
    (file, ends.max().unwrap_or(0), link.align)
}

/// Whether a result in `link`, which is one of the step's, is written while inputs may still
/// be read.
pub(super) fn writes_early(code: &Code, block: Block, step: Step, link: &Link) -> bool {
    let Some(Op::Inst { inst, values }) = code.op(block, step) else {
        unreachable!("`links` finds none but those of instructions");
    };
    let operands = code.function.operands(*inst).iter().zip(values);
    let mut early = operands.filter(|(o, _)| o.role == Role::EarlyDef);
    early.any(|(_, v)| link.members.iter().any(|m| m.0 == *v))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alignments_beyond_the_last_level_count_at_all_levels() {
        let mut load = Load::default();
        load.add(Shape {
            file: 0,
            width: 33,
            align: 64,
            reaches_memory: true,
        });
        assert_eq!(load.0[0], [33, 34, 36, 40, 48]);
    }

    #[test]
    fn fixed_units_count_where_nothing_else_does() {
        let mut fixed: UnitSet<8> = UnitSet::EMPTY;
        [0, 1, 4].into_iter().for_each(|unit| fixed.insert(unit));
        let mut load = Load::default();
        load.add_fixed(0, &fixed);
        assert_eq!(load.0[0], [3, 0, 0, 0, 0]);
    }
}
