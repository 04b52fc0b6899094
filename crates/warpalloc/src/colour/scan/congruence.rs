//! Parameters and arguments that can share a register for all of their live ranges.
//!
//! A parameter and an argument that do not interfere are congruent, as in the coalescing of
//! B. Boissinot et al. ("Revisiting Out-of-SSA Translation", CGO 2009): classes grow along
//! the most frequent edges first, and two classes become one if no member of the one
//! interferes with a member of the other. The first member to get a register gets it for the
//! class, and the class claims that register wherever a member is yet to be defined.
//!
//! Positions number the steps in the order of the walk, with one more at either end of each
//! block. A live range is known by its first and last position; where two such spans
//! overlap, liveness decides.

use super::code::{Access, Code, NONE, NOWHERE};
use crate::function::Block;
use crate::ir::Value;
use cranelift_entity::EntityRef;

/// How many members a class has at most, which bounds the time to compare two.
const MAX_MEMBERS: u32 = 64;

/// The classes, and the spans of all values.
pub(super) struct Congruence {
    class: Vec<u32>,
    classes: Vec<Class>,
    /// Members of all classes, in the order in which they are defined.
    members: Vec<u32>,
    /// What moves cost if the value is not in the register of its class.
    weight: Vec<f32>,
    spans: Spans,
}

struct Class {
    /// The first member that is yet to be defined, and the last of all.
    next: u32,
    last: u32,
    unit: u16,
}

impl Congruence {
    pub fn find(code: &Code) -> Congruence {
        let mut pairs: Vec<(f32, u32, u32)> = Vec::new();
        for edge in code.edges() {
            let frequency = code.edge_frequency(edge) as f32;
            for &(param, arg) in code.pairs(edge) {
                if param != arg {
                    pairs.push((frequency, param, arg));
                }
            }
        }
        let spans = Spans::measure(code);
        let mut found = Congruence {
            class: Vec::new(),
            classes: Vec::new(),
            members: Vec::new(),
            weight: Vec::new(),
            spans,
        };
        if pairs.is_empty() {
            return found;
        }
        pairs.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut unions = Unions::new(code.value_count());
        for &(_, param, arg) in &pairs {
            unions.join(code, &found.spans, param, arg);
        }
        found.weight = vec![0.0; code.value_count()];
        for &(frequency, param, arg) in &pairs {
            if unions.root(param) == unions.root(arg) {
                found.weight[param as usize] += frequency;
                found.weight[arg as usize] += frequency;
            }
        }
        found.class = vec![NONE; code.value_count()];
        for &(_, param, _) in &pairs {
            if found.class[param as usize] == NONE && unions.size(param) > 1 {
                found.add_class(unions.members(param));
            }
        }
        found
    }

    fn add_class(&mut self, members: impl Iterator<Item = u32>) {
        let next = self.members.len();
        self.members.extend(members);
        let start = &self.spans.start;
        self.members[next..].sort_unstable_by_key(|&v| (start[v as usize], v));
        for &member in &self.members[next..] {
            self.class[member as usize] = self.classes.len() as u32;
        }
        self.classes.push(Class {
            next: next as u32,
            last: self.members.len() as u32,
            unit: NOWHERE,
        });
    }

    /// The members of each class.
    pub fn all_members(&self) -> impl Iterator<Item = &[u32]> {
        let classes = self.classes.iter();
        classes.map(|class| &self.members[class.next as usize..class.last as usize])
    }

    /// The class of `value`, if it has one.
    #[inline]
    pub fn class(&self, value: u32) -> Option<u32> {
        let class = self.class.get(value as usize).copied();
        class.filter(|&class| class != NONE)
    }

    /// The register of a class.
    #[inline]
    pub fn unit(&self, class: u32) -> Option<usize> {
        let unit = self.classes[class as usize].unit;
        (unit != NOWHERE).then_some(usize::from(unit))
    }

    pub fn set_unit(&mut self, class: u32, unit: usize) {
        self.classes[class as usize].unit = unit as u16;
    }

    /// The position of the start of `block`.
    #[inline]
    pub fn position(&self, block: Block) -> u32 {
        self.spans.base[block.index()]
    }

