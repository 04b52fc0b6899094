//! Scheduling bits for renamed code.
//!
//! Renaming keeps every read with its definition: each read after a write is covered by the
//! stalls and scoreboards that are there. Writes after reads and writes after writes are new,
//! because a register now follows on other values. The hazard checker finds those that nothing
//! covers, and each is covered here:
//!
//! - where the first instruction signals a scoreboard, the second waits for it: the one of its
//!   reads for a write after a read, so that nothing waits for memory to answer that only has
//!   to have read an address;
//! - where it signals none, it is given one: the least busy where the second stands. Boards
//!   that a `DEPBAR` counts are left alone, since it counts signals;
//! - a write of fixed latency that would be overtaken by the next is given time by a longer
//!   stall.
//!
//! Waits and stalls of the original stay, so that nothing that it ordered is lost.

use super::RecolourError;
use super::board_choice::cheapest;
use crate::cfg::Cfg;
use crate::code::Code;
use crate::hazard::{self, Busy, Hazard, HazardKind};
use crate::isa::{Access, Control, File, Inst, Latency, Operand};
use rustc_hash::FxHashSet;

/// The stall field has four bits.
const LONGEST_STALL: u8 = 15;
/// From this stall on, the yield bit must be clear.
const STALL_WITHOUT_YIELD: u8 = 12;
/// More rounds than any code has needed.
const ROUNDS: usize = 200;

/// What was added to cover new hazards.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct Added {
    /// Waits for scoreboards.
    pub waits: usize,
    /// Scoreboards that instructions signal.
    pub scoreboards: usize,
    /// Cycles of stalls.
    pub cycles: usize,
    /// Operands that are no longer kept for the next instruction.
    pub reuses_dropped: usize,
}

/// Covers the hazards of renamed `code`, or says which one can't be. Instructions that `is_new`
/// keep a margin from those before and behind them; those from `own` on stay as they are.
pub(crate) fn cover(
    code: &Code,
    cfg: &Cfg,
    own: usize,
    is_new: &[bool],
) -> Result<(Code, Added), RecolourError> {
    let mut added = Added::default();
    let mut insts = code.insts().to_vec();
    drop_stale_reuses(&mut insts, cfg, own, &mut added);
    let counted = counted_boards(&insts);
    for _ in 0..ROUNDS {
        let code = code.with_insts(insts.clone());
        let mut hazards = hazard::check_new(&code, cfg, is_new);
        if hazards.is_empty() {
            return Ok((code, added));
        }
        let busy = hazard::busy(&code, cfg);
        // Where the first to come waits, those behind it need not.
        hazards.sort_by_key(|hazard| hazard.second);
        let mut seen = FxHashSet::default();
        for hazard in hazards.iter().filter(|hazard| seen.insert(hazard.first)) {
            let is_covered = match hazard.cycles {
                Some(cycles) => lengthen(&mut insts, cfg, own, hazard, cycles, &mut added),
                None => {
                    let boards = Boards {
                        busy: &busy,
                        counted,
                        has_new: !is_new.is_empty(),
                        own,
                    };
                    let mut wait_at = |second: usize| {
                        let hazard = Hazard { second, ..*hazard };
                        wait(&mut insts, cfg, &hazard, &boards, &mut added)
                    };
                    // Every way into a called function begins with a call.
                    match hazard.second < own {
                        true => wait_at(hazard.second),
                        false => own_calls(cfg, own).all(wait_at),
                    }
                }
            };
            if !is_covered {
                return Err(RecolourError::Hazard(*hazard));
            }
        }
    }
    let code = code.with_insts(insts);
    match hazard::check_new(&code, cfg, is_new).first() {
        Some(&hazard) => Err(RecolourError::Hazard(hazard)),
        None => Ok((code, added)),
    }
}

/// The calls among the first `own` instructions.
fn own_calls(cfg: &Cfg, own: usize) -> impl Iterator<Item = usize> {
    let calls = cfg.blocks().iter().filter(|block| block.calls);
    let last = calls.map(|block| block.insts.end - 1);
    last.filter(move |&at| at < own)
}

