//! Walks every path and reports hazards that nothing covers.

use super::class::{Class, Order, cycles_before_any_reader};
use super::latency::{Latencies, Slot};
use super::later::Later;
use super::state::{Pending, Recent, State};
use crate::cfg::Cfg;
use crate::code::Code;
use crate::isa::{Access, File, Inst, Latency, Reg, RegSet};
use std::fmt;

/// What kind of hazard.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum HazardKind {
    /// A register is read before it is written.
    ReadAfterWrite,
    /// A register is overwritten before it is read.
    WriteAfterRead,
    /// A register is overwritten before it is written.
    WriteAfterWrite,
}

/// Two instructions that nothing keeps in order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Hazard {
    /// What kind.
    pub kind: HazardKind,
    /// The register.
    pub reg: Reg,
    /// The number of the instruction that is not waited for.
    pub first: usize,
    /// The number of the instruction that comes too early.
    pub second: usize,
    /// For a first instruction of fixed latency, the cycles there are and must be.
    pub cycles: Option<(u8, u8)>,
}

impl fmt::Display for Hazard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (does, did) = match self.kind {
            HazardKind::ReadAfterWrite => ("reads", "writes"),
            HazardKind::WriteAfterRead => ("writes", "reads"),
            HazardKind::WriteAfterWrite => ("writes", "writes"),
        };
        write!(
            f,
            "0x{:04x} {does} {} that 0x{:04x} {did}",
            Code::offset(self.second),
            self.reg,
            Code::offset(self.first)
        )?;
        match self.cycles {
            Some((is, must)) => write!(f, " after {is} cycles, not {must}"),
            None => write!(f, ", and waits for no scoreboard of it"),
        }
    }
}

/// The hazards that stalls and scoreboards do not cover, in order.
pub fn check(code: &Code, cfg: &Cfg) -> Vec<Hazard> {
    check_new(code, cfg, &[])
}

/// Cycles beyond the least distance that ptxas has been seen to keep between instructions of two
/// classes: not every pair of the classes need be that fast.
const MARGIN: u8 = 2;

/// The cycles between a producer and a reader of which one did not come from ptxas.
fn with_margin(least: u8, producer: &Inst, file: File) -> u8 {
    match cycles_before_any_reader(producer) {
        Some(cycles) => cycles.max(least),
        None => Class::of(producer).cycles_to_result(file).max(least) + MARGIN,
    }
}

/// The same, where instructions that `is_new` did not come from ptxas: these keep a margin from
/// producers of fixed latency and from readers.
pub(crate) fn check_new(code: &Code, cfg: &Cfg, is_new: &[bool]) -> Vec<Hazard> {
    let is_new = |at: usize| is_new.get(at).copied().unwrap_or(false);
    let latencies = Latencies::of(code.sm());
    let mut found = Vec::new();
    walk(code, cfg, |at, state, inst| {
        find(code, state, at, inst, &mut found);
        fixed(code, state, inst, &mut |recent, slot, distance| {
            let producer = &code.insts()[recent.inst];
            let mut least = latencies.least(Class::of(producer), Class::of(inst), slot);
            if is_new(recent.inst) || is_new(at) {
                least = with_margin(least, producer, recent.reg.file);
            }
            if distance < least {
                found.push(Hazard {
                    kind: HazardKind::ReadAfterWrite,
                    reg: recent.reg,
                    first: recent.inst,
                    second: at,
                    cycles: Some((distance, least)),
                });
            }
        });
        overtaken(code, state, at, inst, &mut found);
    });
    found.sort_unstable();
    found.dedup();
    found
}

/// How busy each scoreboard is where an instruction has waited for what it waits for.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Busy([u8; 6]);

impl Busy {
    /// The greater, the longer a wait for the scoreboard takes there.
    pub fn on(&self, scoreboard: u8) -> u8 {
        self.0[usize::from(scoreboard)]
    }
}

/// How busy scoreboards are at each instruction: by the slowest that is in flight.
pub(crate) fn busy(code: &Code, cfg: &Cfg) -> Vec<Busy> {
    let mut all = vec![Busy::default(); code.insts().len()];
    walk(code, cfg, |at, state, _| {
        for pending in &state.pending {
            let slow = match (pending.writes, pending.order) {
                (false, _) => 1,
                (true, Order::Load | Order::Memory | Order::Texture | Order::Free) => 3,
                (true, _) => 2,
            };
            for board in (0..6).filter(|board| pending.scoreboards >> board & 1 != 0) {
                all[at].0[board] = all[at].0[board].max(slow);
            }
        }
    });
    all
}

