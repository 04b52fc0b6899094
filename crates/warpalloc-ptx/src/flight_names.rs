//! Names of their own for registers that `wgmma` works on.
//!
//! One name for several values costs nothing in most code, as ptxas tells the values apart. In kernels
//! whose warps share out registers (`setmaxnreg`) it does not do so well: where an accumulator of
//! `wgmma.mma_async` shares its name with a value of the code that other warps execute, ptxas spills
//! accumulators and puts the products one after the other (message C7512). So each web with a value
//! in flight gets a name that no other web has.
//!
//! This is done to the finished text, because the webs of allocated registers are not those
//! of the function that was allocated: copies are gone and values are merged. The text is
//! lowered again, which finds its webs, and the renamed text once more: the two must agree in
//! every instruction, with a web of one for each web of the other.

use crate::ast::{Body, Span};
use crate::lower::{self, Lowered, ModuleNames, Occurrence, Source};
use crate::module::{PtxError, functions_with_bodies};
use crate::printer::Edits;
use rustc_hash::{FxHashMap, FxHashSet};
use std::fmt::Write;
use warpalloc::function::{Block, Constraint, VReg};
use warpalloc::target::{File, Target};

/// The text with names of their own for the accumulators of the functions that are `ours`.
pub(crate) fn separate(
    text: String,
    target: &Target,
    ours: &FxHashSet<&str>,
) -> Result<String, PtxError> {
    if !text.contains("wgmma.mma_async") {
        return Ok(text);
    }
    let (edits, before) = {
        let mut edits = Edits::new();
        let shapes = shapes(&text, target, ours, |webs, body| {
            webs.rename(body, target, &mut edits);
        })?;
        (edits, shapes)
    };
    if edits.is_empty() {
        return Ok(text);
    }
    let renamed = edits.apply(&text)?;
    let after = shapes(&renamed, target, ours, |_, _| ())?;
    let mut pairs = before.iter().zip(&after);
    if let Some((shape, _)) = pairs.find(|(before, after)| !before.is_renamed(after)) {
        return Err(PtxError::Unproved {
            function: shape.function.clone(),
            message: "giving accumulators names of their own changed its meaning".to_owned(),
        });
    }
    Ok(renamed)
}

/// What a function is but for its names, with what `visit` makes of each.
fn shapes(
    text: &str,
    target: &Target,
    ours: &FxHashSet<&str>,
    mut visit: impl FnMut(&TextWebs, &Body),
) -> Result<Vec<Shape>, PtxError> {
    let module = crate::parse(text).map_err(Box::new)?;
    let names = ModuleNames::of(&module);
    let mut shapes = Vec::new();
    for (function, body) in functions_with_bodies(&module) {
        if !ours.contains(function.name.text) {
            continue;
        }
        if let Ok(lowered) = lower::lower(text, &names, function, body, target) {
            let webs = TextWebs::of(&lowered);
            visit(&webs, body);
            shapes.push(webs.shape());
        }
    }
    Ok(shapes)
}

/// A function but for its names.
struct Shape {
    function: String,
    /// The block of each instruction, a fingerprint of its text without registers, and the web of each
    /// register.
    insts: Vec<(Block, u64, Vec<u32>)>,
    succs: Vec<Vec<Block>>,
}

impl Shape {
    /// Whether `other` has the same instructions and flow, and a web for each web.
    fn is_renamed(&self, other: &Shape) -> bool {
        let mut there = FxHashMap::default();
        let mut back = FxHashMap::default();
        let mut webs_match = |a: &[u32], b: &[u32]| {
            a.len() == b.len()
                && a.iter().zip(b).all(|(&a, &b)| {
                    *there.entry(a).or_insert(b) == b && *back.entry(b).or_insert(a) == a
                })
        };
        self.function == other.function
            && self.succs == other.succs
            && self.insts.len() == other.insts.len()
            && self
                .insts
                .iter()
                .zip(&other.insts)
                .all(|(a, b)| a.0 == b.0 && a.1 == b.1 && webs_match(&a.2, &b.2))
    }
}

