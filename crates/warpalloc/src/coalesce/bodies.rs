//! Bundles: values that take their registers together.
//!
//! A bundle, here a *body*, is a set of values at distances in units from a common start.
//! It begins as one value, or as the values an instruction links (the lanes of a vector, a
//! tied result), and grows as copies are coalesced: a copy between equals merges at
//! distance zero, a packing copy puts the narrow value on its part of the wide one. This
//! is union-find with an offset, except that members carry their body's number and the
//! smaller body is renumbered, so that looking a value up is one load.
//!
//! Everything that limits where a body may go (alignment of each member, fixed registers,
//! exclusions, clobbers, the end of the file) is one set of starts. Merging intersects
//! the sets, the second moved by the distance between the two.

use super::squeeze::Shape;
use crate::interference::Interference;
use crate::ir::{Link, Program, Value};
use crate::scratch::Scratch;
use crate::target::UnitSet;
use crate::target::{File, Target};
use cranelift_entity::packed_option::PackedOption;
use cranelift_entity::{PrimaryMap, SecondaryMap, entity_impl};
use smallvec::{SmallVec, smallvec};

/// A body.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BodyId(u32);
entity_impl!(BodyId, "body");

/// A value and where it sits in its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The value.
    pub value: Value,
    /// Units from the body's start.
    pub offset: u16,
    /// Units the value takes.
    pub width: u16,
}

/// Values that take their registers together.
#[derive(Clone, Debug, PartialEq)]
pub struct Body {
    /// The values.
    pub members: SmallVec<[Member; 1]>,
    /// The file they live in.
    pub file: File,
    /// Its outline.
    pub shape: Shape,
    /// Where it may start, by its number among all such sets.
    starts: u32,
    /// It must be in one particular place.
    pub fixed: bool,
    /// How many edges its members have together.
    pub edges: usize,
}

/// How two bodies would become one.
#[derive(Clone, Debug, PartialEq)]
pub struct Joint {
    /// One body.
    pub a: BodyId,
    /// The other.
    pub b: BodyId,
    /// Where `b` starts, counted in units from the start of `a`.
    pub distance: i32,
    /// The outline of the whole.
    pub shape: Shape,
    /// Where the whole may start.
    pub starts: UnitSet<8>,
}

/// All bodies of a program.
#[derive(Clone, Debug)]
pub struct Bodies {
    bodies: PrimaryMap<BodyId, Body>,
    seats: SecondaryMap<Value, Seat>,
    /// Where bodies may start. The first sets are those of the classes, which nearly all bodies
    /// share; each other belongs to one body.
    starts: Vec<UnitSet<8>>,
    /// How many are of classes.
    classes: u32,
}

/// Where a value sits.
#[derive(Clone, Copy, Debug, Default)]
struct Seat {
    body: PackedOption<BodyId>,
    offset: u16,
    width: u16,
}

impl Bodies {
    /// One body for each link, and one for each other value that occurs.
    pub fn new(
        program: &Program,
        target: &Target,
        interference: &Interference,
        scratch: &Scratch,
    ) -> Bodies {
        let count = program.values.len();
        let starts = class_starts(target);
        let mut bodies = Bodies {
            bodies: PrimaryMap::from(scratch.take(count)),
            seats: SecondaryMap::new(),
            classes: starts.len() as u32,
            starts,
        };
        bodies.seats.resize(count);
        for link in &program.links {
            bodies.add_link(program, target, interference, link);
        }
        for value in program.values.keys() {
            if interference.occurs(value) && bodies.of(value).is_none() {
                let alone = Link {
                    members: smallvec![(value, 0)],
                    align: 1,
                    fixed: None,
                };
                bodies.add_link(program, target, interference, &alone);
            }
        }
        bodies
    }

    fn add_link(
        &mut self,
        program: &Program,
        target: &Target,
        interference: &Interference,
        link: &Link,
    ) {
        let occurring = link.members.iter().filter(|m| interference.occurs(m.0));
        let members: SmallVec<[Member; 1]> = occurring
            .map(|&(value, offset)| Member {
                value,
                offset,
                width: target.width(program.values[value].class) as u16,
            })
            .collect();
        let Some(&first) = members.first() else {
            return;
        };
        let file = target.class(program.values[first.value].class).file;
        let mut shape = Shape {
            width: 0,
            step: link.align as u16,
            residue: 0,
        };
        for m in &members {
            let align = target.class(program.values[m.value].class).align as u16;
            shape.width = shape.width.max(m.offset + m.width);
            if align > shape.step {
                shape.step = align;
                shape.residue = (align - m.offset % align) % align;
            }
        }
        let starts = self.starts_of(program, target, interference, link, &members);
        let edges = members.iter().map(|m| interference.degree(m.value)).sum();
        let id = self.bodies.next_key();
        for m in &members {
            self.seats[m.value] = Seat {
                body: id.into(),
                offset: m.offset,
                width: m.width,
            };
        }
        self.bodies.push(Body {
            members,
            file,
            shape,
            starts,
            fixed: link.fixed.is_some(),
            edges,
        });
    }

