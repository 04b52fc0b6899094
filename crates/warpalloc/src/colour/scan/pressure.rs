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
            live: vec![false; code.value_count()],
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

    /// The most units of `file` in use in `block`.
    pub fn block(&self, block: Block, file: usize) -> i32 {
        self.blocks[block.index()][file]
    }
}

struct Walk<'a> {
    code: &'a Code<'a>,
    rooms: &'a Rooms,
    tight: &'a [u8],
    indirect: Files,
    live: Vec<bool>,
    pressure: Pressure,
}

impl Walk<'_> {
    fn block(&mut self, block: Block) {
        let code = self.code;
        let indirect = self.indirect;
        let mut load = Load::default();
        for value in code.live_out(block) {
            self.live[value as usize] = true;
            load.add(code.shape(value));
        }
        self.note(block, &load);
        for files in [indirect, !indirect] {
            self.check(load.excess(self.rooms.whole(), files));
        }
        for number in code.steps(block).rev() {
            let step = code.step(number);
            let accesses = code.accesses(number);
            let is_dead = |&(v, role): &Access| role.writes() && !self.live[v as usize];
            let is_plain = self.tight.is_empty() && !step.constrained;
            if is_plain && !accesses.iter().any(is_dead) {
                self.plain_step(block, accesses, &mut load);
                continue;
            }
            let live_after = match step.constrained {
                true => accesses
                    .iter()
                    .map(|&(v, _)| self.live[v as usize])
                    .collect(),
                false => Vec::new(),
            };
            let mut after = load;
            for &(value, role) in accesses {
                if !role.writes() {
                    continue;
                }
                match std::mem::replace(&mut self.live[value as usize], false) {
                    true => load.remove(code.shape(value)),
                    false => after.add(code.shape(value)),
                }
            }
            for &(value, role) in accesses {
                if role.reads() && !std::mem::replace(&mut self.live[value as usize], true) {
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
        for value in code.live_in(block) {
            self.live[value as usize] = false;
        }
    }

    /// Moves to before a step whose operands may be anywhere. What is live after it has been
    /// seen, so that only what begins here can be too much.
    #[inline]
    fn plain_step(&mut self, block: Block, accesses: &[Access], load: &mut Load) {
        let code = self.code;
        for &(value, _) in accesses.iter().filter(|a| a.1.writes()) {
            if std::mem::replace(&mut self.live[value as usize], false) {
                load.remove(code.shape(value));
            }
        }
        let mut begun: Files = 0;
        for &(value, _) in accesses.iter().filter(|a| a.1.reads()) {
            if !std::mem::replace(&mut self.live[value as usize], true) {
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