/// Writes of fixed latency that a later one of lower latency would overtake, and writes of
/// registers that an instruction of fixed latency is still reading.
fn overtaken(code: &Code, state: &State, at: usize, inst: &Inst, found: &mut Vec<Hazard>) {
    let defs = inst.defs();
    let class = Class::of(inst);
    for reading in state.reading.iter().filter(|r| defs.contains(r.reg)) {
        let earlier = &code.insts()[reading.inst];
        // The next one of the same unit begins to read when the first has.
        let is_in_turn = Class::of(earlier) == class || inst.latency() == Latency::Variable;
        let must = Class::of(earlier).cycles_to_read();
        if reading.age < must && !is_in_turn && !complementary(earlier, inst) {
            found.push(Hazard {
                kind: HazardKind::WriteAfterRead,
                reg: reading.reg,
                first: reading.inst,
                second: at,
                cycles: Some((reading.age, must)),
            });
        }
    }
    let is_renamable = |reg: Reg| matches!(reg.file, File::R | File::P);
    let recent = state.recent.iter();
    for recent in recent.filter(|r| is_renamable(r.reg) && defs.contains(r.reg)) {
        let earlier = &code.insts()[recent.inst];
        let lead = Class::of(earlier).lead_over(class, recent.reg.file);
        if recent.age < lead && !complementary(earlier, inst) {
            found.push(Hazard {
                kind: HazardKind::WriteAfterWrite,
                reg: recent.reg,
                first: recent.inst,
                second: at,
                cycles: Some((recent.age, lead)),
            });
        }
    }
}

/// Notes the least distances from producers of fixed latency to their readers.
pub fn distances(code: &Code, cfg: &Cfg, latencies: &mut Latencies) {
    walk(code, cfg, |_, state, inst| {
        fixed(code, state, inst, &mut |recent, slot, distance| {
            let producer = Class::of(&code.insts()[recent.inst]);
            latencies.note(producer, Class::of(inst), slot, distance);
        });
    });
}

/// Finds the state before each block, then visits each reachable instruction with the state
/// before it, waits included.
fn walk(code: &Code, cfg: &Cfg, mut visit: impl FnMut(usize, &State, &Inst)) {
    let blocks = cfg.blocks();
    let later = Later::of(code, cfg);
    let mut before: Vec<Option<State>> = vec![None; blocks.len()];
    let mut work: Vec<usize> = cfg.entries().to_vec();
    for &entry in cfg.entries() {
        before[entry] = Some(State::default());
    }
    while let Some(number) = work.pop() {
        let Some(mut state) = before[number].clone() else {
            continue;
        };
        for at in blocks[number].insts.clone() {
            let is_written = |reg| later.writes(number, at, reg);
            issue(&mut state, at, &code.insts()[at], is_written);
        }
        for &succ in &blocks[number].succs {
            let changed = match &mut before[succ] {
                Some(known) => known.join(&state),
                unknown => {
                    *unknown = Some(state.clone());
                    true
                }
            };
            if changed && !work.contains(&succ) {
                work.push(succ);
            }
        }
    }
    for (number, (block, state)) in blocks.iter().zip(before).enumerate() {
        let Some(mut state) = state else { continue };
        for at in block.insts.clone() {
            let inst = &code.insts()[at];
            wait(&mut state, at, inst);
            visit(at, &state, inst);
            issue(&mut state, at, inst, |reg| later.writes(number, at, reg));
        }
    }
}

/// Waits for what an instruction waits for.
fn wait(state: &mut State, at: usize, inst: &Inst) {
    state.wait(inst.control().wait_mask);
    if inst.mnemonic() != "DEPBAR" {
        return;
    }
    // SBn in bits 44..47, the count that may remain in 38..44.
    let board = (inst.word() >> 44 & 7) as u32;
    let remain = (inst.word() >> 38 & 0x3f) as usize;
    let mask = 1u8.checked_shl(board).unwrap_or(0);
    // Of those issued on the way here, all but the last ones have finished. What a loop has
    // left from behind is taken to be among the last.
    let mut signalled: Vec<_> = state
        .pending
        .iter()
        .filter(|pending| pending.scoreboards & mask != 0)
        .map(|pending| pending.inst)
        .collect();
    signalled.sort_unstable_by_key(|&inst| (inst > at, inst));
    signalled.dedup();
    signalled.truncate(signalled.len().saturating_sub(remain));
    state
        .pending
        .retain(|pending| pending.scoreboards & mask == 0 || !signalled.contains(&pending.inst));
}

