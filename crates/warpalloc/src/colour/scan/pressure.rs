//! Whether everything fits, and how full each block gets.

use super::code::{Access, Code, FILES};
use super::demand::{Files, Load, Rooms, demand, each_of, indirect_files};
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

struct Walk<'a> {
    code: &'a Code<'a>,
    rooms: &'a Rooms,
    tight: &'a [u8],
    indirect: Files,
    pressure: Pressure,
}

impl Walk<'_> {
    fn block(&mut self, block: Block) {
        let code = self.code;
        let indirect = self.indirect;
        let mut load = Load::default();
        code.live_out(block)
            .for_each(|value| load.add(code.shape(value)));
        self.note(block, &load);
        for files in [indirect, !indirect] {
            self.check(load.excess(self.rooms.whole(), files));
        }
        for number in code.steps(block).rev() {
            let step = code.step(number);
            let accesses = code.accesses(number);
            let is_dead = |a: &Access| a.role.writes() && !a.lives;
            let is_plain = self.tight.is_empty() && !step.constrained;
            if is_plain && !accesses.iter().any(is_dead) {
                self.plain_step(block, accesses, &mut load);
                continue;
            }
            let mut after = load;
            for access in accesses.iter().filter(|a| a.role.writes()) {
                let shape = code.shape(access.value);
                match access.lives {
                    true => load.remove(shape),
                    false => after.add(shape),
                }
            }
            for access in accesses {
                if access.dies || changes_in_place(accesses, access) {
                    load.add(code.shape(access.value));
                }
            }
            let tight = self.tight.get(number).map_or(0, |&units| i32::from(units));
            if step.constrained {
                let dies = |value: u32| {
                    let keeps = |a: &Access| a.value == value && a.lives && a.role != Role::Def;
                    !accesses.iter().any(keeps)
                };
                let demand = demand(code, block, step, accesses, load, dies);
                for files in [indirect, !indirect] {
                    self.check(self.rooms.excess_before(code, &demand, tight, files));
                    self.check(self.rooms.excess(code, step, &demand, tight, files));
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
        for access in accesses
            .iter()
            .filter(|a| matches!(a.role, Role::Def | Role::EarlyDef))
        {
            load.remove(code.shape(access.value));
        }
        let mut begun: Files = 0;
        for access in accesses.iter().filter(|a| a.dies) {
            load.add(code.shape(access.value));
            begun |= 1 << access.file;
        }
        for file in each_of(begun) {
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

/// Whether `access` reads and writes a value that takes a register before the step for its
/// sake: its contents are read afterwards, or nothing else of the step reads them.
fn changes_in_place(accesses: &[Access], access: &Access) -> bool {
    let is_read = |a: &Access| a.value == access.value && a.role == Role::Use;
    access.role == Role::UseDef && (access.lives || !accesses.iter().any(is_read))
}
