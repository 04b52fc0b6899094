//! The text of a promotion: loads and stores as moves, addresses and declarations gone.

use super::eligible::{Access, Plan, values};
use super::sites::{Candidate, Site, Sites, kind_and_bits};
use crate::ast::{Body, Operand, Span};
use crate::printer::Edits;
use rustc_hash::FxHashMap;
use std::fmt::Write;

/// Widths of cells, with the letter that follows the stem in their names.
const WIDTHS: [(u32, char); 3] = [(16, 'h'), (32, 'w'), (64, 'd')];

/// What the names of all cells begin with: nothing in the text does.
pub(super) fn fresh_stem(source: &str) -> String {
    let mut stem = "%cell_".to_owned();
    while source.contains(&stem) {
        stem.push('_');
    }
    stem
}

/// Adds the edits that promote the planned variables of one function.
pub(super) fn rewrite(
    source: &str,
    body: &Body,
    sites: &Sites,
    candidates: &[Candidate],
    plans: &[Plan],
    stem: &str,
    edits: &mut Edits,
) {
    if plans.is_empty() {
        return;
    }
    let cells = Cells::of(plans, stem);
    edits.insert(body.open + 1, &cells.declarations);
    for plan in plans {
        for &site in &plan.derivations {
            replace(source, sites.site(site).inst.span, "", edits);
        }
        for access in &plan.accesses {
            let site = sites.site(access.site);
            let text = moves(source, site, access, plan.candidate, &cells);
            replace(source, site.inst.span, &text, edits);
        }
        let decl = candidates[plan.candidate].decl;
        // One statement may declare several variables: the last to go takes it along.
        let is_planned = |name: &str| plans.iter().any(|p| candidates[p.candidate].name() == name);
        let last = decl.names.last().map(|name| name.name.span);
        if last == Some(candidates[plan.candidate].declarator.name.span)
            && decl.names.iter().all(|name| is_planned(name.name.text))
        {
            replace(source, decl.span, "", edits);
        }
    }
}

/// Puts `text` in the place of a statement without changing the number of lines.
fn replace(source: &str, span: Span, text: &str, edits: &mut Edits) {
    edits.replace_with(span, |out| {
        out.push_str(text);
        out.extend(span.text(source).chars().filter(|&c| c == '\n'));
    });
}

/// The registers that take the place of memory.
struct Cells {
    /// By variable and place.
    names: FxHashMap<(usize, u64), String>,
    declarations: String,
}

impl Cells {
    fn of(plans: &[Plan], stem: &str) -> Cells {
        let mut cells = Cells {
            names: FxHashMap::default(),
            declarations: String::new(),
        };
        for (width, letter) in WIDTHS {
            let mut count = 0;
            for plan in plans {
                for (&place, _) in plan
                    .cells
                    .iter()
                    .filter(|(_, bits)| (**bits).max(16) == width)
                {
                    let name = format!("{stem}{letter}{count}");
                    cells.names.insert((plan.candidate, place), name);
                    count += 1;
                }
            }
            if count > 0 {
                // Writing to a string cannot fail.
                let _ = write!(
                    cells.declarations,
                    " .reg .b{width} {stem}{letter}<{count}>;"
                );
            }
        }
        cells
    }
}

/// An access as moves, one per lane, on one line.
fn moves(source: &str, site: &Site, access: &Access, variable: usize, cells: &Cells) -> String {
    let guard = site.inst.guard.as_ref();
    let guard = guard.map_or_else(String::new, |g| format!("{} ", g.span().text(source)));
    let is_load = site.inst.mnemonic == "ld";
    let lanes = values(site.inst).iter().zip(access.places());
    let lines = lanes.filter_map(|(value, place)| {
        let cell = cells.names.get(&(variable, place))?;
        let text = match is_load {
            true => load(site, access, value, cell)?,
            false => store(source, site, access, value, cell)?,
        };
        Some(format!("{guard}{text}"))
    });
    lines.collect::<Vec<_>>().join(" ")
}

/// From a cell to a register, extended as memory would; nothing for `_`.
fn load(site: &Site, access: &Access, to: &Operand, cell: &str) -> Option<String> {
    let name = to.as_name()?.text;
    let bits = access.bits;
    let register = site.register_bits(to)?;
    if register == bits {
        return Some(format!("mov.b{bits} {name}, {cell};"));
    }
    let kind = match kind_and_bits(access.ty)?.0 {
        's' => 's',
        _ => 'u',
    };
    Some(format!("cvt.{kind}{register}.{kind}{bits} {name}, {cell};"))
}

/// From a register or a constant to a cell, truncated as memory would.
fn store(source: &str, site: &Site, access: &Access, from: &Operand, cell: &str) -> Option<String> {
    let width = access.bits.max(16);
    let text = match from {
        Operand::Int { span, .. } => format!("mov.b{width} {cell}, {};", span.text(source)),
        Operand::Float { span, .. } => format!("mov.{} {cell}, {};", access.ty, span.text(source)),
        _ => {
            let name = from.as_name()?.text;
            match site.register_bits(from)? {
                register if register == width => format!("mov.b{width} {cell}, {name};"),
                register => format!("cvt.u{width}.u{register} {cell}, {name};"),
            }
        }
    };
    Some(text)
}