/// What a scoreboard is chosen by.
struct Boards<'a> {
    /// How busy each is at each instruction.
    busy: &'a [Busy],
    /// Those that some `DEPBAR` counts.
    counted: u8,
    /// Whether instructions were inserted.
    has_new: bool,
    /// How many instructions may change.
    own: usize,
}

impl Boards<'_> {
    /// The scoreboard that the first instruction of a hazard is to signal.
    fn choose(&self, insts: &[Inst], cfg: &Cfg, hazard: &Hazard, of_reads: bool) -> Option<u8> {
        let is_free = |board: u8| self.counted >> board & 1 == 0;
        let (first, second) = (hazard.first, hazard.second);
        let block = cfg.blocks()[cfg.block_of(second)].insts.clone();
        if self.has_new && block.contains(&first) && first < second {
            return cheapest(insts, block, (first, second), of_reads, is_free);
        }
        let free = (0..6u8).filter(|&board| is_free(board));
        free.min_by_key(|&board| self.busy[second].on(board))
    }
}

/// Makes the second instruction wait for the first.
fn wait(
    insts: &mut [Inst],
    cfg: &Cfg,
    hazard: &Hazard,
    boards: &Boards,
    added: &mut Added,
) -> bool {
    let mut first = insts[hazard.first].control();
    let of_reads = hazard.kind == HazardKind::WriteAfterRead;
    let board = match of_reads {
        true => first.read_scoreboard,
        false => first.write_scoreboard,
    };
    let board = match board {
        Some(board) => board,
        None if hazard.first >= boards.own => return false,
        None => {
            let Some(board) = boards.choose(insts, cfg, hazard, of_reads) else {
                return false;
            };
            match of_reads {
                true => first.read_scoreboard = Some(board),
                false => first.write_scoreboard = Some(board),
            }
            insts[hazard.first] = insts[hazard.first].with_control(first);
            added.scoreboards += 1;
            board
        }
    };
    let mut second = insts[hazard.second].control();
    if second.wait_mask >> board & 1 == 0 {
        second.wait_mask |= 1 << board;
        insts[hazard.second] = insts[hazard.second].with_control(second);
        added.waits += 1;
    }
    // A wait does not see a scoreboard that was taken right before it, be it by the first
    // instruction or by another that shares it.
    let block = &cfg.blocks()[cfg.block_of(hazard.second)].insts;
    let before = hazard.second.checked_sub(1).filter(|at| block.contains(at));
    let first = Some(hazard.first).filter(|&at| at < boards.own);
    for at in before.into_iter().chain(first) {
        let control = insts[at].control();
        let signals = [control.write_scoreboard, control.read_scoreboard];
        if control.stall < 2 && signals.contains(&Some(board)) {
            insts[at] = insts[at].with_control(Control {
                stall: 2,
                ..control
            });
            added.cycles += 1;
        }
    }
    true
}

/// Puts as many cycles between the two instructions as there must be, in front of the second.
fn lengthen(
    insts: &mut [Inst],
    cfg: &Cfg,
    own: usize,
    hazard: &Hazard,
    (is, must): (u8, u8),
    added: &mut Added,
) -> bool {
    let block = &cfg.blocks()[cfg.block_of(hazard.second)];
    // Another hazard may have been given some of them already.
    let is_near = block.insts.contains(&hazard.first) && hazard.first < hazard.second;
    let now = match is_near {
        true => insts[hazard.first..hazard.second]
            .iter()
            .fold(0u8, |sum, i| sum.saturating_add(i.control().stall.max(1))),
        false => is,
    };
    let mut missing = must.saturating_sub(now.max(is));
    let may_wait = hazard.second < own;
    for at in (block.insts.start..hazard.second)
        .rev()
        .filter(|_| may_wait)
    {
        let control = insts[at].control();
        let more = missing.min(LONGEST_STALL - control.stall.min(LONGEST_STALL));
        if more > 0 {
            insts[at] = insts[at].with_control(stalled(control, control.stall + more));
            added.cycles += usize::from(more);
            missing -= more;
        }
        if missing == 0 || at == hazard.first {
            break;
        }
    }
    // A first instruction in another block has its own stall to lengthen, on every way from it.
    if missing > 0 && !block.insts.contains(&hazard.first) && hazard.first < own {
        let control = insts[hazard.first].control();
        let more = missing.min(LONGEST_STALL - control.stall.min(LONGEST_STALL));
        let longer = stalled(control, control.stall + more);
        insts[hazard.first] = insts[hazard.first].with_control(longer);
        added.cycles += usize::from(more);
        missing -= more;
    }
    missing == 0
}

