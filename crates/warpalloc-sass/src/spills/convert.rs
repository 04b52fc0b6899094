//! The conversion.

use super::choice::{Places, choose, words_used};
use super::frame::{Frame, STACK, Spill, frame};
use super::refusal::Refusal;
use super::room::{Room, WARP_WORD};
use super::verify::{Expected, verify};
use crate::cfg::Cfg;
use crate::code::Code;
use crate::edit::{Edit, schedule};
use crate::isa::{
    Address, Builder, Constant, Control, EncodeError, File, Inst, Reg, RegSet, SpillMemory,
};
use crate::loops::Loops;
use crate::object::{Change, Function, Rewriter};

/// What is not in a cubin, and what may be given for the conversion.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The most threads of a block, where the kernel states no bound itself.
    pub block: Option<u32>,
    /// Bytes of dynamic shared memory that every launch has; needed where the kernel uses shared
    /// memory.
    pub dynamic_shared: Option<u32>,
    /// Moves all spills, also where fewer blocks then run at a time, and as many as fit where a
    /// block cannot have all.
    pub force: bool,
    /// Moves the words accessed most where moving all would cost blocks.
    pub partial: bool,
}

/// A cubin with spills in shared memory.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Conversion {
    /// The cubin.
    pub bytes: Vec<u8>,
    /// Threads of a block, rounded up to warps.
    pub threads: u32,
    /// Words of the frame in shared memory.
    pub shared_words: u32,
    /// Words that stay in local memory.
    pub local_words: u32,
    /// Loads and stores that were moved.
    pub moved: usize,
    /// Loads and stores that stay in local memory.
    pub kept: usize,
    /// Bytes of static shared memory before.
    pub shared_before: u64,
    /// And after.
    pub shared_after: u64,
    /// Blocks that fit a multiprocessor before.
    pub blocks_before: u32,
    /// And after.
    pub blocks_after: u32,
}

/// Moves the spills of a kernel from local to shared memory.
pub fn spills_to_shared(
    cubin: &[u8],
    kernel: &str,
    options: &Options,
) -> Result<Conversion, Refusal> {
    let mut rewriter = Rewriter::new(cubin)?;
    let read = rewriter.cubin().clone();
    let function = super::kernel(&read, kernel)?;
    let code = Code::decode(function.code, read.arch.sm)?;
    let links = read.links(function, &code);
    let cfg = Cfg::build(&code, &links)?;
    let frame = frame(&code, &cfg, &Loops::compute(&cfg))?;
    let registers = function.registers.unwrap_or(255);
    let room = Room::of(&read, function, registers, options)?;
    let words = words_used(&frame);
    let places = match room.fits(words, options.force)? {
        words_that_fit if words_that_fit >= words => choose(&frame, words),
        // What is left in local memory is addressed in a way that has run on sm_90 alone.
        words_that_fit
            if words_that_fit > 0 && (options.partial || options.force) && read.arch.sm >= 90 =>
        {
            choose(&frame, words_that_fit)
        }
        _ => return Err(room.refusal(words)),
    };
    let shared_words = places.iter().flatten().count() as u32;
    if shared_words == 0 {
        return Err(room.refusal(words));
    }
    let is_whole = shared_words == words;
    let plan = Plan {
        code: &code,
        frame: &frame,
        places: &places,
        uniform: match is_whole {
            true => None,
            false => Some(free_uniform(&code).ok_or(Refusal::NoUniform)?),
        },
    };
    let mut edit = Edit::new(function, &code, &links);
    edit.at_entry(entry(function, &plan, &room, shared_words)?);
    let expected = plan.apply(&mut edit)?;
    let new = edit.finish()?;
    let shared_after = room.static_bytes(shared_words);
    let gone = is_whole.then_some(0);
    rewriter.change(
        kernel,
        Change {
            code: Some(new.clone()),
            frame_bytes: function.frame_bytes.and(gone),
            stack_bytes: function.stack_bytes.and(gone),
            shared_bytes: Some(shared_after),
            ..Change::default()
        },
    )?;
    let bytes = rewriter.finish()?;
    verify(&bytes, kernel, (&code, &cfg), &new, &expected)?;
    let moved = frame.spills.iter().filter(|spill| plan.is_shared(spill));
    let moved = moved.count();
    Ok(Conversion {
        bytes,
        threads: room.warps * 32,
        shared_words,
        local_words: words - shared_words,
        moved,
        kept: frame.spills.len() - moved,
        shared_before: function.shared_bytes,
        shared_after,
        blocks_before: room.blocks,
        blocks_after: room.blocks_with(shared_words)?,
    })
}

