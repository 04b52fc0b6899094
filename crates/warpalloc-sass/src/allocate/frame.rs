//! Where spilled values are, and what code at the entry that takes.

use super::{AllocateError, Kernel};
use crate::cfg::Cfg;
use crate::code::Code;
use crate::edit::schedule;
use crate::isa::{
    Address, Builder, Constant, Inst, Source, Space as CodeSpace, SpillMemory, Width,
};
use crate::object::{Change, Function};
use crate::spills::Refusal;
use crate::spills::frame::{STACK, reads_stack_constant, setup};
use crate::spills::room::{Room, WARP_WORD};
use warpalloc::allocation::{SlotAddr, Space};
use warpalloc::target::PReg;

/// Which register addresses spilled values, before the frame's size is known.
pub(super) struct Place {
    space: Space,
    /// The instructions that set R1, and the bytes that they take off the stack.
    setup: Vec<usize>,
    bytes: u32,
    /// Whether the instructions that set R1 are the first in the code, so that it has its value
    /// before anything could be spilled.
    is_first: bool,
    /// What addresses spilled values.
    base: u8,
    /// Whether nothing but spill code needs R1.
    is_free: bool,
}

impl Place {
    /// Reads how the code uses R1, which has to stay the frame wherever spill code runs.
    pub fn of(code: &Code, cfg: &Cfg, space: Space) -> Result<Place, AllocateError> {
        let (setup, bytes) = match setup(code, cfg) {
            Ok(found) => found,
            Err(Refusal::NoSpills) => (Vec::new(), 0),
            Err(refusal) => return Err(refusal.into()),
        };
        let insts = || code.insts().iter().enumerate();
        let mut others = insts().filter(|(at, _)| !setup.contains(at));
        let is_used = others.any(|(_, inst)| {
            let is_local = inst.memory().is_some_and(|m| m.space == CodeSpace::Local);
            inst.uses().contains(STACK) || is_local || reads_stack_constant(inst)
        });
        let first = setup.iter().enumerate().all(|(number, &at)| number == at);
        Ok(Place {
            space,
            is_first: first && !setup.is_empty(),
            is_free: !is_used,
            setup,
            bytes,
            base: STACK.index,
        })
    }

    /// The registers of `budget` that are left for values.
    pub fn reserve(&mut self, budget: usize) -> usize {
        if self.space == Space::Local || self.is_free {
            return budget;
        }
        // A budget is below 256.
        self.base = (budget - 1) as u8;
        budget - 1
    }

    /// The layout of a frame of this size.
    pub fn layout(self, kernel: &Kernel, frame_bytes: u32) -> Result<Layout, AllocateError> {
        let words = frame_bytes.div_ceil(4);
        let room = match self.space {
            Space::Shared if words > 0 => {
                let maxnreg = kernel.options.maxnreg;
                let launch = &kernel.options.launch;
                let room = Room::of(kernel.cubin, kernel.function, maxnreg, launch)?;
                if room.fits(words, true)? < words {
                    return Err(room.refusal(words).into());
                }
                Some(room)
            }
            _ => None,
        };
        let build = Builder::new(kernel.code.sm());
        let mut entry = Vec::new();
        let mut replaced = Vec::new();
        match &room {
            Some(room) => {
                entry = room.thread_address(kernel.function, build, self.base, words)?;
                if self.is_free {
                    replaced.clone_from(&self.setup);
                }
            }
            None if words > 0 && !self.is_first => {
                // R1 gets its value before everything else, and once only.
                entry.push(build.ldc(STACK.index, Constant::STACK)?);
                if self.bytes > 0 {
                    let less = Source::Immediate(self.bytes.wrapping_neg());
                    entry.push(build.iadd3(STACK.index, STACK.index, less, 255)?);
                }
                replaced.clone_from(&self.setup);
            }
            None => {}
        }
        // Nothing is in flight when a kernel begins.
        let entry = schedule(&entry, &[0, 1, 2, 3, 4, 5]).map_err(Refusal::from)?;
        Ok(Layout {
            build,
            base: self.base,
            own_bytes: self.bytes,
            words,
            entry,
            replaced,
            shared: room.map(|room| room.static_bytes(words)),
        })
    }
}

/// The addresses of spilled values.
pub(super) struct Layout {
    build: Builder,
    base: u8,
    /// Bytes of the kernel's own frame, behind that of spilled values.
    own_bytes: u32,
    words: u32,
    /// What runs first.
    pub entry: Vec<Inst>,
    /// Instructions of the code that set R1 and do not any more.
    pub replaced: Vec<usize>,
    /// Static shared memory of a block, where spilled values are there.
    shared: Option<u64>,
}

impl Layout {
    /// Registers that the address of spilled values takes.
    pub fn registers(&self) -> u32 {
        match self.words {
            0 => 0,
            _ => u32::from(self.base) + 1,
        }
    }

    /// What the cubin says of the frame.
    pub fn change(&self, function: &Function) -> Change {
        let mut change = Change::default();
        match self.shared {
            Some(bytes) => change.shared_bytes = Some(bytes),
            None if self.words > 0 => {
                let with = |old: Option<u32>| Some(old? + (self.words * 4).next_multiple_of(16));
                change.frame_bytes = with(function.frame_bytes);
                change.stack_bytes = with(function.stack_bytes);
            }
            None => {}
        }
        change
    }

    /// The loads or stores of `width` words between a slot and registers from `first` on.
    pub fn accesses(
        &self,
        is_load: bool,
        slot: SlotAddr,
        first: PReg,
        width: u8,
    ) -> Result<Vec<Inst>, AllocateError> {
        let mut insts = Vec::new();
        let mut word = 0;
        while word < width {
            let register = (first.unit + u16::from(word)) as u8;
            let below = slot.offset + i32::from(word) * 4;
            let (memory, size, offset) = match self.shared {
                Some(_) => {
                    let place = (below + self.words as i32 * 4) / 4;
                    (SpillMemory::Shared, 1, place * WARP_WORD as i32)
                }
                None => {
                    // The end of the stack is aligned to sixteen.
                    let from_end = below - self.own_bytes as i32;
                    let fits = |size: u8| {
                        width - word >= size
                            && register.is_multiple_of(size)
                            && from_end.rem_euclid(i32::from(size) * 4) == 0
                    };
                    let size = [4, 2].into_iter().find(|&size| fits(size)).unwrap_or(1);
                    (SpillMemory::Local, size, below)
                }
            };
            let address = Address {
                register: self.base,
                uniform: None,
                offset,
            };
            let size_of = match size {
                4 => Width::B128,
                2 => Width::B64,
                _ => Width::B32,
            };
            insts.push(match is_load {
                true => self.build.load(memory, size_of, register, address)?,
                false => self.build.store(memory, size_of, address, register)?,
            });
            word += size;
        }
        Ok(insts)
    }
}