fn stalled(control: Control, stall: u8) -> Control {
    Control {
        stall,
        yields: control.yields && stall < STALL_WITHOUT_YIELD,
        ..control
    }
}

/// The scoreboards that some `DEPBAR` counts.
fn counted_boards(insts: &[Inst]) -> u8 {
    let mut boards = 0;
    for inst in insts.iter().filter(|inst| inst.mnemonic() == "DEPBAR") {
        boards |= 1 << (inst.word() >> 44 & 7) as u8;
    }
    boards
}

/// Clears the reuse flag of operands that the cache would be read for in vain or wrongly.
///
/// A flag keeps an operand for the next instruction that reads a register in the same place.
/// It stays where that one reads the same register, and nothing up to there writes it.
fn drop_stale_reuses(insts: &mut [Inst], cfg: &Cfg, own: usize, added: &mut Added) {
    for block in cfg.blocks() {
        for at in block.insts.clone().filter(|&at| at < own) {
            let mut control = insts[at].control();
            if control.reuse == 0 {
                continue;
            }
            let behind = &insts[at..block.insts.end];
            for slot in 0..4 {
                if control.reuse >> slot & 1 != 0 && !is_reused(behind, slot) {
                    control.reuse &= !(1 << slot);
                    added.reuses_dropped += 1;
                }
            }
            insts[at] = insts[at].with_control(control);
        }
    }
}

/// Whether the operand that the first of `insts` keeps is the next that is read in its place.
fn is_reused(insts: &[Inst], slot: u8) -> bool {
    let Some(kept) = insts.first().and_then(|inst| source(inst, slot)) else {
        return false;
    };
    for pair in insts.windows(2) {
        let defs = pair[0].defs();
        if kept.registers().any(|reg| defs.contains(reg)) {
            return false;
        }
        if let Some(read) = source(&pair[1], slot) {
            return (read.first, read.width) == (kept.first, kept.width);
        }
    }
    false
}