    /// Whether `value` is first defined at `position`.
    pub fn starts_at(&self, value: u32, position: u32) -> bool {
        self.spans.start[value as usize] == position
    }

    /// The last position of `value`.
    #[inline]
    pub fn end(&self, value: u32) -> u32 {
        self.spans.end[value as usize]
    }

    /// Whether a member of `class` is defined after `now`.
    #[inline]
    pub fn is_pending(&mut self, class: u32, now: u32) -> bool {
        let class = &mut self.classes[class as usize];
        let start = &self.spans.start;
        while class.next < class.last && start[self.members[class.next as usize] as usize] <= now {
            class.next += 1;
        }
        class.next < class.last
    }

    /// Members of a class that are yet to be defined.
    #[inline]
    fn pending(&self, class: u32) -> &[u32] {
        let class = &self.classes[class as usize];
        &self.members[class.next as usize..class.last as usize]
    }

    /// What it costs `class` if `value` takes its register now.
    #[inline]
    pub fn cost_of_taking(&self, class: u32, value: u32) -> f32 {
        let (start, end) = (&self.spans.start, self.end(value));
        let pending = self.pending(class).iter();
        let met = pending.take_while(|&&v| start[v as usize] < end);
        met.map(|&v| self.weight[v as usize]).fold(0.0, f32::max)
    }

    /// What it costs two classes to have one register.
    pub fn cost_of_sharing(&self, class: u32, other: u32) -> f32 {
        let others = self.pending(other);
        let costs = self.pending(class).iter().map(|&v| {
            let mine = self.cost_beside(others, v);
            mine.min(self.weight[v as usize])
        });
        costs.fold(0.0, f32::max)
    }

    /// What it costs a class with no register yet to get one where `last` was, which may be
    /// live there still on other paths.
    pub fn cost_after(&self, class: u32, last: u32) -> f32 {
        self.cost_beside(self.pending(class), last)
    }

    /// The most that one of `members` loses if `value` is in its register.
    fn cost_beside(&self, members: &[u32], value: u32) -> f32 {
        let Spans { start, end, .. } = &self.spans;
        let (from, to) = (start[value as usize], end[value as usize]);
        let met = members.iter().take_while(|&&v| start[v as usize] < to);
        let met = met.filter(|&&v| from < end[v as usize]);
        met.map(|&v| self.weight[v as usize]).fold(0.0, f32::max)
    }
}

/// From where to where each value lives, in the order of the walk.
struct Spans {
    start: Vec<u32>,
    end: Vec<u32>,
    /// The block of the definition, [`NONE`] if there are several.
    defined_in: Vec<u32>,
    /// The position of the start of each block.
    base: Vec<u32>,
}

impl Spans {
    fn measure(code: &Code) -> Spans {
        let count = code.value_count();
        let mut spans = Spans {
            start: vec![u32::MAX; count],
            end: vec![0; count],
            defined_in: vec![NONE; count],
            base: vec![0; code.block_count()],
        };
        let mut several = vec![false; count];
        let mut at = 0;
        for &block in code.order.all() {
            spans.base[block.index()] = at;
            let mut define = |spans: &mut Spans, value: u32, at: u32| {
                let is_first = spans.start[value as usize] == u32::MAX;
                several[value as usize] |= !is_first;
                spans.start[value as usize] = spans.start[value as usize].min(at);
                spans.defined_in[value as usize] = block.as_u32();
            };
            for &param in code.params(block) {
                define(&mut spans, param, at);
                spans.end[param as usize] = at;
            }
            for number in code.steps(block) {
                at += 1;
                let accesses = code.accesses(number);
                for &Access { value, role, .. } in accesses {
                    if role.writes() {
                        define(&mut spans, value, at);
                    }
                    spans.end[value as usize] = at;
                }
            }
            at += 1;
            code.live_out(block)
                .for_each(|value| spans.end[value as usize] = at);
            at += 1;
        }
        for (value, several) in several.into_iter().enumerate() {
            // What is read but never written is live from the entry on.
            if spans.start[value] == u32::MAX {
                spans.start[value] = 0;
            }
            if several {
                spans.defined_in[value] = NONE;
            }
        }
        spans
    }