/// The webs of names as they stand in a text: landings (see `lower::async_regs`) have no text, so
/// that what they read and what they write is one web.
struct TextWebs<'l, 'm, 'a> {
    lowered: &'l Lowered<'m, 'a>,
    parents: Vec<u32>,
}

impl<'l, 'm, 'a> TextWebs<'l, 'm, 'a> {
    fn of(lowered: &'l Lowered<'m, 'a>) -> Self {
        let parents = (0..lowered.function.vreg_count() as u32).collect();
        let mut webs = TextWebs { lowered, parents };
        let function = &lowered.function;
        for inst in function.insts() {
            if !matches!(
                lowered.codes[inst.as_u32() as usize].source,
                Source::Nothing
            ) {
                continue;
            }
            let operands = function.operands(inst);
            for operand in operands {
                if let Constraint::Tied(input) = operand.constraint {
                    webs.join(operand.vreg, operands[usize::from(input)].vreg);
                }
            }
        }
        webs
    }

    fn find(&self, vreg: VReg) -> u32 {
        let mut web = vreg.as_u32();
        while self.parents[web as usize] != web {
            web = self.parents[web as usize];
        }
        web
    }

    fn join(&mut self, a: VReg, b: VReg) {
        let (a, b) = (self.find(a), self.find(b));
        self.parents[a.max(b) as usize] = a.min(b);
    }

    /// Each register that stands in the text, with its web, in the order of the text.
    fn occurrences(&self) -> impl Iterator<Item = (Span, VReg, u32)> {
        let function = &self.lowered.function;
        function.insts().flat_map(move |inst| {
            let code = &self.lowered.codes[inst.as_u32() as usize];
            let operands = function.operands(inst);
            code.occurrences.iter().map(move |occurrence| {
                let vreg = operands[usize::from(occurrence.operand)].vreg;
                (occurrence.span, vreg, self.find(vreg))
            })
        })
    }

    fn shape(&self) -> Shape {
        let function = &self.lowered.function;
        let written = function.insts().filter(|inst| {
            let source = &self.lowered.codes[inst.as_u32() as usize].source;
            matches!(source, Source::Written { .. })
        });
        let insts = written.map(|inst| {
            let code = &self.lowered.codes[inst.as_u32() as usize];
            let operands = function.operands(inst);
            let web = |o: &Occurrence| self.find(operands[usize::from(o.operand)].vreg);
            let webs = code.occurrences.iter().map(web).collect();
            (function.block_of(inst), function.inst(inst).imm, webs)
        });
        let succs = |block| {
            function
                .succs(block)
                .iter()
                .map(|edge| edge.block)
                .collect()
        };
        Shape {
            function: function.name().to_owned(),
            insts: insts.collect(),
            succs: function.blocks().map(succs).collect(),
        }
    }

