//! What a kernel takes: from what ptxas says, or from the cubin itself.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::Serialize;
use warpalloc_sass::Code;
use warpalloc_sass::isa::{Effect, Inst, Space};
use warpalloc_sass::object::Cubin;

/// What one entry takes, in bytes but for the registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Resources {
    pub registers: u32,
    pub stack: u32,
    pub spill_stores: u32,
    pub spill_loads: u32,
    pub shared: u32,
}

/// Reads what `ptxas -v` says: a line that names the entry, one with its frame, one with its
/// registers.
pub fn read_report(report: &str) -> BTreeMap<String, Resources> {
    let mut all: BTreeMap<String, Resources> = BTreeMap::new();
    let mut current = None;
    for line in report.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            current = rest.split('\'').next().map(str::to_owned);
        } else if line.contains("Function properties for ") {
            // The frame that follows is that of the entry only where the names agree.
            let name = line.rsplit(' ').next().unwrap_or_default();
            current = current.filter(|entry| entry == name);
        } else if let Some(entry) = &current {
            let resources = all.entry(entry.clone()).or_default();
            let mut read = |what: &str, field: fn(&mut Resources) -> &mut u32| {
                if let Some(number) = number_before(line, what) {
                    *field(resources) = number;
                }
            };
            read("bytes stack frame", |found| &mut found.stack);
            read("bytes spill stores", |found| &mut found.spill_stores);
            read("bytes spill loads", |found| &mut found.spill_loads);
            read("registers", |found| &mut found.registers);
            read("bytes smem", |found| &mut found.shared);
        }
    }
    all
}

fn number_before(line: &str, what: &str) -> Option<u32> {
    line[..line.find(what)?]
        .trim_end()
        .rsplit([' ', ','])
        .next()?
        .parse()
        .ok()
}

/// The same of an entry of a cubin. Bytes of local memory that it loads and stores count as spills.
pub fn of_cubin(bytes: &[u8], entry: &str) -> Result<Resources> {
    let cubin = Cubin::read(bytes)?;
    let function = cubin
        .function(entry)
        .with_context(|| format!("the cubin has no {entry}"))?;
    let code = Code::decode(function.code, cubin.arch.sm)?;
    let local = |effect: Effect| {
        let bytes = |inst: &Inst| {
            let memory = inst.memory()?;
            let is_it = memory.space == Space::Local && memory.effect == effect;
            memory.bytes.filter(|_| is_it)
        };
        let bytes = code.insts().iter().filter_map(bytes);
        bytes.map(u32::from).sum()
    };
    Ok(Resources {
        registers: function.registers.unwrap_or(0),
        stack: function.stack_bytes.unwrap_or(0),
        spill_stores: local(Effect::Store),
        spill_loads: local(Effect::Load),
        shared: u32::try_from(function.shared_bytes)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_ptxas_reports() {
        let report = "\
ptxas info    : 0 bytes gmem, 256 bytes cmem[3]
ptxas info    : Compiling entry function 'first' for 'sm_90'
ptxas info    : Function properties for first
    16 bytes stack frame, 12 bytes spill stores, 20 bytes spill loads
ptxas info    : Used 24 registers, used 1 barriers, 16 bytes cumulative stack size, 4096 bytes smem
ptxas info    : Compile time = 5.1 ms
ptxas info    : Compiling entry function 'second' for 'sm_90'
ptxas info    : Function properties for second
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 255 registers, used 0 barriers
ptxas info    : Function properties for helper
    8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
";
        let read = read_report(report);
        let first = Resources {
            registers: 24,
            stack: 16,
            spill_stores: 12,
            spill_loads: 20,
            shared: 4096,
        };
        assert_eq!(read["first"], first);
        assert_eq!(
            read["second"],
            Resources {
                registers: 255,
                ..Resources::default()
            }
        );
        assert_eq!(read.len(), 2);
    }
}
