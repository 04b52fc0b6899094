//! Debug information that stands in the way of renaming registers.

use crate::ast::{self, Item, Module, Span};
use crate::lower::PassedThrough;

/// Sections that say in which register a variable is. They name registers in DWARF expressions,
/// which would have to be rewritten with the code.
pub(crate) fn debug_registers(module: &Module) -> Option<PassedThrough> {
    let sections = module.items.iter().filter_map(|item| match item {
        Item::Directive(directive) if directive.keyword == "section" => Some(directive),
        _ => None,
    });
    let names = |directive: &&ast::Directive| {
        let name = directive.args.trim_start();
        name.starts_with(".debug_loc")
            || name.starts_with(".debug_info") && module.target.contains(&"debug")
    };
    sections.into_iter().find(names).map(|section| {
        let name = section.args.split_whitespace().next().unwrap_or_default();
        // All of a section may be megabytes.
        let end = section.span.start + ".section ".len() as u32 + name.len() as u32;
        PassedThrough {
            reason: format!(
                "`{name}` says where variables are by the names of registers; build with \
                 line numbers only (-lineinfo) instead of -G"
            ),
            span: Span::new(section.span.start, end),
        }
    })
}