/// A uniform register that nothing in the code names.
fn free_uniform(code: &Code) -> Option<u8> {
    let mut used = RegSet::EMPTY;
    for inst in code.insts() {
        used.union_with(&inst.defs());
        used.union_with(&inst.uses());
    }
    // The lowest ones may be set before the kernel begins.
    (4..File::UR.registers()).rev().find(|&index| {
        !used.contains(Reg {
            file: File::UR,
            index,
        })
    })
}

struct Plan<'c> {
    code: &'c Code,
    frame: &'c Frame,
    places: &'c Places,
    /// What holds the frame's address where some of it stays in local memory.
    uniform: Option<u8>,
}

impl Plan<'_> {
    fn is_shared(&self, spill: &Spill) -> bool {
        self.places[spill.words().start].is_some()
    }

    /// Replaces the spill code and what sets R1, and says what has to come out.
    fn apply(&self, edit: &mut Edit) -> Result<Vec<Expected>, Refusal> {
        let nop = Builder::new(self.code.sm()).nop()?;
        let mut expected = Vec::new();
        for &index in &self.frame.setup {
            let control = Control {
                write_scoreboard: None,
                read_scoreboard: None,
                reuse: 0,
                ..self.code.insts()[index].control()
            };
            let new = nop.with_control(control.stalled(control.stall));
            edit.replace(index, new.clone());
            expected.push(Expected {
                index,
                insts: vec![new],
            });
        }
        for spill in &self.frame.spills {
            let mut insts = self.moved(spill)?;
            expected.push(Expected {
                index: spill.index,
                insts: insts.clone(),
            });
            if let Some(last) = insts.pop() {
                edit.replace(spill.index, last);
            }
            edit.before(spill.index, insts);
        }
        Ok(expected)
    }

    /// What one load or store becomes.
    fn moved(&self, spill: &Spill) -> Result<Vec<Inst>, EncodeError> {
        let old = &self.code.insts()[spill.index];
        let Some(first) = self.places[spill.words().start] else {
            return Ok(vec![match self.uniform {
                None => old.clone(),
                Some(_) => old.with_spill_address(
                    SpillMemory::Local,
                    Address {
                        register: 255,
                        uniform: self.uniform,
                        offset: spill.offset as i32,
                    },
                )?,
            }]);
        };
        let at = |place: u32| Address {
            register: STACK.index,
            uniform: None,
            offset: (place * WARP_WORD + spill.offset % 4) as i32,
        };
        if spill.bytes <= 4 {
            return Ok(vec![
                old.with_spill_address(SpillMemory::Shared, at(first))?,
            ]);
        }
        let words = spill.words().len();
        let control = old.control();
        let mut insts = Vec::with_capacity(words);
        for (number, word) in spill.words().enumerate() {
            let place = self.places[word].unwrap_or(first);
            let inst = old.spilled_word(number as u8, SpillMemory::Shared, at(place))?;
            // Both kinds finish in order: what the last one signals covers the others.
            insts.push(match number + 1 == words {
                true => inst,
                false => {
                    let silent = Control {
                        write_scoreboard: None,
                        read_scoreboard: None,
                        reuse: 0,
                        ..control
                    };
                    inst.with_control(silent.stalled(1))
                }
            });
        }
        Ok(insts)
    }
}

/// The code that gives R1 the thread's address in shared memory, and the uniform register the
/// frame's in local memory.
fn entry(function: &Function, plan: &Plan, room: &Room, words: u32) -> Result<Vec<Inst>, Refusal> {
    let build = Builder::new(plan.code.sm());
    let mut insts = Vec::new();
    if let Some(uniform) = plan.uniform {
        insts.push(build.uldc(uniform, Constant::STACK)?);
        insts.push(build.uiadd3(uniform, uniform, plan.frame.bytes.wrapping_neg())?);
    }
    insts.extend(room.thread_address(function, build, STACK.index, words)?);
    // Nothing is in flight when a kernel begins.
    Ok(schedule(&insts, &[0, 1, 2, 3, 4, 5])?)
}
