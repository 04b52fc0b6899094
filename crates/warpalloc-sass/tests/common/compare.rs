//! Counts what the decoder and nvdisasm say differently.

use super::cubin::Section;
use super::listing::Listing;
use std::collections::BTreeMap;
use warpalloc_sass::isa::{File, Flow, Reg, RegSet, Sm};
use warpalloc_sass::{Cfg, Code, CodeError, Liveness, decode};

/// What was compared and what differed.
#[derive(Default)]
pub struct Report {
    pub kernels: usize,
    pub decoded_kernels: usize,
    pub insts: usize,
    pub decoded: usize,
    pub compared_kernels: usize,
    pub compared: usize,
    pub mnemonics: usize,
    pub registers: usize,
    pub live_kernels: usize,
    pub live_rows: usize,
    pub live: usize,
    /// Rows that differ from nvdisasm's once these are completed along control flow.
    pub live_unexplained: usize,
    pub call_kernels: usize,
    pub no_graph: usize,
    pub clean_kernels: usize,
    /// Kernels that differ, outside calls.
    pub different_kernels: usize,
    /// Refused forms and how often.
    pub refused: BTreeMap<String, usize>,
    /// Examples of differences.
    pub examples: BTreeMap<String, (usize, String)>,
}

impl Report {
    /// Counts one section's instructions and forms, without nvdisasm.
    pub fn decode(&mut self, section: &Section, sm: u32) -> Option<Code> {
        self.kernels += 1;
        self.insts += section.code.len() / 16;
        match Code::decode(&section.code, sm) {
            Ok(code) => {
                assert_eq!(code.encode(), section.code, "{}", section.name);
                self.decoded_kernels += 1;
                self.decoded += code.insts().len();
                Some(code)
            }
            Err(CodeError::Inst { .. }) => {
                let sm = Sm::new(sm)?;
                for word in section.code.as_chunks::<16>().0 {
                    match decode(u128::from_le_bytes(*word), sm) {
                        Ok(_) => self.decoded += 1,
                        Err(error) => {
                            let form = format!(
                                "0x{:03x}{} {}",
                                error.opcode(),
                                if error.word() >> 91 & 1 != 0 { "+" } else { "" },
                                error.mnemonic().unwrap_or("?")
                            );
                            *self.refused.entry(form).or_default() += 1;
                        }
                    }
                }
                None
            }
            Err(_) => None,
        }
    }

    fn example(&mut self, key: String, example: impl FnOnce() -> String) {
        self.examples.entry(key).or_insert_with(|| (0, example())).0 += 1;
    }
}

/// What nvdisasm does not say about an instruction, or says otherwise for a known reason.
fn unsaid(mnemonic: &str) -> fn(Reg) -> bool {
    match mnemonic {
        // It does not follow the mask that selects predicates.
        "P2R" | "R2P" => |reg| reg.file == File::P,
        "UP2UR" | "UR2UP" => |reg| reg.file == File::UP,
        // It counts the predicate that cancels a copy as written too.
        "LDGSTS" => |reg| reg.file == File::P,
        _ => |_| false,
    }
}

/// nvdisasm leaves UR0 to UR3 out. ptxas uses UR2 at the entry of sm_87 kernels only.
fn is_left_out(reg: Reg) -> bool {
    reg.file == File::UR && reg.index < 4
}

fn without(mut set: RegSet, hidden: impl Fn(Reg) -> bool) -> RegSet {
    let gone: RegSet = set
        .iter()
        .filter(|&reg| reg.file == File::B || hidden(reg))
        .collect();
    set.subtract(&gone);
    set
}

