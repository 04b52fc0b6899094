//! The machine code of a kernel as a listing.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};
use warpalloc_ptx::SourceLine;
use warpalloc_sass::isa::{File, RegSet};
use warpalloc_sass::loops::Loops;
use warpalloc_sass::object::{Container, Cubin, Function, ImageKind, demangle};
use warpalloc_sass::pressure::Pressure;
use warpalloc_sass::{Cfg, Code, Liveness, MeasureError};

use super::listing::{Listing, RangeOfValue, Row};
use crate::UsageError;
use crate::assembler;

/// A kernel in machine code.
pub struct MachineCode {
    pub arch: String,
    pub symbol: String,
    pub registers: Option<u32>,
    pub frame_bytes: u64,
    pub shared_bytes: u64,
    pub block_threads: Option<u32>,
    pub listing: Listing,
    /// Why its registers are not followed.
    pub refused: Option<String>,
}

/// What is looked for in a file.
pub struct Wanted<'w> {
    /// The kernel, mangled or not; the only one where it is not named.
    pub kernel: Option<&'w str>,
    /// The machine, such as `sm_90`.
    pub arch: Option<&'w str>,
}

impl Wanted<'_> {
    fn is(&self, function: &Function) -> bool {
        let Some(name) = self.kernel else {
            return true;
        };
        let demangled = demangle(function.name);
        let short = demangled.as_deref().and_then(|d| d.split('(').next());
        [Some(function.name), demangled.as_deref(), short].contains(&Some(name))
    }
}

/// The kernel of a file that is wanted.
pub fn read(path: &Path, wanted: &Wanted) -> anyhow::Result<MachineCode> {
    let name = path.display().to_string();
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {name}"))?;
    from_bytes(&name, &bytes, wanted)
}

/// The same of bytes that were read.
pub fn from_bytes(name: &str, bytes: &[u8], wanted: &Wanted) -> anyhow::Result<MachineCode> {
    let container = Container::read(bytes).with_context(|| name.to_owned())?;
    let images = container.images().iter();
    let images = images.filter(|image| image.kind == ImageKind::Cubin);
    let mut kernels = Vec::new();
    for image in images {
        if wanted
            .arch
            .is_some_and(|arch| arch != image.arch.to_string())
        {
            continue;
        }
        let packed = container.bytes(image).with_context(|| name.to_owned())?;
        let content = image.unpack(packed).with_context(|| name.to_owned())?;
        let cubin = Cubin::read(&content).with_context(|| name.to_owned())?;
        let entries: Vec<&Function> = cubin.functions.iter().filter(|f| f.is_entry).collect();
        let mut found = entries.iter().filter(|function| wanted.is(function));
        match (found.next(), found.next()) {
            (Some(function), None) => return Ok(of(&cubin, function, &content)),
            _ => kernels.extend(entries.iter().map(|f| f.name.to_owned())),
        }
    }
    if kernels.is_empty() {
        bail!("{name}: there is no cubin with a kernel for the machine that was asked for");
    }
    kernels.sort();
    kernels.dedup();
    Err(UsageError(format!(
        "--kernel names one of the kernels that {name} has: {}",
        kernels.join(", ")
    ))
    .into())
}

fn of(cubin: &Cubin, function: &Function, content: &[u8]) -> MachineCode {
    let texts = disassembled(content, function.name);
    let (listing, refused) = match listing(cubin, function, &texts) {
        Ok(listing) => (listing, None),
        Err(error) => (plain(&texts), Some(error.to_string())),
    };
    MachineCode {
        arch: cubin.arch.to_string(),
        symbol: function.name.to_owned(),
        registers: function.registers,
        frame_bytes: function.stack_bytes.unwrap_or(0).into(),
        shared_bytes: function.shared_bytes,
        block_threads: function.block_threads(),
        listing,
        refused,
    }
}

/// What nvdisasm writes, without knowing the registers.
fn plain(texts: &BTreeMap<usize, String>) -> Listing {
    Listing {
        first_line: 1,
        lines: texts.values().cloned().collect(),
        ..Listing::default()
    }
}