/// The effect of one instruction on what is in flight. A read matters only where `is_written` says
/// that its register is written later.
fn issue(state: &mut State, at: usize, inst: &Inst, is_written: impl Fn(Reg) -> bool) {
    let control = inst.control();
    wait(state, at, inst);
    if inst.mnemonic() == "BAR" && inst.sm().number() < 80 {
        state
            .pending
            .retain(|pending| pending.writes || !pending.order.is_queued());
    }
    for pending in &mut state.pending {
        pending.fresh = 0;
    }
    let defs = inst.defs();
    if inst.guard().is_none() {
        state.recent.retain(|recent| !defs.contains(recent.reg));
        // Whatever comes later has to come behind this write, which comes behind them.
        state.pending.retain(|pending| !defs.contains(pending.reg));
    }
    match inst.latency() {
        Latency::Fixed => {
            for reg in defs.iter().filter(|reg| reg.file != File::B) {
                state.add_recent(Recent {
                    reg,
                    inst: at,
                    age: 0,
                });
            }
            if Class::of(inst).cycles_to_read() > 0 {
                for reg in sources(inst).iter() {
                    state.add_reading(Recent {
                        reg,
                        inst: at,
                        age: 0,
                    });
                }
            }
        }
        Latency::Variable => {
            let order = Order::of(inst);
            let bit = |scoreboard: Option<u8>| scoreboard.map_or(0, |number| 1u8 << number);
            let (written, read) = (bit(control.write_scoreboard), bit(control.read_scoreboard));
            // A wait right behind does not see what is signalled here.
            let is_fresh = control.stall.max(1) < CYCLES_TO_SIGNAL;
            let fresh = |boards: u8| if is_fresh { boards } else { 0 };
            for earlier in &mut state.pending {
                let mut more = 0;
                if order.writes_after(earlier.order) {
                    more |= written;
                }
                if !earlier.writes && order.reads_after(earlier.order) {
                    more |= written | read;
                }
                earlier.fresh |= fresh(more & !earlier.scoreboards);
                earlier.scoreboards |= more;
            }
            for (registers, writes) in [(sources(inst), false), (defs, true)] {
                for reg in registers.iter().filter(|&reg| writes || is_written(reg)) {
                    let predicate = matches!(reg.file, File::P | File::UP);
                    let scoreboards = match writes && !predicate {
                        true => written,
                        false => written | read,
                    };
                    state.add_pending(Pending {
                        reg,
                        writes,
                        inst: at,
                        order,
                        scoreboards,
                        fresh: fresh(scoreboards),
                    });
                }
            }
        }
    }
    state.pass(control.stall.max(1));
}

/// The cycles after which a wait sees that an instruction has taken a scoreboard.
const CYCLES_TO_SIGNAL: u8 = 2;

/// The registers that an instruction may read after it issued.
fn sources(inst: &Inst) -> RegSet {
    inst.operands()
        .iter()
        .filter(|operand| operand.access == Access::Use && operand.file == File::R)
        .flat_map(|operand| operand.registers())
        .collect()
}

/// Hazards with instructions of variable latency.
fn find(code: &Code, state: &State, at: usize, inst: &Inst, found: &mut Vec<Hazard>) {
    let (uses, defs) = (inst.uses(), inst.defs());
    let order = match inst.latency() {
        Latency::Variable => Order::of(inst),
        Latency::Fixed => Order::Free,
    };
    for pending in &state.pending {
        let kind = match pending.writes {
            true if uses.contains(pending.reg) => HazardKind::ReadAfterWrite,
            true if defs.contains(pending.reg) && !order.writes_after(pending.order) => {
                HazardKind::WriteAfterWrite
            }
            false if defs.contains(pending.reg) && !order.overwrites_after(pending.order) => {
                HazardKind::WriteAfterRead
            }
            _ => continue,
        };
        if complementary(&code.insts()[pending.inst], inst) {
            continue;
        }
        found.push(Hazard {
            kind,
            reg: pending.reg,
            first: pending.inst,
            second: at,
            cycles: None,
        });
    }
}

