//! A kernel as ptxas assembles it: what the machine code takes, and what it is expected to cost.

use anyhow::anyhow;
use warpalloc_choose::judge::{Estimate, Machine, Setting, judge};
use warpalloc_choose::{Assembly, Ptxas, PtxasError};
use warpalloc_ptx::contract::Contraction;
use warpalloc_sass::measure;
use warpalloc_sass::object::Cubin;

/// A kernel of a file, and who assembles it for which launch.
pub struct Assembler<'a> {
    /// The file, for messages.
    pub file: &'a str,
    /// The kernel.
    pub entry: &'a str,
    pub ptxas: &'a Ptxas,
    /// What ptxas is told besides.
    pub options: &'a [String],
    pub arch: &'a str,
    pub contraction: Contraction,
    pub setting: Setting,
}

/// What machine code takes, and what it is expected to cost.
pub struct Judged {
    pub registers: u32,
    /// Static shared memory, spilled values included.
    pub shared: u64,
    /// Bytes of local memory per thread.
    pub frame: u64,
    /// Loads and stores of local memory in the code, where it can be decoded.
    pub local: Option<usize>,
    pub estimate: Option<Estimate>,
    /// The machine code.
    pub cubin: Vec<u8>,
}

impl Assembler<'_> {
    /// What a text with the kernel is assembled to.
    pub fn judged(&self, text: &str) -> anyhow::Result<Judged> {
        let assembly = Assembly {
            text,
            arch: self.arch,
            entry: Some(self.entry),
            contraction: self.contraction,
        };
        let context = |error: PtxasError| anyhow!(error).context(self.file.to_owned());
        let made = self.ptxas.assemble_with(assembly, self.options);
        let bytes = made.map_err(context)?.cubin;
        let cubin = Cubin::read(&bytes)?;
        let function = cubin.functions.iter().find(|f| f.name == self.entry);
        let function = function.ok_or_else(|| anyhow!("ptxas left `{}` out", self.entry))?;
        let local = measure(&cubin, function).ok().map(|measures| {
            let accesses = measures.local.iter().map(|l| l.loads + l.stores);
            accesses.sum()
        });
        Ok(Judged {
            registers: function.registers.unwrap_or(255),
            shared: function.shared_bytes,
            frame: function.stack_bytes.unwrap_or(0).into(),
            local,
            // Code that can't be judged is shown without cycles.
            estimate: judge(&Machine::H200, &bytes, self.entry, self.setting).ok(),
            cubin: bytes,
        })
    }
}