    /// The number of the set of starts that suit `members` and the `link` between them.
    fn starts_of(
        &mut self,
        program: &Program,
        target: &Target,
        interference: &Interference,
        link: &Link,
        members: &[Member],
    ) -> u32 {
        let class = |m: &Member| program.values[m.value].class;
        if let [only] = members
            && link.fixed.is_none()
            && link.align <= 1
            && only.offset == 0
            && interference.clobbered(only.value).is_none()
            && program.values[only.value].forbidden.is_none()
        {
            return class(only).index() as u32;
        }
        let mut starts = match link.fixed {
            Some(reg) => UnitSet::of(std::iter::once(reg.unit as usize)),
            None => UnitSet::multiples_of(link.align),
        };
        for m in members {
            let mut of_member = self.starts[class(m).index()];
            let class = target.class(class(m));
            if let Some(clobbered) = interference.clobbered(m.value) {
                of_member.subtract(&clobbered.blocked_starts(class.width));
            }
            if let Some(set) = &program.values[m.value].forbidden {
                let forbidden = UnitSet::of_file(target, class.file, set);
                of_member.subtract(&forbidden.blocked_starts(class.width));
            }
            starts.intersect(&of_member.down(m.offset as usize));
        }
        self.starts.push(starts);
        self.starts.len() as u32 - 1
    }

    /// Leaves its memory to others.
    pub fn recycle(self, scratch: &Scratch) {
        scratch.give(Vec::from(self.bodies));
    }

