//! Live ranges: where each value is live, as intervals over the code.
//!
//! Instructions are numbered in code order, block after block; instruction `n` of a
//! [`Function`](crate::function::Function) is `Inst` `n`. Each number stands for two
//! positions: [`Position::early`], where inputs are read and early results written, and
//! [`Position::late`], where the other results are. A range is the sorted list of maximal
//! half-open [`Segment`]s of positions at which the value is live or being written:
//!
//! - from a write (early or late) up to and including the last read, or the end of the
//!   block if it is live out;
//! - from the first position of a block if it is live in or a parameter;
//! - a result that is not read takes its instruction's positions from the write on.
//!
//! Two values whose ranges share no position can share a register. The converse holds up
//! to copies: sharing a position means being live at once, whatever they contain.
//! Holes are kept, as in the linear scan of C. Wimmer and H. Mössenböck ("Optimized
//! Interval Splitting in a Linear Scan Register Allocator", VEE 2005). Total size is
//! linear in the operands plus the live-in sets, less what merges across blocks.

use super::rows::Rows;
use super::{Code, Liveness};
use crate::function::{Block, Role, VReg};
use cranelift_entity::{EntityRef, SecondaryMap};

/// A place in the numbering of the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Position(u32);

impl Position {
    /// Where instruction number `inst` reads its inputs.
    pub fn early(inst: usize) -> Position {
        Position(2 * inst as u32)
    }

    /// Where instruction number `inst` writes its results.
    pub fn late(inst: usize) -> Position {
        Position(2 * inst as u32 + 1)
    }

    /// The number of the instruction.
    pub fn inst(self) -> usize {
        self.0 as usize / 2
    }

    /// Whether it is where results are written.
    pub fn is_late(self) -> bool {
        self.0 % 2 == 1
    }

    fn next(self) -> Position {
        Position(self.0 + 1)
    }
}

/// The positions from `start` up to, but not including, `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The first position.
    pub start: Position,
    /// The first position after it.
    pub end: Position,
}

impl Segment {
    /// The numbers of its positions, two per instruction.
    pub fn positions(self) -> std::ops::Range<usize> {
        self.start.0 as usize..self.end.0 as usize
    }
}

/// What happens to a value at one position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// An operand, by its number in the row of all operands.
    Operand(u32, Role),
    /// It is a parameter of the block that starts here.
    Parameter,
    /// An edge of the block that ends here passes it on.
    Argument,
}

/// One occurrence of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occurrence {
    /// Where. An operand that is both read and written has one occurrence, where it is read.
    pub at: Position,
    /// In what capacity.
    pub touch: Touch,
}

/// Where every value is live and where it occurs.
#[derive(Clone, Debug)]
pub struct LiveRanges<V = VReg> {
    segments: Rows<V, Segment>,
    occurrences: Rows<V, Occurrence>,
}

impl<V: EntityRef + Ord + Send + 'static> LiveRanges<V> {
    /// Builds the ranges of all values.
    pub fn compute(code: &impl Code<Value = V>, liveness: &Liveness<V>) -> LiveRanges<V> {
        let segments = Sweep::new(code, liveness).run();
        LiveRanges {
            segments: Rows::from_pairs(code.value_count(), segments.iter().copied()),
            occurrences: occurrences(code),
        }
    }

    /// The segments of `value`, ascending, none touching the next.
    pub fn segments(&self, value: V) -> &[Segment] {
        self.segments.row(value)
    }

    /// The occurrences of `value`, ascending.
    pub fn occurrences(&self, value: V) -> &[Occurrence] {
        self.occurrences.row(value)
    }

    /// Whether `value` is live or being written at `position`.
    pub fn covers(&self, value: V, position: Position) -> bool {
        let segments = self.segments(value);
        let after = segments.partition_point(|s| s.end <= position);
        segments.get(after).is_some_and(|s| s.start <= position)
    }

    /// Whether the two ranges share a position.
    pub fn overlap(&self, a: V, b: V) -> bool {
        let (mut a, mut b) = (self.segments(a), self.segments(b));
        while let (Some(x), Some(y)) = (a.first(), b.first()) {
            if x.end <= y.start {
                a = &a[1..];
            } else if y.end <= x.start {
                b = &b[1..];
            } else {
                return true;
            }
        }
        false
    }

    /// How many positions `value` covers.
    pub fn length(&self, value: V) -> usize {
        let lengths = self.segments(value).iter();
        lengths.map(|s| (s.end.0 - s.start.0) as usize).sum()
    }
}

