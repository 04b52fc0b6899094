//! A second opinion on spilled code that shares nothing with webs, allocator and checker: old and
//! new code are run side by side along random paths, on names of values instead of values. Each
//! instruction of the old code has to read the same values in the new one.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use warpalloc_sass::isa::{Access, File, Flow, Inst, PlaceRef, Reg, Space};
use warpalloc_sass::{Cfg, Code};

/// The value of a register that nothing has written.
const UNDEFINED: u64 = 0;
/// Instructions of a path.
const LENGTH: usize = 20_000;

fn name(parts: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    hasher.finish() | 1
}

/// What an instruction does, without its general registers, its place and its schedule.
fn meaning(inst: &Inst) -> u128 {
    let placed = inst.with_place(0).unwrap_or_else(|_| inst.clone());
    let mut word = placed.word() & ((1 << 105) - 1);
    for operand in inst.operands().iter().filter(|o| o.file == File::R) {
        if let Some(at) = operand.field {
            word &= !(((1u128 << operand.field_bits) - 1) << at);
        }
    }
    word
}

#[derive(Default)]
struct Machine {
    registers: HashMap<Reg, u64>,
    slots: HashMap<(Reg, i32), u64>,
}

impl Machine {
    fn get(&self, reg: Reg) -> u64 {
        self.registers.get(&reg).copied().unwrap_or(UNDEFINED)
    }

    /// The values that an instruction reads, with the guard's.
    fn inputs(&self, inst: &Inst) -> Vec<u64> {
        let operands = inst.operands().iter().filter(|o| o.access == Access::Use);
        let lanes = operands.flat_map(|operand| operand.registers());
        let guard = inst.guard().filter(|guard| !guard.never);
        lanes
            .chain(guard.map(|guard| guard.reg))
            .map(|reg| self.get(reg))
            .collect()
    }

    /// Runs an instruction; `time` tells one access to memory from the next. Says of each result
    /// whether nothing was written there before, or takes that from `fresh`: a guarded result
    /// then has no old value that would mean anything.
    fn run(&mut self, inst: &Inst, time: usize, fresh: Option<&[bool]>) -> Vec<bool> {
        let mut were_fresh = Vec::new();
        let inputs = self.inputs(inst);
        let reads_memory = inst.memory().is_some_and(|m| m.space != Space::Constant);
        let time = if reads_memory { time } else { 0 };
        // What is computed from anything undefined may come out in any way.
        let is_defined = !inputs.contains(&UNDEFINED);
        let what = name((meaning(inst), inputs, time));
        for (number, operand) in inst.operands().iter().enumerate() {
            if operand.access == Access::Use {
                continue;
            }
            for (lane, reg) in operand.registers().enumerate() {
                let mut value = name((what, number, lane));
                let is_fresh = match fresh {
                    Some(fresh) => fresh[were_fresh.len()],
                    None => self.get(reg) == UNDEFINED,
                };
                were_fresh.push(is_fresh);
                if inst.guard().is_some() && !is_fresh {
                    value = name((value, self.get(reg)));
                }
                let value = if is_defined { value } else { UNDEFINED };
                self.registers.insert(reg, value);
            }
        }
        were_fresh
    }

    /// Runs an instruction that the old code does not have.
    fn run_new(&mut self, inst: &Inst, is_frame: bool) {
        let r = |index: u8| Reg {
            file: File::R,
            index,
        };
        if let Some((memory, address)) = inst.spill_address().filter(|_| is_frame) {
            let step = match memory {
                warpalloc_sass::isa::SpillMemory::Local => 4,
                warpalloc_sass::isa::SpillMemory::Shared => 128,
            };
            let base = r(address.register);
            let is_load = inst.mnemonic().starts_with("LD");
            let field = if is_load { 16 } else { 32 };
            let data = inst.operands().iter().find(|o| o.field == Some(field));
            for (lane, reg) in data.unwrap().registers().enumerate() {
                let slot = (base, address.offset + lane as i32 * step);
                match is_load {
                    true => {
                        let value = self.slots.get(&slot).copied().unwrap_or(UNDEFINED);
                        self.registers.insert(reg, value);
                    }
                    false => {
                        self.slots.insert(slot, self.get(reg));
                    }
                }
            }
            return;
        }
        let byte = |at: u32| (inst.word() >> at) as u8;
        let is_xor = inst.word() as u16 & 0xfff == 0x212 && byte(72) == 0x3c;
        match inst.copied() {
            Some(source) => {
                let to = inst.defs().iter().next().unwrap();
                self.registers.insert(to, self.get(source));
            }
            None if is_xor => {
                let value = self.get(r(byte(24))) ^ self.get(r(byte(32)));
                self.registers.insert(r(byte(16)), value);
            }
            None => {
                self.run(inst, 0, None);
            }
        }
    }
}

/// Walks one random path, and says at which old instruction the new code reads another value.
pub fn walk(
    (old, old_cfg): (&Code, &Cfg),
    new: &Code,
    offsets: &[usize],
    mut random: u64,
) -> Result<usize, String> {
    let mut is_old = vec![None; new.insts().len()];
    for (at, &offset) in offsets.iter().enumerate() {
        is_old[offset / 16] = Some(at);
    }
    let (mut left, mut right) = (Machine::default(), Machine::default());
    let (mut at, mut pc) = (0, 0);
    for time in 1..LENGTH {
        // What was put before it.
        while is_old[pc] != Some(at) {
            if let Some(other) = is_old[pc] {
                return Err(format!("{:#x} comes before {:#x}", other * 16, at * 16));
            }
            let inst = &new.insts()[pc];
            pc += 1;
            match (inst.flow(), inst.place()) {
                (Flow::Next, _) => right.run_new(inst, true),
                (Flow::Branch { .. }, Some(PlaceRef::Target(distance))) => {
                    pc = (pc as i64 + distance / 16) as usize;
                }
                _ => return Err(format!("{inst} was put before {:#x}", at * 16)),
            }
        }
        let (inst, now) = (&old.insts()[at], &new.insts()[pc]);
        if now.mnemonic() == inst.mnemonic() {
            let pairs = left.inputs(inst).into_iter().zip(right.inputs(now));
            for (number, (want, found)) in pairs.enumerate() {
                if want != UNDEFINED && want != found {
                    return Err(format!(
                        "{:#x} {inst} reads another value {number} at {:#x}",
                        at * 16,
                        pc * 16
                    ));
                }
            }
            let fresh = left.run(inst, time, None);
            right.run(now, time, Some(&fresh));
        } else if now.mnemonic() != "NOP" {
            return Err(format!("{:#x}: {inst} became {now}", at * 16));
        } else {
            left.run(inst, time, None);
        }
        let block = &old_cfg.blocks()[old_cfg.block_of(at)];
        if at + 1 < block.insts.end {
            (at, pc) = (at + 1, pc + 1);
            continue;
        }
        if block.succs.is_empty() {
            return Ok(time);
        }
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let succ = block.succs[(random >> 33) as usize % block.succs.len()];
        let next = old_cfg.blocks()[succ].insts.start;
        pc = match (now.flow(), now.place()) {
            _ if next == at + 1 && inst.flow() != Flow::Return => pc + 1,
            (Flow::Branch { .. } | Flow::Call { .. }, Some(PlaceRef::Target(distance))) => {
                (pc as i64 + 1 + distance / 16) as usize
            }
            // A return goes behind a call.
            _ => offsets[next - 1] / 16 + 1,
        };
        at = next;
    }
    Ok(LENGTH)
}
