//! Where values are when a block is entered.

use super::assign::Assigner;
use super::code::{NONE, NOWHERE};
use crate::function::Block;
use cranelift_entity::EntityRef;
use smallvec::SmallVec;

impl<const W: usize> Assigner<'_, W> {
    /// Seats what the block begins with.
    pub(super) fn enter(&mut self, block: Block) -> Result<(), usize> {
        let code = self.code;
        self.clear();
        let mut residents = std::mem::take(&mut self.residents);
        residents.clear();
        match self.plan {
            Some(plan) => residents.extend(plan.entry.of(block).iter().map(|r| r.value)),
            None => code.live_in(block).for_each(|value| residents.push(value)),
        }
        let known = code.incoming(block).iter().copied();
        let known = known.filter(|&e| self.done[code.edges()[e as usize].from.index()]);
        let from = known.max_by(|&a, &b| {
            let [a, b] = [a, b].map(|e| &code.edges()[e as usize]);
            let [often_a, often_b] = [a, b].map(|e| code.edge_frequency(e));
            often_a.total_cmp(&often_b).then(b.from.cmp(&a.from))
        });
        let mut rest: SmallVec<[u32; 16]> = SmallVec::new();
        if let Some(number) = from {
            let edge = &code.edges()[number as usize];
            let exit = self.out.exit.of(edge.from);
            for &(value, fragment) in exit {
                self.arriving[value as usize] = fragment;
            }
            let params = code.params(block);
            let mut waiting: SmallVec<[(u32, u16); 16]> = SmallVec::new();
            for &value in &residents {
                let index = match params.is_empty() {
                    true => None,
                    false => params.iter().position(|&p| p == value),
                };
                match index {
                    None => match self.arriving[value as usize] {
                        NONE => rest.push(value),
                        // Its class and its affinities know of its register since it was
                        // defined.
                        fragment => {
                            let at = self.out.unit(fragment);
                            self.occupy(value, at as usize);
                            self.at[value as usize] = at;
                            self.fragment[value as usize] = fragment;
                            self.out.resume(fragment, 2 * self.now);
                        }
                    },
                    Some(index) => {
                        let arg = code.pairs(edge)[index].1;
                        let at = match self.arriving[arg as usize] {
                            NONE => NOWHERE,
                            fragment => self.out.unit(fragment),
                        };
                        waiting.push((value, at));
                    }
                }
            }
            let is_moved = self.seat_params(waiting, &mut rest);
            for at in 0..self.out.exit.of(edge.from).len() {
                let (value, _) = self.out.exit.of(edge.from)[at];
                self.arriving[value as usize] = NONE;
            }
            if rest.is_empty() && !is_moved {
                self.out.continues[block.index()] = number;
            }
        } else {
            rest.extend(residents.iter().copied());
        }
        rest.sort_by_key(|&v| std::cmp::Reverse(code.shape(v).align));
        let mut fits = true;
        for &value in &rest {
            match self.pick(value, None) {
                Some(at) => self.settle(value, at),
                None => fits = false,
            }
        }
        if !fits {
            self.pack(block, &residents)?;
        }
        let entry = residents.iter().map(|&v| (v, self.fragment[v as usize]));
        self.located.extend(entry);
        self.out.entry.add_slice(block, &self.located);
        self.located.clear();
        self.residents = residents;
        for &param in code.params(block) {
            if self.stores.at_definition(param) && self.is_held(param) {
                self.store(param);
            }
        }
        Ok(())
    }

    /// Seats parameters where their arguments are, as far as there is room; says whether one
    /// is elsewhere. At the start of a loop groups go first, to where they can stay: others
    /// are moved once, on the way in.
    fn seat_params(
        &mut self,
        mut arrivals: SmallVec<[(u32, u16); 16]>,
        rest: &mut SmallVec<[u32; 16]>,
    ) -> bool {
        if self.is_at_header {
            arrivals.sort_by_key(|&(value, _)| self.window(value).is_none());
        }
        let mut is_moved = false;
        for (value, at) in arrivals {
            let window = self.window(value).filter(|_| self.is_at_header);
            let shape = self.code.shape(value);
            let stays = at != NOWHERE
                && self.is_free(shape, at as usize)
                && window.is_none_or(|window| self.suits(value, window, at as usize));
            if stays {
                self.settle(value, at as usize);
            } else if window.is_some()
                && let Some(at) = self.pick(value, None)
            {
                self.settle(value, at);
                is_moved = true;
            } else {
                rest.push(value);
            }
        }
        is_moved
    }

    /// Seats what the block begins with largest first, wherever it comes from.
    fn pack(&mut self, block: Block, residents: &[u32]) -> Result<(), usize> {
        let code = self.code;
        self.clear();
        let mut order: SmallVec<[u32; 64]> = SmallVec::from_slice(residents);
        order.sort_by_key(|&v| std::cmp::Reverse(code.shape(v).align));
        for value in order {
            let shape = code.shape(value);
            let starts = self.starts(shape);
            let at = starts.lowest().ok_or(code.steps(block).start)?;
            self.settle(value, at);
        }
        Ok(())
    }
}
