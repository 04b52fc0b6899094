//! Which free register a value takes, and what it keeps for others.
//!
//! A value goes where its affinities, its congruence class or the source of its copy would
//! have it, if that is free. Otherwise it takes a register that costs others least: one that
//! no class claims, that belongs to no window, that breaks no pair.

use super::affinity::Window;
use super::assign::Assigner;
use super::code::{NONE, Shape, Step};
use crate::function::{Block, Role};
use crate::ir::Op;
use crate::target::{File, UnitSet};

impl<const W: usize> Assigner<'_, W> {
    /// A free register for `value`, `near` or one of its affinities if possible.
    pub(super) fn pick(&mut self, value: u32, near: Option<usize>) -> Option<usize> {
        let shape = self.code.shape(value);
        let [wanted, class, beside] = self.hints(value);
        let window = self.window(value);
        let hints = match window {
            None => [near, wanted, class, beside],
            Some(_) => [wanted, beside, near, class],
        };
        // The first member of a class decides for the groups of the others.
        let window = window.filter(|_| beside.is_none());
        let units = self.code.units(shape.file);
        let suits = |unit| window.is_none_or(|window| window.suits(unit, units));
        for unit in hints.into_iter().flatten() {
            if self.is_free(shape, unit) && suits(unit) {
                return Some(unit);
            }
        }
        let mut starts = self.starts(shape);
        if let Some(window) = window
            && let Some(unit) = self.window_start(shape.file, window, &starts)
        {
            return Some(unit);
        }
        let reserved = &self.reserved[shape.file];
        if !reserved.is_empty() {
            // Windows are worth moves, not another register.
            let open = starts.without(&reserved.blocked_starts(shape.width));
            let used = self.used[shape.file];
            if open.lowest().is_some_and(|unit| unit < used) {
                starts = open;
            }
        }
        let file = self.code.target.file(File::new(shape.file));
        if file.has_order() {
            return file.best_start(&starts);
        }
        if shape.width == 1 && !self.has_wide[shape.file] {
            let mut best: Option<(f32, usize)> = None;
            for unit in starts.iter() {
                let cost = self.cost_of_taking(value, shape.file, unit);
                if cost == 0.0 {
                    return Some(unit);
                }
                if best.is_none_or(|(least, _)| cost < least) {
                    best = Some((cost, unit));
                }
            }
            return best.map(|(_, unit)| unit);
        }
        if shape.width == 1 {
            // Leave whole pairs to those who need them. Beyond the registers in use a unit
            // without its other half, the last of an odd number, would only be one more.
            let even = UnitSet::multiples_of(2);
            let pairs = starts.without(&even).down(1).and(&starts).and(&even);
            let mut alone = starts.without(&pairs);
            for unit in pairs.iter() {
                alone.remove(unit + 1);
            }
            let used = self.used[shape.file];
            if let Some(unit) = alone.lowest().filter(|&unit| unit < used) {
                return Some(unit);
            }
        }
        starts.lowest()
    }

    /// The units where `value` would like to start, the most wanted first.
    #[inline]
    pub(super) fn hints(&mut self, value: u32) -> [Option<usize>; 3] {
        let [wanted, beside] = self.affinities.hints(value);
        let class = self.congruence.class(value);
        let class = class.and_then(|class| self.congruence.unit(class));
        [wanted, class, beside]
    }

    /// Where the source of a copy to `value` is, if it dies here.
    pub(super) fn copied_from(
        &self,
        block: Block,
        step: Step,
        value: u32,
        dying: &[u32],
    ) -> Option<usize> {
        let code = self.code;
        let source = match code.op(block, step) {
            Some(Op::Copies(pairs)) => {
                let pair = pairs.iter().find(|(to, _)| to.as_u32() == value);
                pair.map(|(_, from)| from.as_u32())
            }
            // The operands of an instruction without constraints are values themselves.
            _ if step.copies => {
                let operands = code.function.operands(step.inst()?).iter();
                let mut reads = operands.filter(|o| o.role == Role::Use);
                reads.next().map(|o| o.vreg.as_u32())
            }
            _ => None,
        };
        let source =
            source.filter(|v| dying.contains(v) && code.shape(*v).file == code.shape(value).file);
        source.map(|v| self.at[v as usize] as usize)
    }

    /// The lowest of `starts` where all of `window` is free.
    fn window_start(&self, file: usize, window: Window, starts: &UnitSet<W>) -> Option<usize> {
        let open = self.free[file].without(&self.reserved[file]);
        let is_open = |&unit: &usize| {
            let units = unit as i32 + window.low..unit as i32 + window.high;
            window.suits(unit, self.most[file].max(self.used[file]))
                && units.into_iter().all(|u| open.contains(u as usize))
        };
        starts.iter().find(is_open)
    }

    /// Where something of `shape` could start.
    pub(super) fn starts(&self, shape: Shape) -> UnitSet<W> {
        let free = &self.free[shape.file];
        if shape.width == 1 {
            return *free;
        }
        let taken = UnitSet::first(self.code.units(shape.file)).without(free);
        let first =
            self.code.units(shape.file) + 1 - shape.width.min(self.code.units(shape.file) + 1);
        let within = UnitSet::first(first);
        let aligned = UnitSet::multiples_of(shape.align).and(&within);
        aligned.without(&taken.blocked_starts(shape.width))
    }

    /// Whether something of `shape` can start at `unit`.
    #[inline]
    pub(super) fn is_free(&self, shape: Shape, unit: usize) -> bool {
        let free = &self.free[shape.file];
        unit.is_multiple_of(shape.align) && (unit..unit + shape.width).all(|u| free.contains(u))
    }

    /// What it costs others if `value` takes `unit`.
    #[inline]
    fn cost_of_taking(&mut self, value: u32, file: usize, unit: usize) -> f32 {
        let claims = &mut self.claims[file][unit];
        let last = self.last[file][unit];
        let own = self.congruence.class(value);
        let after = match own {
            Some(own) if last != NONE && self.congruence.unit(own).is_none() => {
                self.congruence.cost_after(own, last)
            }
            _ => 0.0,
        };
        if claims.is_empty() {
            return after;
        }
        let (congruence, now) = (&mut self.congruence, self.now);
        claims.retain(|class| {
            congruence.unit(*class) == Some(unit) && congruence.is_pending(*class, now)
        });
        let others = claims.iter().filter(|class| Some(**class) != own);
        let new = own.filter(|&class| congruence.unit(class).is_none());
        let costs = others.map(|&class| {
            let cost = congruence.cost_of_taking(class, value);
            match new {
                Some(new) => cost + congruence.cost_of_sharing(new, class),
                None => cost,
            }
        });
        let cost: f32 = costs.sum();
        cost + after
    }

    /// Notes that `value` is at `unit`, which its class claims from now on if it has no
    /// register yet or a loop begins with it there.
    pub(super) fn claim(&mut self, value: u32, unit: usize) {
        self.reserve(value, unit);
        self.affinities.settle(value, unit);
        let Some(class) = self.congruence.class(value) else {
            return;
        };
        let decides = self.is_at_header && self.congruence.starts_at(value, self.now);
        match self.congruence.unit(class) {
            Some(known) if known == unit || !decides => return,
            _ => {}
        }
        self.congruence.set_unit(class, unit);
        let claims = &mut self.claims[self.code.shape(value).file][unit];
        if !claims.contains(&class) {
            claims.push(class);
        }
    }

    /// Sets aside the window of a class whose first member is at `unit`.
    #[inline]
    fn reserve(&mut self, value: u32, unit: usize) {
        let Some(window) = self.window(value) else {
            return;
        };
        let shape = self.code.shape(value);
        let reserved = &mut self.reserved[shape.file];
        let units = self.code.units(shape.file);
        if self.affinities.is_undecided(value) && window.suits(unit, units) {
            let low = unit.wrapping_add_signed(window.low as isize);
            reserved.insert_range(low, (window.high - window.low) as usize);
        }
        let end = (unit + shape.width) as i32;
        reserved.remove_range(unit as i32, end);
    }

    /// The window of the class of `value`. What is spilled comes back one by one, wherever
    /// there is room.
    pub(super) fn window(&mut self, value: u32) -> Option<Window> {
        match self.plan {
            None => self.affinities.window(value),
            Some(_) => None,
        }
    }

    /// Whether the groups of the class of `value`, which has `window`, are where they can be if
    /// it is at `unit`.
    pub(super) fn suits(&mut self, value: u32, window: Window, unit: usize) -> bool {
        match self.affinities.hints(value)[1] {
            Some(place) => place == unit,
            None => window.suits(unit, self.code.units(self.code.shape(value).file)),
        }
    }
}
