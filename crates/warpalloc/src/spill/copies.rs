//! Parallel copies of which some values are spilled.
//!
//! All copies of one operation happen at once, but a copy from memory to memory passes
//! through a register, and there may be more of them than registers. So they go one by
//! one, in an order in which nothing is overwritten before it is read:
//!
//! 1. reloads from a home that another copy is about to overwrite, into pieces;
//! 2. all copies to a home, sources before they are overwritten, a cycle opened by reloading
//!    one of its values into a piece;
//! 3. the copies between registers, at once;
//! 4. the remaining reloads, which overwrite registers without further readers.

use super::Spiller;
use crate::ir::{Op, Program, Value};
use smallvec::SmallVec;

type Pair = (Value, Value);

impl Spiller<'_> {
    pub(super) fn rewrite_copies(
        &mut self,
        program: &mut Program,
        pairs: SmallVec<[Pair; 2]>,
        out: &mut Vec<Op>,
    ) {
        if pairs
            .iter()
            .all(|&(to, from)| !self.is_gone(to) && !self.is_gone(from))
        {
            out.push(Op::Copies(pairs));
            return;
        }
        let overwritten: Vec<Value> = pairs
            .iter()
            .map(|&(to, _)| to)
            .filter(|&v| self.is_gone(v))
            .collect();
        let (mut home, mut between, mut fetched) = (Vec::new(), SmallVec::new(), Vec::new());
        for (to, from) in pairs {
            match (self.is_gone(to), self.is_gone(from)) {
                (false, false) => between.push((to, from)),
                (true, _) if self.same_home(to, from) => {}
                (true, _) => home.push((to, from)),
                (false, true) if overwritten.contains(&from) => {
                    let aside = self.set_aside(program, from, out);
                    between.push((to, aside));
                }
                (false, true) => fetched.push((to, from)),
            }
        }
        self.copy_home(program, home, out);
        if !between.is_empty() {
            out.push(Op::Copies(between));
        }
        for (to, from) in fetched {
            self.fetch(program, from, to, out);
        }
    }

    fn copy_home(&mut self, program: &mut Program, mut pairs: Vec<Pair>, out: &mut Vec<Op>) {
        while !pairs.is_empty() {
            let is_read = |value: Value| pairs.iter().any(|&(_, from)| from == value);
            match pairs.iter().position(|&(to, _)| !is_read(to)) {
                Some(ready) => {
                    let (to, from) = pairs.remove(ready);
                    self.copy_one_home(program, to, from, out);
                }
                None => {
                    let from = pairs[0].1;
                    let aside = self.set_aside(program, from, out);
                    for pair in pairs.iter_mut().filter(|pair| pair.1 == from) {
                        pair.1 = aside;
                    }
                }
            }
        }
    }

    /// Reloads `value` into a register before its home is overwritten.
    ///
    /// The value set aside is no piece: it outlives the contents of its home, so it must
    /// neither be joined with other reloads nor ever be reloaded again.
    fn set_aside(&mut self, program: &mut Program, value: Value, out: &mut Vec<Op>) -> Value {
        let aside = program.piece_of(value);
        program.values[aside].unspillable = true;
        self.fetch(program, value, aside, out);
        aside
    }

    fn copy_one_home(&mut self, program: &mut Program, to: Value, from: Value, out: &mut Vec<Op>) {
        let source = match self.is_gone(from) {
            false => from,
            true => {
                let piece = self.piece(program, from);
                self.fetch(program, from, piece, out);
                piece
            }
        };
        self.put_home(program, to, source, out);
    }
}