fn occurrences<V: EntityRef + Ord + Send + 'static>(
    code: &impl Code<Value = V>,
) -> Rows<V, Occurrence> {
    let mut pairs = Vec::new();
    let (mut number, mut operand) = (0, 0);
    for block in code.all_blocks() {
        let mut add = |value, at, touch| pairs.push((value, Occurrence { at, touch }));
        for value in code.parameters(block) {
            add(value, Position::early(number), Touch::Parameter);
        }
        for point in code.points(block) {
            // Positions must ascend: what happens early goes first.
            for late in [false, true] {
                let number_of = operand..;
                for ((value, role), index) in code.accesses(point).zip(number_of) {
                    if (role == Role::Def) == late {
                        let at = match late {
                            true => Position::late(number),
                            false => Position::early(number),
                        };
                        add(value, at, Touch::Operand(index, role));
                    }
                }
            }
            operand += code.accesses(point).count() as u32;
            number += 1;
        }
        for value in code.arguments(block) {
            let at = Position::late(number.max(1) - 1);
            add(value, at, Touch::Argument);
        }
    }
    Rows::from_pairs(code.value_count(), pairs.iter().copied())
}

/// One backward sweep over the code. `open` holds the end of the segment each live value
/// is in; a write closes it. The code is swept from its end, so segments come out
/// descending and are turned round once.
struct Sweep<'a, C: Code> {
    code: &'a C,
    liveness: &'a Liveness<C::Value>,
    open: SecondaryMap<C::Value, Option<Position>>,
    /// The last segment of each value found so far, to join with one that touches it.
    last: SecondaryMap<C::Value, Option<Segment>>,
    closed: Vec<(C::Value, Segment)>,
}

impl<'a, C: Code> Sweep<'a, C> {
    fn new(code: &'a C, liveness: &'a Liveness<C::Value>) -> Sweep<'a, C> {
        let mut open = SecondaryMap::new();
        open.resize(code.value_count());
        let mut last = SecondaryMap::new();
        last.resize(code.value_count());
        Sweep {
            code,
            liveness,
            open,
            last,
            closed: Vec::new(),
        }
    }

    fn run(mut self) -> Vec<(C::Value, Segment)> {
        let code = self.code;
        let mut number = code.all_blocks().map(|b| code.points(b).count()).sum();
        for block in code.all_blocks().rev() {
            self.block(block, &mut number);
        }
        for value in (0..code.value_count()).map(C::Value::new) {
            if let Some(segment) = self.last[value] {
                self.closed.push((value, segment));
            }
        }
        self.closed.reverse();
        self.closed
    }

    /// Sweeps `block`, which ends right before instruction `number`.
    fn block(&mut self, block: Block, number: &mut usize) {
        for value in self.liveness.live_out(block) {
            self.open[value] = Some(Position::early(*number));
        }
        for point in self.code.points(block).rev() {
            *number -= 1;
            let (early, late) = (Position::early(*number), Position::late(*number));
            for (value, role) in self.code.accesses(point) {
                match role {
                    Role::Def => self.start(value, late),
                    // Even unread it stays clear of the instruction's other results.
                    Role::EarlyDef => {
                        self.end(value, late.next());
                        self.start(value, early);
                    }
                    // It stays open, as the old value it also reads is in the same place.
                    Role::UseDef => self.end(value, late.next()),
                    Role::Use => {}
                }
            }
            for (value, _) in self.code.accesses(point).filter(|(_, r)| r.reads()) {
                self.end(value, early.next());
            }
        }
        let first = Position::early(*number);
        for value in self.code.parameters(block) {
            self.start(value, first);
        }
        for value in self.liveness.live_in(block) {
            self.start(value, first);
        }
    }

    /// `value` is live up to `end`, unless it is live beyond.
    fn end(&mut self, value: C::Value, end: Position) {
        let open = &mut self.open[value];
        *open = Some(open.unwrap_or(end));
    }

    /// `value` is live, or at least written, from `start` on.
    fn start(&mut self, value: C::Value, start: Position) {
        let end = self.open[value].take().unwrap_or(start.next());
        let segment = Segment { start, end };
        self.last[value] = match self.last[value] {
            Some(later) if later.start <= end => Some(Segment {
                start,
                end: later.end.max(end),
            }),
            later => {
                self.closed.extend(later.map(|later| (value, later)));
                Some(segment)
            }
        };
    }
}