/// Whether two instructions run under opposite guards, so that no thread runs both.
fn complementary(first: &Inst, second: &Inst) -> bool {
    match (first.guard(), second.guard()) {
        (Some(first), Some(second)) => first.reg == second.reg && first.negated != second.negated,
        _ => false,
    }
}

/// Reports each result of fixed latency that the instruction reads.
fn fixed(code: &Code, state: &State, inst: &Inst, report: &mut dyn FnMut(&Recent, Slot, u8)) {
    let operands = inst
        .operands()
        .iter()
        .filter(|operand| operand.access == Access::Use)
        .flat_map(|operand| operand.registers());
    let operands: RegSet = operands.collect();
    let guard = inst.guard().filter(|guard| !guard.never);
    for recent in &state.recent {
        if complementary(&code.insts()[recent.inst], inst) {
            continue;
        }
        if operands.contains(recent.reg) {
            report(recent, Slot::Operand(recent.reg.file), recent.age);
        }
        if guard.is_some_and(|guard| guard.reg == recent.reg) {
            report(recent, Slot::Guard(recent.reg.file), recent.age);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cfg::Links;
    use crate::isa::{Builder, Sm, Source};

    /// HMMA.16816.F32.BF16 R48, R132, R154, R48
    const PRODUCT: u128 = 0x000f_ec00_0004_1830_0000_009a_8430_723c;
    /// EXIT
    const EXIT: u128 = 0x000f_ea00_0380_0000_0000_0000_0000_794d;

    fn stalled(inst: Inst, stall: u8) -> Inst {
        let control = inst.control();
        inst.with_control(control.stalled(stall))
    }

    fn hazards(insts: &[Inst], is_new: &[bool]) -> Vec<String> {
        let words = insts.iter().flat_map(|inst| inst.word().to_le_bytes());
        let code = Code::decode(&words.collect::<Vec<u8>>(), 90).unwrap();
        let cfg = Cfg::build(&code, &Links::default()).unwrap();
        let found = check_new(&code, &cfg, is_new);
        found.iter().map(Hazard::to_string).collect()
    }

    /// ptxas has other instructions read sooner, which does not hold for a product.
    #[test]
    fn new_code_waits_for_a_matrix_product_as_long_as_ptxas_at_the_end_of_a_block() {
        let sm = Sm::new(90).unwrap();
        let build = Builder::new(sm);
        let found = |product: u128, stalls: [u8; 3]| {
            let insts = [
                stalled(crate::decode(product, sm).unwrap(), stalls[0]),
                stalled(build.nop().unwrap(), stalls[1]),
                stalled(build.nop().unwrap(), stalls[2]),
                build.mov(0, Source::Reg(50)).unwrap(),
                crate::decode(EXIT, sm).unwrap(),
            ];
            hazards(&insts, &[false, true, true, true, false])
        };
        assert_eq!(found(PRODUCT, [15, 8, 1]), [""; 0]);
        let early = "0x0030 reads R50 that 0x0000 writes after 23 cycles, not 24";
        assert_eq!(found(PRODUCT, [15, 7, 1]), [early]);
        // Of sparse products only the longest of their class is known.
        let sparse = PRODUCT | 1 << 73;
        assert_eq!(found(sparse, [15, 15, 5]), [""; 0]);
        let early = "0x0030 reads R50 that 0x0000 writes after 34 cycles, not 35";
        assert_eq!(found(sparse, [15, 15, 4]), [early]);
    }

    /// Least distances hold between some instructions of two classes, not between all.
    #[test]
    fn new_code_keeps_a_margin_from_what_it_reads_and_from_its_readers() {
        let sm = Sm::new(90).unwrap();
        let build = Builder::new(sm);
        let found = |is_new: [bool; 2], cycles: u8| {
            let insts = [
                stalled(build.mov(0, Source::Reg(50)).unwrap(), cycles),
                build.iadd3(1, 0, Source::Immediate(1), 255).unwrap(),
                crate::decode(EXIT, sm).unwrap(),
            ];
            hazards(&insts, &[is_new[0], is_new[1], false])
        };
        assert_eq!(found([false, false], 4), [""; 0]);
        for is_new in [[true, false], [false, true]] {
            assert_eq!(found(is_new, 6), [""; 0]);
            let early = "0x0010 reads R0 that 0x0000 writes after 5 cycles, not 6";
            assert_eq!(found(is_new, 5), [early]);
        }
    }
}
