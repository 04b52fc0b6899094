//! Scheduling bits for a sequence of new instructions.

use crate::hazard::{Class, Latencies, Slot};
use crate::isa::{Builder, EncodeError, File, Inst, Latency, RegSet};

/// A stall of more cycles does not fit; from 12 on the yield bit has to be clear, which it is.
const LONGEST_STALL: u8 = 15;

/// A sequence cannot be scheduled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// An instruction of variable latency needs a scoreboard, and none is given.
    #[error("no scoreboard is free for {mnemonic}")]
    NoScoreboard {
        /// The instruction.
        mnemonic: &'static str,
    },
    /// A NOP cannot be built.
    #[error(transparent)]
    Encode(#[from] EncodeError),
}

/// An instruction of variable latency whose registers are still in use.
struct Pending {
    scoreboard: u8,
    writes: RegSet,
    reads: RegSet,
}

/// The sequence with stalls and scoreboards that cover every hazard within it, and all that what
/// follows could have with it: each result is there when it ends.
///
/// Instructions of variable latency signal `scoreboards` in turn, which nothing else may be using.
pub fn schedule(insts: &[Inst], scoreboards: &[u8]) -> Result<Vec<Inst>, ScheduleError> {
    let mut out: Vec<Inst> = Vec::with_capacity(insts.len());
    let mut pending: Vec<Pending> = Vec::new();
    let mut turn = 0;
    let Some(first) = insts.first() else {
        return Ok(out);
    };
    let latencies = Latencies::of(first.sm());
    let nop = Builder::new(first.sm()).nop()?;
    for inst in insts {
        let needed = |producer: &Inst| {
            let mut read = producer.defs();
            read.intersect_with(&inst.uses());
            let slot = read.iter().map(|reg| Slot::Operand(reg.file)).max();
            slot.map_or(0, |slot| {
                latencies.least(Class::of(producer), Class::of(inst), slot)
            })
        };
        lengthen(&mut out, &nop, needed);
        let mut control = inst.control();
        let (uses, defs) = (inst.uses(), inst.defs());
        pending.retain(|earlier| {
            let meets = |set: &RegSet, other: &RegSet| set.iter().any(|reg| other.contains(reg));
            let waits = meets(&earlier.writes, &uses)
                || meets(&earlier.writes, &defs)
                || meets(&earlier.reads, &defs);
            control.wait_mask |= u8::from(waits) << earlier.scoreboard;
            !waits
        });
        let waited = control.wait_mask;
        pending.retain(|earlier| waited >> earlier.scoreboard & 1 == 0);
        (control.stall, control.yields) = (1, false);
        if inst.latency() == Latency::Variable {
            let Some(&scoreboard) = scoreboards.get(turn % scoreboards.len().max(1)) else {
                return Err(ScheduleError::NoScoreboard {
                    mnemonic: inst.mnemonic(),
                });
            };
            turn += 1;
            match defs.is_empty() {
                true => control.read_scoreboard = Some(scoreboard),
                false => control.write_scoreboard = Some(scoreboard),
            }
            // ptxas leaves a cycle between an instruction that signals and one that waits for it.
            control.stall = 2;
            pending.push(Pending {
                scoreboard,
                writes: defs,
                reads: uses.of(File::R).collect(),
            });
        }
        out.push(inst.with_control(control));
    }
    if !pending.is_empty() {
        let mut control = nop.control();
        control.wait_mask = pending.iter().fold(0, |mask, p| mask | 1 << p.scoreboard);
        out.push(nop.with_control(control));
    }
    lengthen(&mut out, &nop, |producer| {
        let defs = producer.defs();
        let slot = defs.iter().map(|reg| Slot::Operand(reg.file)).max();
        slot.map_or(0, |slot| {
            let least = |&reader: &Class| latencies.least(Class::of(producer), reader, slot);
            Class::ALL.iter().map(least).max().unwrap_or(0)
        })
    });
    Ok(out)
}

/// Lengthens the last stall, and adds NOPs where that is not enough, until each producer of fixed
/// latency lies as many cycles back as `needed` says.
fn lengthen(out: &mut Vec<Inst>, nop: &Inst, needed: impl Fn(&Inst) -> u8) {
    let mut distance = 0u32;
    let mut missing = 0u32;
    for inst in out.iter().rev() {
        distance += u32::from(inst.control().stall.max(1));
        if inst.latency() == Latency::Fixed {
            missing = missing.max(u32::from(needed(inst)).saturating_sub(distance));
        }
    }
    while missing > 0 {
        let Some(last) = out.last_mut() else { return };
        let mut control = last.control();
        let more = missing.min(u32::from(LONGEST_STALL - control.stall.min(LONGEST_STALL)));
        control.stall += more as u8;
        *last = last.with_control(control);
        missing -= more;
        if missing > 0 {
            out.push(nop.clone());
            missing -= 1;
        }
    }
}