fn listing(
    cubin: &Cubin,
    function: &Function,
    texts: &BTreeMap<usize, String>,
) -> Result<Listing, MeasureError> {
    let code = Code::decode(function.code, cubin.arch.sm)?;
    let cfg = Cfg::build(&code, &cubin.links(function, &code))?;
    let liveness = Liveness::compute(&code, &cfg);
    let loops = Loops::compute(&cfg);
    let pressure = Pressure::compute(&code, &cfg, &liveness, File::R);
    let (sources, ptx) = (
        cubin.source_lines().unwrap_or_default(),
        cubin.ptx_lines().unwrap_or_default(),
    );
    let mut depths = vec![0; code.insts().len()];
    for (number, block) in cfg.blocks().iter().enumerate() {
        depths[block.insts.clone()].fill(loops.depth(number));
    }
    let mut listing = Listing {
        first_line: 1,
        ..Listing::default()
    };
    for (number, inst) in code.insts().iter().enumerate() {
        let offset = Code::offset(number);
        let text = texts.get(&offset).cloned();
        listing.lines.push(text.unwrap_or_else(|| inst.to_string()));
        let source = sources.find(function.section, offset as u64);
        let ptx_line = ptx.find(function.section, offset as u64);
        listing.rows.push(Row {
            line: number,
            number,
            registers: pressure.per_inst[number] as usize,
            position: 2 * number,
            loop_depth: depths[number],
            source: source.map(|line| SourceLine {
                file: line.file.to_owned(),
                line: line.line,
            }),
            ptx_line: ptx_line.map(|line| line.line as usize),
        });
    }
    listing.values = ranges(&code, &cfg, &liveness);
    Ok(listing)
}

/// What each general register holds, from where it becomes live to where it no longer is.
fn ranges(code: &Code, cfg: &Cfg, liveness: &Liveness) -> Vec<RangeOfValue> {
    let rows = liveness.all(code, cfg);
    let general = |set: &RegSet| -> Vec<u8> {
        let of_file = set.iter().filter(|register| register.file == File::R);
        of_file.map(|register| register.index).collect()
    };
    let mut open: BTreeMap<u8, RangeOfValue> = BTreeMap::new();
    let mut found = Vec::new();
    for (number, (inst, row)) in code.insts().iter().zip(&rows).enumerate() {
        let live = general(&row.during(inst));
        let ended: Vec<u8> = open.keys().copied().filter(|r| !live.contains(r)).collect();
        found.extend(ended.iter().filter_map(|register| open.remove(register)));
        let (written, read) = (general(&inst.defs()), general(&inst.uses()));
        for register in live {
            let value = open.entry(register).or_insert_with(|| RangeOfValue {
                name: format!("R{register}"),
                registers: 1,
                segments: std::iter::once(2 * number..2 * number).collect(),
                written: Vec::new(),
                read: Vec::new(),
                spill_cycles: None,
                recompute_cycles: None,
            });
            value.segments[0].end = 2 * number + 2;
            if written.contains(&register) {
                value.written.push(number);
            }
            if read.contains(&register) {
                value.read.push(number);
            }
        }
    }
    found.extend(open.into_values());
    found.sort_by_key(|value| value.segments[0].start);
    found
}

/// The instructions of a kernel as nvdisasm writes them, by offset; none where there is no nvdisasm.
fn disassembled(cubin: &[u8], name: &str) -> BTreeMap<usize, String> {
    let run = || {
        let program = assembler::find_program("nvdisasm")?;
        let folder = tempfile::tempdir().ok()?;
        let path = folder.path().join("kernel.cubin");
        std::fs::write(&path, cubin).ok()?;
        let made = Command::new(program).arg("-c").arg(&path).output().ok()?;
        made.status
            .success()
            .then(|| String::from_utf8_lossy(&made.stdout).into_owned())
    };
    run().map_or_else(BTreeMap::new, |said| instructions(&said, name))
}

/// Reads `/*0010*/ MOV R1, c[0x0][0x28] ;` in the section of a kernel.
fn instructions(said: &str, name: &str) -> BTreeMap<usize, String> {
    let start = format!(".text.{name}:");
    let own = said.lines().skip_while(|line| line.trim() != start).skip(1);
    let own = own.take_while(|line| !line.trim_start().starts_with(".section"));
    let instruction = |line: &str| {
        let (offset, text) = line.trim().strip_prefix("/*")?.split_once("*/")?;
        let offset = usize::from_str_radix(offset, 16).ok()?;
        let text = text.split(';').next()?.trim();
        Some((offset, text.to_owned()))
    };
    own.filter_map(instruction).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_those_of_the_kernel() {
        let said = "\
\t.section\t.text.a,\"ax\",@progbits
.text.a:
        /*0000*/                   EXIT ;
\t.section\t.text.k,\"ax\",@progbits
\t.sectioninfo\t@\"SHI_REGISTERS=8\"
.text.k:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
.L_x_0:
        /*0010*/              @!P0 BRA `(.L_x_0) ;
\t.section\t.nv.info,\"\"
        /*0020*/                   NOP ;
";
        let expected = [(0, "LDC R1, c[0x0][0x28]"), (16, "@!P0 BRA `(.L_x_0)")];
        let expected = expected.map(|(offset, text)| (offset, text.to_owned()));
        assert_eq!(instructions(said, "k"), BTreeMap::from(expected));
    }
}