/// Compares one section's code with its listing.
pub fn compare(report: &mut Report, code: &Code, listing: &Listing) {
    report.compared_kernels += 1;
    let before = report.mnemonics + report.registers + report.live_unexplained;
    let mut calls = false;
    let mut predicates = false;
    for row in &listing.rows {
        let Some(inst) = code.insts().get(row.offset / 16) else {
            report.example("rows".into(), || format!("{} ends early", listing.name));
            report.registers += 1;
            return;
        };
        report.compared += 1;
        let name = row.mnemonic();
        if name != inst.mnemonic() {
            report.mnemonics += 1;
            report.example(format!("mnemonic {name}"), || {
                format!("{} 0x{:x} {} | {inst}", listing.name, row.offset, row.text)
            });
        }
        if matches!(inst.flow(), Flow::Call { .. }) {
            calls = true;
            continue;
        }
        let masked = unsaid(name);
        let hidden = |reg| masked(reg) || is_left_out(reg);
        predicates |= masked(Reg {
            file: File::P,
            index: 0,
        }) || masked(Reg {
            file: File::UP,
            index: 0,
        });
        if without(inst.defs(), hidden) != without(row.defs, hidden)
            || without(inst.uses(), hidden) != without(row.uses, hidden)
        {
            report.registers += 1;
            report.example(format!("registers {name}"), || {
                format!(
                    "{} 0x{:x} {} | {inst} | defs {:?} uses {:?}",
                    listing.name, row.offset, row.text, row.defs, row.uses
                )
            });
        }
    }
    if calls {
        report.call_kernels += 1;
    } else {
        match Cfg::build(code, &listing.links()) {
            Err(error) => {
                report.no_graph += 1;
                report.example("graph".into(), || format!("{} {error}", listing.name));
            }
            Ok(cfg) => live(report, code, &cfg, listing, predicates),
        }
    }
    if report.mnemonics + report.registers + report.live_unexplained == before {
        report.clean_kernels += 1;
    } else {
        report.different_kernels += 1;
    }
}

fn live(report: &mut Report, code: &Code, cfg: &Cfg, listing: &Listing, predicates: bool) {
    let rows = Liveness::compute(code, cfg).all(code, cfg);
    let completed = completed(code, cfg, listing);
    report.live_kernels += 1;
    for row in &listing.rows {
        let index = row.offset / 16;
        let inst = &code.insts()[index];
        if !cfg.is_reachable(cfg.block_of(index)) {
            continue;
        }
        report.live_rows += 1;
        // R1 is the stack pointer, which nvdisasm counts as live throughout; predicates are
        // compared where no instruction moves them by a mask.
        let hidden = |reg: Reg| {
            reg == Reg {
                file: File::R,
                index: 1,
            } || is_left_out(reg)
                || predicates && matches!(reg.file, File::P | File::UP)
        };
        let mine = without(rows[index].during(inst), hidden);
        report.live += usize::from(mine != without(row.live, hidden));
        let theirs = without(completed[index], hidden);
        if mine != theirs {
            report.live_unexplained += 1;
            report.example(format!("live {}", row.mnemonic()), || {
                let (mut more, mut less) = (mine, theirs);
                more.subtract(&theirs);
                less.subtract(&mine);
                format!(
                    "{} 0x{:x} {} | only here {more:?} | only nvdisasm {less:?}",
                    listing.name, row.offset, row.text
                )
            });
        }
    }
}

/// nvdisasm's live registers, completed along the edges of control flow.
///
/// Its rows contradict one another: a register that is live where a block begins may be missing in
/// the block before, across an instruction that does not touch it. Here a register that is live
/// where an instruction begins is live behind each instruction before it, and before that one too
/// unless it is written there without a guard.
fn completed(code: &Code, cfg: &Cfg, listing: &Listing) -> Vec<RegSet> {
    let blocks = cfg.blocks();
    let mut rows = vec![RegSet::EMPTY; code.insts().len()];
    for row in &listing.rows {
        rows[row.offset / 16] = row.live;
    }
    let mut live_in = vec![RegSet::EMPTY; blocks.len()];
    let mut is_changed = true;
    while is_changed {
        is_changed = false;
        for (number, block) in blocks.iter().enumerate().rev() {
            let mut live = RegSet::EMPTY;
            for &succ in &block.succs {
                live.union_with(&live_in[succ]);
            }
            for index in block.insts.clone().rev() {
                let inst = &code.insts()[index];
                let behind = live;
                rows[index].union_with(&behind);
                live = rows[index];
                live.subtract(&inst.defs());
                if inst.guard().is_some() {
                    let mut kept = inst.defs();
                    kept.intersect_with(&behind);
                    live.union_with(&kept);
                }
                live.union_with(&inst.uses());
            }
            is_changed |= live_in[number] != live;
            live_in[number] = live;
        }
    }
    rows
}