    /// Names the webs in flight whose names other webs have too.
    fn rename(&self, body: &Body, target: &Target, edits: &mut Edits) {
        let function = &self.lowered.function;
        let source = self.lowered.source;
        let mut webs_of: FxHashMap<&str, FxHashSet<u32>> = FxHashMap::default();
        let mut in_flight: FxHashSet<u32> = FxHashSet::default();
        for (span, vreg, web) in self.occurrences() {
            webs_of.entry(span.text(source)).or_default().insert(web);
            let info = function.vreg(vreg);
            let class = target.class(info.class);
            if info.pinned
                && class.file == File::R
                && class.width == target.file(File::R).units_per_reg
            {
                in_flight.insert(web);
            }
        }
        let mut prefix = "%A".to_owned();
        while source.contains(&prefix) {
            prefix.push('A');
        }
        let mut numbers: FxHashMap<u32, usize> = FxHashMap::default();
        for (span, _, web) in self.occurrences() {
            if in_flight.contains(&web) && webs_of[span.text(source)].len() > 1 {
                let next = numbers.len();
                let number = *numbers.entry(web).or_insert(next);
                edits.replace_with(span, |out| {
                    let _ = write!(out, "{prefix}{number}");
                });
            }
        }
        if !numbers.is_empty() {
            let declared = format!("\n\t.reg .b32 \t{prefix}<{}>;", numbers.len());
            edits.insert(body.open + 1, &declared);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::module::{ModuleOptions, allocate_module};

    /// Two values after the product of which one or the other takes the place of the
    /// accumulator, in a kernel whose warps share out registers.
    const KERNEL: &str = "\
.version 8.4
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out)
.maxntid 384
{
\t.reg .b32 %f<4>;
\t.reg .b32 %r<8>;
\t.reg .b64 %rd<2>;
\tld.param.u64 %rd1, [out];
\tsetmaxnreg.inc.sync.aligned.u32 232;
\tld.global.v4.b32 {%f0, %f1, %f2, %f3}, [%rd1];
\twgmma.fence.sync.aligned;
\twgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %rd1, %rd1, 1, 1, 1, 0, 0;
\twgmma.commit_group.sync.aligned;
\twgmma.wait_group.sync.aligned 0;
\tst.global.v4.b32 [%rd1], {%f0, %f1, %f2, %f3};
\tld.global.v4.b32 {%r0, %r1, %r2, %r3}, [%rd1+16];
\tadd.s32 %r4, %r0, %r1;
\tadd.s32 %r5, %r2, %r3;
\tst.global.v2.b32 [%rd1+32], {%r4, %r5};
\tret;
}
";

    /// The statements of the allocated kernel from the first that begins with `opcode` on.
    fn from<'t>(text: &'t str, opcode: &str) -> Vec<&'t str> {
        let lines = text.lines().map(str::trim);
        lines.skip_while(|line| !line.starts_with(opcode)).collect()
    }

    #[test]
    fn accumulators_share_their_names_with_nothing() {
        let options = ModuleOptions::default();
        let text = allocate_module(KERNEL, &options, None).unwrap().text;
        let product = from(&text, "wgmma.mma_async")[0];
        assert!(product.contains("{%A0, %A1, %A2, %A3}"), "{text}");
        let stored = from(&text, "st.global.v4")[0];
        assert!(
            stored.ends_with("{%A0, %A1, %A2, %A3};"),
            "the same web: {text}"
        );
        let epilogue = from(&text, "st.global.v4")[1..].join("\n");
        assert!(!epilogue.contains("%A"), "{text}");
        assert!(text.contains(".reg .b32 \t%A<4>;"), "{text}");
    }

    #[test]
    fn a_name_that_only_the_accumulator_has_stays() {
        let short = KERNEL.replace("\tld.global.v4.b32 {%r0, %r1, %r2, %r3}, [%rd1+16];\n", "");
        let short: String = short
            .lines()
            .filter(|line| !line.contains("add.s32") && !line.contains("+32]"))
            .map(|line| format!("{line}\n"))
            .collect();
        let text = allocate_module(&short, &ModuleOptions::default(), None)
            .unwrap()
            .text;
        assert!(!text.contains("%A"), "{text}");
    }

    #[test]
    fn a_function_that_stays_as_it_is_keeps_its_names() {
        let unknown = KERNEL.replace("\tret;", "\tfrobnicate.u32 %r0, %r1;\n\tret;");
        let text = allocate_module(&unknown, &ModuleOptions::default(), None)
            .unwrap()
            .text;
        assert!(text.contains("{%f0, %f1, %f2, %f3}, %rd1"), "{text}");
    }

    #[test]
    fn exchanged_webs_are_no_renaming() {
        let target = warpalloc::target::Target::hardware(90).unwrap();
        let ours = ["k"].into_iter().collect();
        let shape = |text: &str| {
            let mut shapes = super::shapes(text, &target, &ours, |_, _| ()).unwrap();
            shapes.remove(0)
        };
        let own = shape(KERNEL);
        let renamed = KERNEL
            .replace("%f1", "%q1")
            .replace("%f<4>;", "%f<4>, %q1;");
        assert!(own.is_renamed(&shape(&renamed)));
        let merged = KERNEL.replace("%r4, %r0, %r1", "%r4, %r0, %r0");
        assert!(!own.is_renamed(&shape(&merged)));
        let dropped = KERNEL.replace("\tadd.s32 %r5, %r2, %r3;\n", "");
        assert!(!own.is_renamed(&shape(&dropped)));
    }
}