/// The general register that stands in one of the three places for sources, of an instruction
/// that reads when it issues.
fn source(inst: &Inst, slot: u8) -> Option<Operand> {
    let field = match slot {
        0 => 24,
        1 => 32,
        2 => 64,
        _ => return None,
    };
    let operands = inst.operands().iter();
    let mut found = operands.filter(|operand| {
        operand.access == Access::Use && operand.file == File::R && operand.field == Some(field)
    });
    let fixed = inst.latency() == Latency::Fixed;
    found.next().filter(|_| fixed).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cfg::Links;
    use crate::isa::{Sm, decode};

    /// STG.E desc[UR4][R2.64], R4
    const STORE: u128 = 0x000f_e800_0c10_1904_0000_0004_0200_7986;
    /// LDG.E R4, desc[UR4][R2.64]
    const LOAD: u128 = 0x000f_e800_0c1e_1900_0000_0004_0204_7981;
    /// MOV R2, 0x1
    const MOVE: u128 = 0x000f_e200_0000_0f00_0000_0001_0002_7802;
    /// CALL.REL.NOINC to the next instruction but one
    const CALL: u128 = 0x000f_ea00_0380_0000_0000_0000_0004_7944;
    /// EXIT
    const EXIT: u128 = 0x000f_ea00_0380_0000_0000_0000_0000_794d;
    /// RET.REL.NODEC R20 0x0
    const RETURN: u128 = 0x000f_ea00_03c3_ffff_ffff_ffff_1400_7950;

    fn code(words: &[u128]) -> (Code, Cfg) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let code = Code::decode(&bytes, 90).unwrap();
        let cfg = Cfg::build(&code, &Links::default()).unwrap();
        (code, cfg)
    }

    /// A store may still read R2 when the called function writes it. Where that may not change,
    /// the call waits.
    #[test]
    fn a_call_waits_for_what_a_called_function_overwrites() {
        let (code, cfg) = code(&[STORE, CALL, EXIT, MOVE, RETURN]);
        let waits = |own: usize| {
            let (covered, _) = cover(&code, &cfg, own, &[]).unwrap();
            assert_eq!(hazard::check(&covered, &cfg), []);
            assert_eq!(covered.insts()[own..], code.insts()[own..]);
            let board = covered.insts()[0].control().read_scoreboard.unwrap();
            let waiting = |at: &usize| covered.insts()[*at].control().wait_mask >> board & 1 != 0;
            (0..5).filter(waiting).collect::<Vec<_>>()
        };
        assert_eq!(waits(5), [3]);
        assert_eq!(waits(3), [1]);
    }

    /// A kept operand that nothing reads again is the kernel's to correct, not the function's.
    #[test]
    fn reuse_flags_of_a_called_function_stay() {
        // FADD R4, R4.reuse, R5
        let sum = 0x000f_e200_0000_0000_0000_0005_0404_7221 | 1 << 122;
        let (code, cfg) = code(&[sum, CALL, EXIT, sum, RETURN]);
        let (covered, added) = cover(&code, &cfg, 3, &[]).unwrap();
        assert_eq!(added.reuses_dropped, 1);
        let reuse = |at: usize| covered.insts()[at].control().reuse;
        assert_eq!((reuse(0), reuse(3)), (0, 1));
    }

    /// A load that signals nothing can't be waited for behind the function.
    #[test]
    fn what_a_called_function_leaves_in_flight_is_refused() {
        // MOV R4, 0x1 behind the call.
        let moves = decode(MOVE, Sm::new(90).unwrap()).unwrap();
        let moves = moves.with_register(0, 4).unwrap().word();
        let call = CALL + (4 << 16);
        let (code, cfg) = code(&[call, moves, EXIT, LOAD, RETURN]);
        let found = hazard::check(&code, &cfg);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].first, found[0].second), (3, 1));
        assert!(cover(&code, &cfg, 5, &[]).is_ok());
        assert_eq!(
            cover(&code, &cfg, 3, &[]).unwrap_err(),
            RecolourError::Hazard(found[0])
        );
    }

    /// Six cycles lie between a result of HFMA2.MMA and a quicker write of its register, which
    /// the kernel alone provides where the write is in a called function.
    #[test]
    fn a_stall_for_a_called_function_is_the_kernels_own() {
        // HFMA2.MMA R2, -RZ, RZ, 0, 0 with a stall of one cycle.
        let slow = 0x000f_e200_0000_0000_0000_0000_ff02_7435;
        let call = CALL & !(0xf << 105) | 1 << 105;
        // MOV R8, 0x1
        let other = MOVE + (6 << 16);
        let (code, cfg) = code(&[slow, call, EXIT, other, MOVE, RETURN]);
        let found = hazard::check(&code, &cfg);
        assert!(
            found.iter().any(|h| h.cycles.is_some() && h.second == 4),
            "{found:?}"
        );
        let (covered, added) = cover(&code, &cfg, 3, &[]).unwrap();
        assert!(added.cycles > 0);
        assert_eq!(hazard::check(&covered, &cfg), []);
        assert_eq!(covered.insts()[3..], code.insts()[3..]);
    }
}
