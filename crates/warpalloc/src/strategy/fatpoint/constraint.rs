//! What restricts a cluster's registers.
//!
//! ptxas is reported to read one record per operand, with a type in its upper bits
//! (`docs/sources.md#fatpoint-constraints`). In our form most of them are implied by the
//! program itself; [`ConstraintType`] says where each one shows, and [`chain`] lists the
//! records of a cluster that restrict its starts whatever other clusters do. A cluster with
//! an empty chain is *unconstrained*.

use super::cluster::{ClusterInfo, Member};
use crate::program::{Program, Ranges};
use crate::target::{Mask, Target};
use smallvec::SmallVec;

/// The constraint types of ptxas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConstraintType {
    /// A conflict at one program point: a clobber while the value is alive.
    Point,
    /// A register read or written: the value's stretches in the occupancy.
    Register,
    /// An immediate, which needs no register.
    Immediate,
    /// Half of a wider value, or a lane of a group: alignment and distance.
    Paired,
    /// A register it may not have.
    ExcludeOne,
    /// The only register it may have.
    ExcludeAllBut,
    /// In force below the point: a result that begins where its instruction writes.
    BelowPoint,
    /// In force over an interval: a stretch.
    Range,
    /// Joined to another value on an edge: a preference for one register.
    Phi,
    /// A barrier register, which is not allocated here.
    Barrier,
}

impl ConstraintType {
    /// All types by number.
    pub const ALL: [ConstraintType; 10] = [
        ConstraintType::Point,
        ConstraintType::Register,
        ConstraintType::Immediate,
        ConstraintType::Paired,
        ConstraintType::ExcludeOne,
        ConstraintType::ExcludeAllBut,
        ConstraintType::BelowPoint,
        ConstraintType::Range,
        ConstraintType::Phi,
        ConstraintType::Barrier,
    ];

    /// The number ptxas has for the type.
    pub fn number(self) -> u32 {
        self as u32
    }
}

/// A record that restricts where a cluster may start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Constraint<const W: usize> {
    /// Units overwritten while the member at `offset` is alive.
    Point {
        /// The member's distance from the start.
        offset: usize,
        /// The member's width.
        width: usize,
        /// What is overwritten.
        units: Mask<W>,
    },
    /// Starts are multiples of this.
    Paired {
        /// The alignment.
        align: usize,
    },
    /// Units the member at `offset` may not touch.
    ExcludeOne {
        /// The member's distance from the start.
        offset: usize,
        /// The member's width.
        width: usize,
        /// What it may not touch.
        units: Mask<W>,
    },
    /// It starts here.
    ExcludeAllBut {
        /// The only start.
        start: usize,
    },
}

impl<const W: usize> Constraint<W> {
    /// The type it is a record of.
    pub fn kind(&self) -> ConstraintType {
        match self {
            Constraint::Point { .. } => ConstraintType::Point,
            Constraint::Paired { .. } => ConstraintType::Paired,
            Constraint::ExcludeOne { .. } => ConstraintType::ExcludeOne,
            Constraint::ExcludeAllBut { .. } => ConstraintType::ExcludeAllBut,
        }
    }

    /// Starts it rules out.
    pub fn blocked(&self) -> Mask<W> {
        let all = Mask([u64::MAX; W]);
        match self {
            Constraint::Point {
                offset,
                width,
                units,
            }
            | Constraint::ExcludeOne {
                offset,
                width,
                units,
            } => units.blocked_starts(*width).down(*offset),
            Constraint::Paired { align } => all.without(&Mask::multiples_of(*align)),
            Constraint::ExcludeAllBut { start } => all.without(&Mask::of(std::iter::once(*start))),
        }
    }
}

/// The records of one cluster.
pub type Chain<const W: usize> = SmallVec<[Constraint<W>; 2]>;

/// What restricts `info` on its own, its neighbours aside.
pub fn chain<const W: usize>(
    program: &Program,
    target: &Target,
    ranges: &Ranges,
    info: &ClusterInfo,
) -> Chain<W> {
    let mut chain = Chain::new();
    each(program, target, ranges, info, |record| chain.push(record));
    chain
}

/// Whether something other than alignment may restrict `info` on its own; quickly told.
#[inline]
pub fn is_restricted(program: &Program, ranges: &Ranges, info: &ClusterInfo) -> bool {
    let restricted = |member: &Member| {
        ranges.crosses_clobber(member.value) || program.values[member.value].forbidden.is_some()
    };
    info.fixed.is_some() || info.members.iter().any(restricted)
}

/// Whether anything restricts `info` on its own.
pub fn is_constrained(program: &Program, ranges: &Ranges, info: &ClusterInfo) -> bool {
    let restricted = |member: &Member| {
        let excluded = program.values[member.value].forbidden.is_some();
        let clobbered = || !member.silent && !ranges.clobbered(member.value).is_empty();
        excluded || (ranges.crosses_clobber(member.value) && clobbered())
    };
    info.fixed.is_some() || info.align > 1 || info.members.iter().any(restricted)
}

/// Calls `visit` with each record of `info`.
#[inline]
pub fn each<const W: usize>(
    program: &Program,
    target: &Target,
    ranges: &Ranges,
    info: &ClusterInfo,
    mut visit: impl FnMut(Constraint<W>),
) {
    if let Some(reg) = info.fixed {
        // A pinned place was proved to hold the link; nothing else has a say.
        let start = reg.unit as usize;
        visit(Constraint::ExcludeAllBut { start });
        return;
    }
    if info.align > 1 {
        let align = info.align as usize;
        visit(Constraint::Paired { align });
    }
    for member in &info.members {
        let (offset, width) = (
            member.offset as usize,
            ranges.size(member.value).width as usize,
        );
        if let Some(forbidden) = &program.values[member.value].forbidden {
            let units = Mask::of_file(target, info.file, forbidden);
            visit(Constraint::ExcludeOne {
                offset,
                width,
                units,
            });
        }
        if member.silent || !ranges.crosses_clobber(member.value) {
            continue;
        }
        let units: Mask<W> = ranges.clobbered(member.value).widened();
        if !units.is_empty() {
            visit(Constraint::Point {
                offset,
                width,
                units,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of `docs/sources.md#fatpoint-constraints`.
    #[test]
    fn types_have_the_documented_numbers() {
        for (number, kind) in ConstraintType::ALL.into_iter().enumerate() {
            assert_eq!(kind.number(), number as u32);
        }
        assert_eq!(ConstraintType::ExcludeAllBut.number(), 5);
        assert_eq!(ConstraintType::Phi.number(), 8);
    }

    #[test]
    fn each_record_rules_out_what_it_says() {
        let starts = |c: Constraint<1>| {
            let free = Mask::first(8).without(&c.blocked());
            free.iter().collect::<Vec<_>>()
        };
        let mut units = Mask::EMPTY;
        units.insert(4);
        assert_eq!(
            starts(Constraint::Point {
                offset: 0,
                width: 1,
                units
            }),
            [0, 1, 2, 3, 5, 6, 7]
        );
        assert_eq!(
            starts(Constraint::ExcludeOne {
                offset: 1,
                width: 2,
                units
            }),
            [0, 1, 4, 5, 6, 7]
        );
        assert_eq!(starts(Constraint::Paired { align: 4 }), [0, 4]);
        assert_eq!(starts(Constraint::ExcludeAllBut { start: 6 }), [6]);
    }
}