    /// Whether two values are live at once.
    fn interfere(&self, code: &Code, a: u32, b: u32) -> bool {
        let start = |v: u32| self.start[v as usize];
        let (first, later) = if start(a) <= start(b) { (a, b) } else { (b, a) };
        let at = start(later);
        if self.end[first as usize] <= at && start(first) != at {
            return false;
        }
        let block = self.defined_in[later as usize];
        if start(first) == at || block == NONE || self.defined_in[first as usize] == NONE {
            return true;
        }
        let block = Block::from_u32(block);
        let base = self.base[block.index()];
        let value = Value::from_u32(first);
        if at == base {
            return code.liveness().is_live_in(block, value);
        }
        if code.liveness().is_live_out(block, value) {
            return true;
        }
        let steps = code.steps(block);
        if self.end[first as usize] <= base + steps.len() as u32 {
            return true;
        }
        let mut after = steps.skip((at - base) as usize);
        after.any(|number| {
            let accesses = code.accesses(number);
            let mut all = accesses.iter();
            all.any(|a| a.value == first && a.role.reads())
        })
    }
}

/// Sets of values under construction.
struct Unions {
    root: Vec<u32>,
    /// The next member of each value's set, around in a circle.
    next: Vec<u32>,
    size: Vec<u32>,
}

impl Unions {
    fn new(count: usize) -> Unions {
        Unions {
            root: (0..count as u32).collect(),
            next: (0..count as u32).collect(),
            size: vec![1; count],
        }
    }

    fn root(&self, value: u32) -> u32 {
        self.root[value as usize]
    }

    fn size(&self, value: u32) -> u32 {
        self.size[self.root(value) as usize]
    }

    fn members(&self, value: u32) -> impl Iterator<Item = u32> + '_ {
        let next = move |&at: &u32| {
            let next = self.next[at as usize];
            (next != value).then_some(next)
        };
        std::iter::successors(Some(value), next)
    }

    fn join(&mut self, code: &Code, spans: &Spans, a: u32, b: u32) {
        let (a, b) = (self.root(a), self.root(b));
        if a == b || self.size(a) + self.size(b) > MAX_MEMBERS {
            return;
        }
        let mut pairs = self
            .members(a)
            .flat_map(|x| self.members(b).map(move |y| (x, y)));
        if pairs.any(|(x, y)| spans.interfere(code, x, y)) {
            return;
        }
        drop(pairs);
        let (into, from) = match self.size(a) >= self.size(b) {
            true => (a, b),
            false => (b, a),
        };
        let mut at = from;
        loop {
            self.root[at as usize] = into;
            at = self.next[at as usize];
            if at == from {
                break;
            }
        }
        self.size[into as usize] += self.size[from as usize];
        self.next.swap(into as usize, from as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{case, code};
    use super::*;

    /// `v0` lives on in block1, which the walk comes to after block2, but not at the end of
    /// block2.
    #[test]
    fn a_value_interferes_with_one_defined_before_its_last_read_in_a_block() {
        let case = case(
            8,
            "block0:
                v0:r32 = a : read
                v1:pred = p : read
                brp v1 -> block1, block2
            block1:
                use v0 : write
                bra -> block3
            block2:
                v2:r32 = b : read
                use v0 : write
                v3:r32 = c : read
                use v2, v3 : write
                bra -> block3
            block3:
                exit : exit",
        );
        let code = code(&case);
        let spans = Spans::measure(&code);
        assert!(spans.interfere(&code, 0, 2));
        assert!(!spans.interfere(&code, 0, 3));
    }

    /// Each of 65 blocks passes its parameter on, which dies there.
    #[test]
    fn a_class_has_no_more_than_64_members() {
        let mut blocks = "block0:\nv0:r32 = a : read\nbra -> block1(v0)\n".to_owned();
        for at in 1..64 {
            let next = at + 1;
            blocks += &format!("block{at}(v{at}:r32):\nbra -> block{next}(v{at})\n");
        }
        blocks += "block64(v64:r32):\nuse v64 : write\nexit : exit\n";
        let case = case(8, &blocks);
        let congruence = Congruence::find(&code(&case));
        let sizes: Vec<usize> = congruence.all_members().map(<[u32]>::len).collect();
        assert_eq!(sizes, [64]);
    }
}