    /// Every body ever made, merged ones included.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = BodyId> + use<> {
        self.bodies.keys()
    }

    /// The body `id`.
    pub fn get(&self, id: BodyId) -> &Body {
        &self.bodies[id]
    }

    /// Where the body `id` may start.
    pub fn starts(&self, id: BodyId) -> &UnitSet<8> {
        &self.starts[self.bodies[id].starts as usize]
    }

    /// Says where the body `id` may start.
    pub fn set_starts(&mut self, id: BodyId, starts: UnitSet<8>) {
        let number = &mut self.bodies[id].starts;
        if *number >= self.classes {
            self.starts[*number as usize] = starts;
        } else if self.starts[*number as usize] != starts {
            *number = self.starts.len() as u32;
            self.starts.push(starts);
        }
    }

    /// The body of `value`, unless it does not occur.
    pub fn of(&self, value: Value) -> Option<BodyId> {
        self.seats[value].body.expand()
    }

    /// Where `value` sits in its body.
    pub fn offset(&self, value: Value) -> u16 {
        self.seats[value].offset
    }

    /// The body's starts `first..end` from which `value` touches the units `low..high`.
    pub fn starts_touching(&self, value: Value, low: i32, high: i32) -> (i32, i32) {
        let seat = self.seats[value];
        let (offset, width) = (seat.offset as i32, seat.width as i32);
        (low - offset - width + 1, high - offset)
    }

    /// How the bodies of `to` and `from` would become one with `from` starting `distance`
    /// units after `to`; nothing if they may not.
    ///
    /// They may if some start suits both and no two values that interfere would overlap.
    pub fn joint(
        &self,
        interference: &Interference,
        to: Value,
        from: Value,
        distance: i32,
    ) -> Option<Joint> {
        let (a, b) = (self.of(to)?, self.of(from)?);
        if a == b || self.bodies[a].file != self.bodies[b].file {
            return None;
        }
        let distance = self.seats[to].offset as i32 + distance - self.seats[from].offset as i32;
        let (shape, starts) = self.outline(a, b, distance);
        if starts.is_empty() || self.collide(interference, a, b, distance) {
            return None;
        }
        Some(Joint {
            a,
            b,
            distance,
            shape,
            starts,
        })
    }

    fn outline(&self, a: BodyId, b: BodyId, distance: i32) -> (Shape, UnitSet<8>) {
        let (x, y) = (&self.bodies[a], &self.bodies[b]);
        let (low, high) = if distance >= 0 { (x, y) } else { (y, x) };
        let distance = distance.unsigned_abs() as u16;
        let [low_starts, high_starts] = [low, high].map(|x| &self.starts[x.starts as usize]);
        let mut starts = *low_starts;
        starts.intersect(&high_starts.down(distance as usize));
        let by_high = |step: u16| (high.shape.residue + step - distance % step) % step;
        let (step, residue) = if high.shape.step > low.shape.step {
            (high.shape.step, by_high(high.shape.step))
        } else {
            (low.shape.step, low.shape.residue)
        };
        let width = low.shape.width.max(distance + high.shape.width);
        let shape = Shape {
            width,
            step,
            residue,
        };
        (shape, starts)
    }

    /// Whether interfering values of `a` and `b` would overlap.
    fn collide(&self, interference: &Interference, a: BodyId, b: BodyId, distance: i32) -> bool {
        let (walked, other, distance) = if self.bodies[a].edges <= self.bodies[b].edges {
            (a, b, -distance)
        } else {
            (b, a, distance)
        };
        // `walked` starts `distance` units after `other`.
        self.bodies[walked].members.iter().any(|m| {
            let start = m.offset as i32 + distance;
            interference.edges(m.value).any(|edge| {
                let seat = self.seats[edge.value];
                if seat.body != other.into() {
                    return false;
                }
                let there = seat.offset as i32;
                let overlap = start < there + seat.width as i32 && there < start + m.width as i32;
                let allowed = edge.conditional
                    && interference.distance(m.value, edge.value) == Some(there - start);
                overlap && !allowed
            })
        })
    }

    /// Whether `body` can exist: some start suits it, and no two of its members that
    /// interfere overlap.
    pub fn is_sound(&self, interference: &Interference, body: BodyId) -> bool {
        let apart = |m: &Member| {
            let start = m.offset as i32;
            interference.edges(m.value).all(|edge| {
                let seat = self.seats[edge.value];
                let there = seat.offset as i32;
                seat.body != body.into()
                    || start >= there + seat.width as i32
                    || there >= start + m.width as i32
                    || (edge.conditional
                        && interference.distance(m.value, edge.value) == Some(there - start))
            })
        };
        let info = &self.bodies[body];
        !self.starts(body).is_empty() && info.members.iter().all(apart)
    }

    /// Makes the two bodies of `joint` one, and returns which number it keeps and which it
    /// gives up.
    pub fn merge(&mut self, joint: &Joint) -> (BodyId, BodyId) {
        let (x, y) = (&self.bodies[joint.a], &self.bodies[joint.b]);
        let (kept, gone, distance) = if x.members.len() >= y.members.len() {
            (joint.a, joint.b, joint.distance)
        } else {
            (joint.b, joint.a, -joint.distance)
        };
        let moved = std::mem::take(&mut self.bodies[gone].members);
        let Body { fixed, edges, .. } = self.bodies[gone];
        let body = &mut self.bodies[kept];
        // `gone` starts `distance` units after `kept`; the whole starts with the lower one.
        let shift = (-distance).max(0) as u16;
        for m in body.members.iter_mut().filter(|_| shift > 0) {
            m.offset += shift;
            self.seats[m.value].offset = m.offset;
        }
        for mut m in moved {
            m.offset += distance.max(0) as u16;
            self.seats[m.value].body = kept.into();
            self.seats[m.value].offset = m.offset;
            body.members.push(m);
        }
        body.fixed |= fixed;
        body.edges += edges;
        body.shape = joint.shape;
        self.set_starts(kept, joint.starts);
        (kept, gone)
    }
}

/// Where a value of each class may start.
fn class_starts(target: &Target) -> Vec<UnitSet<8>> {
    let of_class = |class| {
        let units = target.registers(class).map(|reg| reg.unit as usize);
        let within = UnitSet::first(target.file(target.class(class).file).units);
        UnitSet::of(units).and(&within)
    };
    target.classes().map(|(class, _)| of_class(class)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::Facts;
    use crate::text;

    /// A quad behind a single register puts the group before a multiple of four.
    #[test]
    fn a_group_starts_where_its_widest_member_is_aligned() {
        let case = text::parse(
            "target hardware sm_90
             kernel f {
             block0:
                 v0:r32, v1:r128 = load : write group 0..2 align 1
                 use v0, v1 : write
                 exit : exit write
             }",
        );
        let case = case.unwrap();
        let program = Program::new(&case.function, &case.target, None).unwrap();
        let (facts, scratch) = (Facts::of(&program), Scratch::default());
        let interference = Interference::build(&program, &case.target, &facts.liveness, &scratch);
        let bodies = Bodies::new(&program, &case.target, &interference, &scratch);
        let shapes = bodies.bodies.values().map(|body| body.shape);
        let group = shapes.filter(|shape| shape.width == 5).collect::<Vec<_>>();
        let expected = Shape {
            width: 5,
            step: 4,
            residue: 3,
        };
        assert_eq!(group, [expected]);
    }
}
