//! Which scoreboard a load or store in new code signals.
//!
//! Waiting for a scoreboard waits for everything that signals it, also for what was issued later.
//! So the choice is by estimate, within a block: for each scoreboard, how much longer the
//! instruction waits that needs this one, and how much longer others wait that wait for the same
//! scoreboard in between.

use crate::isa::{Effect, Inst, Latency, Pipe, Space};
use std::ops::Range;

/// How far back in a block what is in flight is looked for.
const REACH: usize = 400;

/// Cycles until an instruction of variable latency has written its result.
fn cycles_to_write(inst: &Inst) -> u32 {
    match (inst.pipe(), inst.mnemonic()) {
        (_, "LDS" | "SHFL" | "LDSM" | "LDC") => 30,
        (_, "LDL") => 40,
        (_, "S2R" | "S2UR") => 30,
        (Pipe::Xu, _) => 25,
        (Pipe::Memory, _) => match inst.memory().map(|memory| (memory.space, memory.effect)) {
            Some((Space::Shared, _)) => 60,
            Some((_, Effect::Store | Effect::Reduction)) => cycles_to_read(inst),
            _ => 600,
        },
        (Pipe::Texture, _) => 600,
        _ => 40,
    }
}

/// Cycles until it has read its sources.
fn cycles_to_read(inst: &Inst) -> u32 {
    match inst.memory().map(|memory| memory.space) {
        Some(Space::Shared | Space::Local) => 15,
        _ => 25,
    }
}

/// The scoreboard of those that `may_take` allows that costs least if the instruction at `first`
/// signals it, when it has read its sources or written its result, and that at `second` waits.
pub(super) fn cheapest(
    insts: &[Inst],
    block: Range<usize>,
    (first, second): (usize, usize),
    of_reads: bool,
    may_take: impl Fn(u8) -> bool,
) -> Option<u8> {
    let own = match of_reads {
        true => cycles_to_read(&insts[first]),
        false => cycles_to_write(&insts[first]),
    };
    let start = block.start.max(first.saturating_sub(REACH));
    let mut now = 0u32;
    // Until when each scoreboard is busy, by others.
    let mut busy = [0u32; 6];
    let mut until = 0u32;
    let mut delay = [0u32; 6];
    for (at, inst) in insts.iter().enumerate().take(second + 1).skip(start) {
        let control = inst.control();
        let waited = |board: usize| control.wait_mask >> board & 1 != 0;
        for board in (0..6).filter(|&board| waited(board)) {
            if at > first && at < second {
                delay[board] += until.saturating_sub(now.max(busy[board]));
            }
        }
        for board in (0..6).filter(|&board| waited(board)) {
            now = now.max(busy[board]);
        }
        if at == second {
            break;
        }
        if at == first {
            until = now + own;
        }
        if inst.latency() == Latency::Variable {
            let mut takes = |board: Option<u8>, cycles: u32| {
                if let Some(board) = board {
                    let busy = &mut busy[usize::from(board)];
                    *busy = (*busy).max(now + cycles);
                }
            };
            takes(control.write_scoreboard, cycles_to_write(inst));
            takes(control.read_scoreboard, cycles_to_read(inst));
        }
        now += u32::from(control.stall.max(1));
    }
    let cost = |board: u8| {
        let board = usize::from(board);
        let later = busy[board].saturating_sub(now.max(until));
        // Of two that cost nothing, the one that has been idle longer.
        (later + delay[board], busy[board])
    };
    (0..6)
        .filter(|&board| may_take(board))
        .min_by_key(|&board| cost(board))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::{Address, Builder, Control, Sm, SpillMemory, Width};

    /// A reload does not share the scoreboard of a load from global memory, nor that of the
    /// reload before it, whose reader comes first.
    #[test]
    fn a_reload_takes_a_scoreboard_that_nothing_slow_holds() {
        let build = Builder::new(Sm::new(90).unwrap());
        let with = |inst: Inst, write: Option<u8>, wait_mask: u8| {
            let control = inst.control();
            inst.with_control(Control {
                write_scoreboard: write,
                wait_mask,
                ..control
            })
        };
        let address = Address {
            register: 1,
            uniform: None,
            offset: 0,
        };
        let load = |dst: u8| {
            build
                .load(SpillMemory::Shared, Width::B32, dst, address)
                .unwrap()
        };
        // LDG.E R4, desc[UR4][R2.64]
        let global = crate::decode(0x000f_e800_0c1e_1900_0000_0004_0204_7981, build.sm()).unwrap();
        let nop = build.nop().unwrap();
        let insts = [
            with(global, Some(0), 0),
            with(load(8), Some(1), 0),
            load(9),
            with(nop.clone(), None, 1 << 1),
            nop,
        ];
        let chosen = |allowed: u8| cheapest(&insts, 0..5, (2, 4), false, |b| allowed >> b & 1 != 0);
        assert_eq!(chosen(0b000111), Some(2));
        assert_eq!(
            chosen(0b000011),
            Some(1),
            "half a wait rather than global memory"
        );
    }
}
