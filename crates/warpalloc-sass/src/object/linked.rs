//! The code of a kernel together with that of the functions it calls in other sections.
//!
//! In a linked cubin a call that a relocation fills in goes to a symbol of the same file, for
//! good. So the sections are put one behind another, the kernel's first, and each such call
//! becomes one inside the code: control flow, liveness and hazards are then computed through
//! calls and returns as they are within one section.

use super::function::offset;
use super::{Cubin, Function, Linkage, Relocation};
use crate::cfg::Links;
use crate::code::{Code, CodeError};
use crate::isa::Flow;

/// A kernel and what it calls.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Linked {
    /// The kernel's instructions, then those of each section with a function it calls.
    pub code: Code,
    /// Control flow in all of it.
    pub links: Links,
    /// How many of the instructions are the kernel's.
    pub own: usize,
    /// Where each of the other sections begins, and the function that it is named after.
    pub called: Vec<(usize, String)>,
    /// The most registers that a called function states.
    pub called_registers: u32,
}

/// The code of one section, and where it begins.
struct Part<'a, 'd> {
    function: &'a Function<'d>,
    code: Code,
    start: usize,
}

impl Part<'_, '_> {
    /// The relocations of calls; others may name functions too, whose addresses they take.
    fn calls(&self) -> impl Iterator<Item = &Relocation> {
        let relocations = self.function.relocations.iter();
        relocations.filter(|relocation| {
            let at = offset(relocation.offset);
            let inst = self
                .code
                .insts()
                .get(at / 16)
                .filter(|_| at.is_multiple_of(16));
            inst.is_some_and(|inst| matches!(inst.flow(), Flow::Call { .. }))
        })
    }
}

impl<'d> Cubin<'d> {
    /// The code of `function` with the functions in other sections that it calls by name, as
    /// far as the cubin is linked and has them.
    pub fn linked(&self, function: &Function<'d>) -> Result<Linked, CodeError> {
        let mut parts = vec![self.part(function, 0)?];
        let mut end = function.code.len();
        let mut next = 0;
        while let Some(here) = parts.get(next) {
            next += 1;
            let calls = here.calls();
            let callees: Vec<_> = calls.filter_map(|call| self.callee(call)).collect();
            for (callee, _) in callees {
                let is_known = |part: &Part| part.function.section == callee.section;
                if !parts.iter().any(is_known) {
                    parts.push(self.part(callee, end)?);
                    end += callee.code.len();
                }
            }
        }
        let mut links = Links::default();
        let mut insts = Vec::new();
        for part in &parts {
            links.append(self.links(part.function, &part.code), part.start);
            for call in part.calls() {
                let Some((callee, target)) = self.callee(call) else {
                    continue;
                };
                let mut starts = parts.iter();
                let callee = starts.find(|part| part.function.section == callee.section);
                let place = offset(call.offset).saturating_add(part.start);
                let target = callee.map(|callee| target.saturating_add(callee.start));
                links.calls.insert(place, target);
            }
            insts.extend_from_slice(part.code.insts());
        }
        let others = || parts.iter().skip(1);
        links.sections = others().map(|part| part.start).collect();
        Ok(Linked {
            code: parts[0].code.with_insts(insts),
            links,
            own: parts[0].code.insts().len(),
            called: others()
                .map(|part| (part.start, part.function.name.to_owned()))
                .collect(),
            called_registers: others()
                .filter_map(|part| part.function.registers)
                .max()
                .unwrap_or(0),
        })
    }

    fn part<'a>(
        &self,
        function: &'a Function<'d>,
        start: usize,
    ) -> Result<Part<'a, 'd>, CodeError> {
        Ok(Part {
            function,
            code: Code::decode(function.code, self.arch.sm)?,
            start,
        })
    }

    /// The function that a relocation names, and the offset in its section. A cubin that is yet
    /// to be linked may get another function of that name.
    fn callee(&self, relocation: &Relocation) -> Option<(&Function<'d>, usize)> {
        let symbol = self.symbols.get(relocation.symbol as usize)?;
        let is_final = self.linkage == Linkage::Executable && symbol.is_function;
        let section = symbol.section.filter(|_| is_final)?;
        // Without an addend, the place itself holds one that is not read.
        relocation.addend?;
        let function = self.functions.iter().find(|f| f.section == section)?;
        Some((function, offset(relocation.target(symbol))))
    }
}
