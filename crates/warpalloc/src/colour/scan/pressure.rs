//! Whether everything fits, and how full each block gets.

use super::code::{Access, Code, FILES};
use super::demand::{Files, Load, Rooms, demand, indirect_files};
use crate::function::{Block, Role};
use cranelift_entity::EntityRef;

/// How many units are in use at once.
pub(super) struct Pressure {
    /// The most in each block, by file.
    blocks: Vec<[i32; FILES]>,
    /// Files in which some step needs more than there is.
    pub exceeded: [bool; FILES],
}

impl Pressure {
    pub fn measure(code: &Code, rooms: &Rooms, tight: &[u8]) -> Pressure {
        let mut walk = Walk {
            code,
            rooms,
            tight,
            indirect: indirect_files(code),
            live: Stamps {
                at: vec![0; code.value_count()],
                now: 0,
            },
            pressure: Pressure {
                blocks: vec![[0; FILES]; code.block_count()],
                exceeded: [false; FILES],
            },
        };
        for block in (0..code.block_count()).map(Block::new) {
            walk.block(block);
        }
        walk.pressure
    }

    /// The most units of `file` in use anywhere.
    pub fn most(&self, file: usize) -> usize {
        let most = self.blocks.iter().map(|block| block[file]).max();
        most.unwrap_or(0).max(0) as usize
    }

    /// The most units of `file` in use in `block`.
    pub fn block(&self, block: Block, file: usize) -> i32 {
        self.blocks[block.index()][file]
    }
}

/// A set of values that is emptied at once.
struct Stamps {
    /// By value, when it was put in last.
    at: Vec<u32>,
    now: u32,
}

impl Stamps {
    fn clear(&mut self) {
        self.now += 1;
    }

    #[inline]
    fn contains(&self, value: u32) -> bool {
        self.at[value as usize] == self.now
    }

    /// Puts `value` in; whether it was not there.
    #[inline]
    fn insert(&mut self, value: u32) -> bool {
        std::mem::replace(&mut self.at[value as usize], self.now) != self.now
    }

    /// Takes `value` out; whether it was there.
    #[inline]
    fn remove(&mut self, value: u32) -> bool {
        std::mem::replace(&mut self.at[value as usize], 0) == self.now
    }
}

struct Walk<'a> {
    code: &'a Code<'a>,
    rooms: &'a Rooms,
    tight: &'a [u8],
    indirect: Files,
    live: Stamps,
    pressure: Pressure,
}

impl Walk<'_> {
    fn block(&mut self, block: Block) {
        let code = self.code;
        let indirect = self.indirect;
        let mut load = Load::default();
        self.live.clear();
        for value in code.live_out(block) {
            self.live.insert(value);
            load.add(code.shape(value));
        }
        self.note(block, &load);
        for files in [indirect, !indirect] {
            self.check(load.excess(self.rooms.whole(), files));
        }
        for number in code.steps(block).rev() {
            let step = code.step(number);
            let accesses = code.accesses(number);
            let is_dead = |&(v, role): &Access| role.writes() && !self.live.contains(v);
            let is_plain = self.tight.is_empty() && !step.constrained;
            if is_plain && !accesses.iter().any(is_dead) {
                self.plain_step(block, accesses, &mut load);
                continue;
            }
            let live_after = match step.constrained {
                true => accesses
                    .iter()
                    .map(|&(v, _)| self.live.contains(v))
                    .collect(),
                false => Vec::new(),
            };
            let mut after = load;
            for &(value, role) in accesses {
                if !role.writes() {
                    continue;
                }
                match self.live.remove(value) {
                    true => load.remove(code.shape(value)),
                    false => after.add(code.shape(value)),
                }
            }
            for &(value, role) in accesses {
                if role.reads() && self.live.insert(value) {
                    load.add(code.shape(value));
                }
            }
            let tight = self.tight.get(number).map_or(0, |&units| i32::from(units));
            if step.constrained {
                let dies = |value: u32| {
                    let mut all = accesses.iter().zip(&live_after);
                    !all.any(|(&(v, role), &live)| v == value && live && role != Role::Def)
                };
                let demand = demand(code, block, step, accesses, load, dies);
                for files in [indirect, !indirect] {
                    self.check(self.rooms.excess_before(code, &demand, tight, files));
                    self.check(self.rooms.excess(code, block, step, &demand, tight, files));
                }
                self.note(block, &demand.before);
                self.note(block, &demand.after);
            } else {
                let room = match tight {
                    0 => *self.rooms.whole(),
                    units => self.rooms.whole().narrowed(code, units),
                };
                if !after.fits(&room) || !load.fits(&room) {
                    for files in [indirect, !indirect] {
                        self.check(after.excess(&room, files));
                        self.check(load.excess(&room, files));
                    }
                }
                self.note(block, &after);
                self.note(block, &load);
            }
        }
        for files in [indirect, !indirect] {
            self.check(load.excess(self.rooms.whole(), files));
        }
    }

    /// Moves to before a step whose operands may be anywhere. What is live after it has been
    /// seen, so that only what begins here can be too much.
    #[inline]
    fn plain_step(&mut self, block: Block, accesses: &[Access], load: &mut Load) {
        let code = self.code;
        for &(value, _) in accesses.iter().filter(|a| a.1.writes()) {
            if self.live.remove(value) {
                load.remove(code.shape(value));
            }
        }
        let mut begun: Files = 0;
        for &(value, _) in accesses.iter().filter(|a| a.1.reads()) {
            if self.live.insert(value) {
                let shape = code.shape(value);
                load.add(shape);
                begun |= 1 << shape.file;
            }
        }
        for file in (0..FILES).filter(|file| begun >> file & 1 == 1) {
            self.pressure.exceeded[file] |= !load.fits_file(self.rooms.whole(), file);
            let most = &mut self.pressure.blocks[block.index()][file];
            *most = (*most).max(load.units(file));
        }
    }

    fn check(&mut self, excess: Option<super::demand::Excess>) {
        if let Some(excess) = excess {
            self.pressure.exceeded[excess.file] = true;
        }
    }

    #[inline]
    fn note(&mut self, block: Block, load: &Load) {
        for (file, most) in self.pressure.blocks[block.index()].iter_mut().enumerate() {
            *most = (*most).max(load.units(file));
        }
    }
}
