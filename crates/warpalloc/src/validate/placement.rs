//! Whether the registers demanded within one instruction can all be given at once.
//!
//! Groups and ties make operands move together: they are *rigid bodies*, a set of operands
//! with known distances from a common origin, in units. A fixed register pins a body down.
//! An instruction's demands are contradictory when
//! - a body has an operand at two distances at once, or pinned to two places;
//! - no origin aligns all of its operands;
//! - two operands of a body, or of pinned bodies, overlap while both are needed.
//!
//! Inputs are needed before the instruction, results after it, operands changed in place and
//! early results both. Inputs may overlap only where they are the same value at the same
//! place.

use super::*;
use smallvec::SmallVec;
use std::ops::Range;

/// Where an operand stands relative to the origin of its body.
#[derive(Clone, Copy)]
struct Position {
    body: usize,
    offset: i64,
}

type Positions = SmallVec<[Position; 16]>;

impl Rules<'_> {
    pub(super) fn placement(&self, place: Place, inst: Inst) -> Result<(), Error> {
        let f = self.function;
        let operands = f.operands(inst);
        self.group_shapes(place, inst)?;
        let mut positions = Positions::new();
        positions.extend((0..operands.len()).map(|body| Position { body, offset: 0 }));
        for group in f.groups(inst) {
            let mut offset = 0;
            for i in group.range() {
                self.join(place, inst, &mut positions, group.range().start, i, offset)?;
                offset += self.width(operands[i].vreg) as i64;
            }
        }
        for (i, operand) in operands.iter().enumerate() {
            if let Constraint::Tied(to) = operand.constraint {
                self.join(place, inst, &mut positions, to as usize, i, 0)?;
            }
        }
        let origins = self.origins(place, inst, &positions)?;
        self.alignment(place, inst, &positions, &origins)?;
        self.overlaps(place, inst, &positions, &origins)
    }

    fn width(&self, vreg: VReg) -> usize {
        self.target.width(self.function.vreg(vreg).class)
    }

    fn group_shapes(&self, place: Place, inst: Inst) -> Result<(), Error> {
        let f = self.function;
        let operands = f.operands(inst);
        let mut taken = 0;
        let mut groups: SmallVec<[OperandGroup; 4]> = f.groups(inst).iter().copied().collect();
        groups.sort_by_key(|g| g.first);
        for group in groups {
            let (first, len) = (group.first, group.len);
            let range = group.range();
            if len == 0 || range.end > operands.len() {
                let count = operands.len();
                let message =
                    format!("a group takes {len} operands from {first} on, but there are {count}");
                return invalid(place, message);
            }
            if range.start < taken {
                return invalid(place, format!("operand {first} is in two groups"));
            }
            taken = range.end;
            if !group.align.is_power_of_two() {
                let align = group.align;
                return invalid(place, format!("{align} is no alignment for a group"));
            }
            self.group_members(place, &operands[range])?;
        }
        Ok(())
    }

    fn group_members(&self, place: Place, members: &[Operand]) -> Result<(), Error> {
        let file = |o: &Operand| self.target.class(self.function.vreg(o.vreg).class).file;
        let (a, rest) = (&members[0], &members[1..]);
        for b in rest {
            let (x, y) = (a.vreg, b.vreg);
            if file(a) != file(b) {
                return invalid(place, format!("{x} and {y} form a group across files"));
            }
            if a.role.writes() != b.role.writes() {
                return invalid(
                    place,
                    format!("a group holds both an input and a result, {x} and {y}"),
                );
            }
        }
        Ok(())
    }

    /// Puts operand `b` at `distance` from operand `a`.
    fn join(
        &self,
        place: Place,
        inst: Inst,
        positions: &mut Positions,
        a: usize,
        b: usize,
        distance: i64,
    ) -> Result<(), Error> {
        let (pa, pb) = (positions[a], positions[b]);
        let wanted = pa.offset + distance;
        if pa.body == pb.body {
            if pb.offset != wanted {
                let operands = self.function.operands(inst);
                let (x, y) = (operands[a].vreg, operands[b].vreg);
                return invalid(
                    place,
                    format!("ties and groups put {x} and {y} at contradictory distances"),
                );
            }
            return Ok(());
        }
        for position in positions.iter_mut().filter(|p| p.body == pb.body) {
            position.body = pa.body;
            position.offset += wanted - pb.offset;
        }
        Ok(())
    }

    /// The unit of each body's origin, where a fixed register determines it.
    fn origins(
        &self,
        place: Place,
        inst: Inst,
        positions: &Positions,
    ) -> Result<SmallVec<[Option<i64>; 16]>, Error> {
        let operands = self.function.operands(inst);
        let mut origins: SmallVec<[Option<i64>; 16]> = SmallVec::from_elem(None, operands.len());
        for (operand, position) in operands.iter().zip(positions) {
            let Constraint::Fixed(reg) = operand.constraint else {
                continue;
            };
            let origin = reg.unit as i64 - position.offset;
            let known = origins[position.body].get_or_insert(origin);
            if *known != origin || origin + self.lowest(positions, position.body) < 0 {
                let (vreg, name) = (operand.vreg, self.target.reg_name(reg));
                let message = format!(
                    "{vreg} cannot be in {name} together with the operands tied to it or in its group"
                );
                return invalid(place, message);
            }
        }
        Ok(origins)
    }

    /// The smallest offset in `body`.
    fn lowest(&self, positions: &Positions, body: usize) -> i64 {
        let offsets = positions
            .iter()
            .filter(|p| p.body == body)
            .map(|p| p.offset);
        offsets.min().unwrap_or(0)
    }

    /// Checks that each body has an origin that aligns its operands and groups within the file.
    fn alignment(
        &self,
        place: Place,
        inst: Inst,
        positions: &Positions,
        origins: &[Option<i64>],
    ) -> Result<(), Error> {
        let f = self.function;
        let operands = f.operands(inst);
        let group_align = |i: usize| {
            let starts_here = |g: &&OperandGroup| g.range().start == i;
            f.groups(inst)
                .iter()
                .find(starts_here)
                .map_or(1, |g| g.align as i64)
        };
        for (body, &origin) in origins.iter().enumerate() {
            let members = || (0..operands.len()).filter(|&i| positions[i].body == body);
            let mut first_two = members();
            let Some(any) = first_two.next() else {
                continue;
            };
            let stands_alone = first_two.next().is_none() && group_align(any) == 1;
            if stands_alone && origin.is_none() {
                continue;
            }
            let class_of = |i: usize| self.target.class(f.vreg(operands[i].vreg).class);
            let align_of = |i: usize| (class_of(i).align as i64).max(group_align(i));
            let Some(strictest) = members().max_by_key(|&i| align_of(i)) else {
                continue;
            };
            let modulus = align_of(strictest);
            let residue = (-positions[strictest].offset).rem_euclid(modulus);
            let residue = origin.unwrap_or(residue);
            for i in members() {
                if (residue + positions[i].offset).rem_euclid(align_of(i)) != 0 {
                    let (a, b) = (operands[strictest].vreg, operands[i].vreg);
                    return invalid(
                        place,
                        format!("no registers align both {a} and {b}, which stand together"),
                    );
                }
            }
            let lowest = self.lowest(positions, body);
            let end = |i: usize| positions[i].offset + class_of(i).width as i64;
            let highest = members().map(end).max().unwrap_or(0);
            let start = origin.map_or((residue + lowest).rem_euclid(modulus), |o| o + lowest);
            let needed = (start + highest - lowest) as usize;
            let file = class_of(any).file;
            if needed > self.target.file(file).units {
                let what = format!("the group of {}", operands[any].vreg);
                return self.out_of_registers(place, None, &what, file, needed);
            }
        }
        Ok(())
    }

    fn overlaps(
        &self,
        place: Place,
        inst: Inst,
        positions: &Positions,
        origins: &[Option<i64>],
    ) -> Result<(), Error> {
        let operands = self.function.operands(inst);
        let span = |i: usize| {
            let start = positions[i].offset + origins[positions[i].body].unwrap_or(0);
            start..start + self.width(operands[i].vreg) as i64
        };
        let spans: SmallVec<[Range<i64>; 16]> = (0..operands.len()).map(span).collect();
        let comparable = |i: usize, j: usize| {
            let (a, b) = (positions[i].body, positions[j].body);
            let file = |i: usize| {
                self.target
                    .class(self.function.vreg(operands[i].vreg).class)
                    .file
            };
            a == b || (origins[a].is_some() && origins[b].is_some() && file(i) == file(j))
        };
        for i in 0..operands.len() {
            for j in i + 1..operands.len() {
                let (x, y) = (&spans[i], &spans[j]);
                if x.start < y.end
                    && y.start < x.end
                    && comparable(i, j)
                    && clash(&operands[i], &operands[j], x == y)
                {
                    let (a, b) = (operands[i].vreg, operands[j].vreg);
                    return invalid(
                        place,
                        format!(
                            "{a} and {b} would share a register{}",
                            self.where_is(&operands[i])
                        ),
                    );
                }
            }
        }
        Ok(())
    }

    fn where_is(&self, operand: &Operand) -> String {
        match operand.constraint {
            Constraint::Fixed(reg) => format!(", {}", self.target.reg_name(reg)),
            _ => String::new(),
        }
    }
}

/// Whether two operands that overlap are needed at the same time as different things.
fn clash(a: &Operand, b: &Operand, same_place: bool) -> bool {
    let early = |o: &Operand| o.role != Role::Def;
    let late = |o: &Operand| o.role != Role::Use;
    let same_input = same_place && a.vreg == b.vreg && a.role.reads() && b.role.reads();
    (early(a) && early(b) && !same_input) || (late(a) && late(b))
}
