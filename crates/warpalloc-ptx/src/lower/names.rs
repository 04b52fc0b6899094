//! What a name stands for, scope by scope.
//!
//! Braces open scopes that may declare a name anew; a name means what the innermost scope
//! around it says. A series such as `%r<1000000>` is one entry, found by cutting the number
//! off a name: nothing is made for registers nobody mentions.

use crate::ast::{Item, Linkage, Module, RegDecl, Series, VarDecl};
use crate::opcode::{SpecialReg, Width, special_register};
use rustc_hash::{FxHashMap, FxHashSet};

/// The registers of one declared name or series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Declared {
    /// Number of the declaration within the function.
    pub decl: u32,
    /// Position within the series; 0 for a single name.
    pub index: u32,
    /// Width of one element.
    pub width: Width,
    /// Elements: 1 for all but vector registers.
    pub lanes: u8,
}

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// A register.
    Register(Declared),
    /// A register at module level, which all functions share.
    ModuleRegister,
    /// A special register.
    Special(SpecialReg),
    /// A constant with a name.
    Constant,
    /// A variable, parameter, function or label.
    Symbol {
        /// Declared within braces inside of the function, so unknown outside of them.
        nested: bool,
        /// A parameter of the entry function at hand.
        kernel_parameter: bool,
        /// The variable, where it is one that overlaps no other.
        variable: Option<Variable>,
    },
    /// Nobody declared it.
    Unknown,
}

/// A variable that overlaps no other, with its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Variable {
    /// Distinguishes it from all other variables that the function knows.
    pub number: u32,
    pub bytes: u32,
}

impl Variable {
    /// The only variable of a declaration. Arrays of unknown size, which may begin at the same
    /// address, have none, and neither has what another module defines.
    fn of(var: &VarDecl, number: u32) -> Option<Variable> {
        let [declarator] = var.names.as_slice() else {
            return None;
        };
        let bits = crate::opcode::type_bits(var.ty)?;
        let dims = declarator.dims.iter().map(|dim| dim.unwrap_or(0));
        let elements = dims.fold(1u64, u64::saturating_mul);
        let bytes = elements.saturating_mul(u64::from(bits / 8) * u64::from(var.vector));
        let bytes = u32::try_from(bytes).ok()?;
        let is_own = var.linkage != Linkage::Extern && declarator.count.is_none() && bytes > 0;
        is_own.then_some(Variable { number, bytes })
    }
}

#[derive(Clone, Copy)]
enum Entry {
    Register {
        decl: u32,
        width: Width,
        lanes: u8,
    },
    ModuleRegister,
    Symbol {
        kernel_parameter: bool,
        variable: Option<Variable>,
    },
}

/// A name that is no variable.
const PLAIN_SYMBOL: Entry = Entry::Symbol {
    kernel_parameter: false,
    variable: None,
};

/// The names of one scope.
#[derive(Default)]
struct Table<'a> {
    single: FxHashMap<&'a str, Entry>,
    /// By stem, with how many there are.
    series: FxHashMap<&'a str, (u32, Entry)>,
}

impl<'a> Table<'a> {
    fn declare(&mut self, name: &'a str, count: Option<u32>, entry: Entry) {
        match count {
            Some(count) => drop(self.series.insert(name, (count, entry))),
            None => drop(self.single.insert(name, entry)),
        }
    }

    /// The entry of a name and its position in the series.
    fn find(&self, name: &str) -> Option<(Entry, u32)> {
        if let Some(&entry) = self.single.get(name) {
            return Some((entry, 0));
        }
        if self.series.is_empty() {
            return None;
        }
        let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
        // The stem may end in digits itself: every cut is possible.
        (name.len() - digits..name.len()).find_map(|cut| {
            let (stem, number) = name.split_at(cut);
            let &(count, entry) = self.series.get(stem)?;
            let plain = number == "0" || !number.starts_with('0');
            let index: u32 = number.parse().ok()?;
            (plain && index < count).then_some((entry, index))
        })
    }
}

/// What the whole module declares.
pub(crate) struct ModuleNames<'a> {
    table: Table<'a>,
    variables: u32,
}

impl<'a> ModuleNames<'a> {
    /// Collects the names at module level.
    pub fn of(module: &Module<'a>) -> ModuleNames<'a> {
        let mut table = Table::default();
        let mut variables = 0;
        for item in &module.items {
            match item {
                Item::Function(function) => table.declare(function.name.text, None, PLAIN_SYMBOL),
                Item::Var(var) => {
                    let variable = Variable::of(var, variables);
                    variables += 1;
                    let entry = Entry::Symbol {
                        kernel_parameter: false,
                        variable,
                    };
                    for name in &var.names {
                        table.declare(name.name.text, name.count, entry);
                    }
                }
                Item::Alias(alias) => table.declare(alias.alias.text, None, PLAIN_SYMBOL),
                Item::Reg(reg) => {
                    for name in &reg.names {
                        table.declare(name.name.text, name.count, Entry::ModuleRegister);
                    }
                }
                Item::Directive(_) | Item::Empty(_) => {}
            }
        }
        ModuleNames { table, variables }
    }
}

/// The scopes around the place that is being looked at.
pub(crate) struct Scopes<'m, 'a> {
    module: &'m ModuleNames<'a>,
    open: Vec<Table<'a>>,
    declarations: u32,
    variables: u32,
}

impl<'m, 'a> Scopes<'m, 'a> {
    /// Only the module's names.
    pub fn new(module: &'m ModuleNames<'a>) -> Scopes<'m, 'a> {
        Scopes {
            module,
            open: Vec::new(),
            declarations: 0,
            variables: module.variables,
        }
    }

    /// Opens a scope that knows its labels from the start.
    pub fn enter(&mut self, labels: impl IntoIterator<Item = &'a str>) {
        let mut table = Table::default();
        for label in labels {
            table.declare(label, None, PLAIN_SYMBOL);
        }
        self.open.push(table);
    }

    /// Closes the innermost scope.
    pub fn leave(&mut self) {
        self.open.pop();
    }

    /// Declares registers; the answer is the type's name where it is no register type.
    pub fn declare_registers(&mut self, decl: &RegDecl<'a>) -> Result<(), &'a str> {
        let width = register_width(decl.ty).ok_or(decl.ty)?;
        for Series { name, count } in &decl.names {
            self.declare_register(name.text, *count, width, decl.vector);
        }
        Ok(())
    }

    /// Declares one name or series of registers and returns its number.
    pub fn declare_register(
        &mut self,
        name: &'a str,
        count: Option<u32>,
        width: Width,
        lanes: u8,
    ) -> u32 {
        let decl = self.declarations;
        self.declarations += 1;
        if let Some(table) = self.open.last_mut() {
            table.declare(name, count, Entry::Register { decl, width, lanes });
        }
        decl
    }

    /// Declares a variable or parameter.
    pub fn declare_variable(&mut self, var: &VarDecl<'a>, kernel_parameter: bool) {
        let entry = Entry::Symbol {
            kernel_parameter,
            variable: Variable::of(var, self.variables),
        };
        self.variables += 1;
        if let Some(table) = self.open.last_mut() {
            for name in &var.names {
                table.declare(name.name.text, name.count, entry);
            }
        }
    }

    /// What `name` means here.
    pub fn find(&self, name: &str) -> Meaning {
        for (depth, table) in self.open.iter().enumerate().rev() {
            if let Some((entry, index)) = table.find(name) {
                return meaning(entry, index, depth > 0);
            }
        }
        if let Some(special) = special_register(name) {
            return Meaning::Special(special);
        }
        match self.module.table.find(name) {
            Some((entry, index)) => meaning(entry, index, false),
            None if name == "WARP_SZ" => Meaning::Constant,
            None => Meaning::Unknown,
        }
    }
}

fn meaning(entry: Entry, index: u32, nested: bool) -> Meaning {
    match entry {
        Entry::Register { decl, width, lanes } => Meaning::Register(Declared {
            decl,
            index,
            width,
            lanes,
        }),
        Entry::ModuleRegister => Meaning::ModuleRegister,
        Entry::Symbol {
            kernel_parameter,
            variable,
        } => Meaning::Symbol {
            nested,
            kernel_parameter,
            variable,
        },
    }
}

/// The width of a register of this type.
pub(crate) fn register_width(ty: &str) -> Option<Width> {
    Some(match ty {
        "pred" => Width::B1,
        "b8" | "u8" | "s8" | "b16" | "u16" | "s16" | "f16" | "bf16" => Width::B16,
        "b32" | "u32" | "s32" | "f32" | "f16x2" | "bf16x2" | "tf32" => Width::B32,
        "b64" | "u64" | "s64" | "f64" | "f32x2" => Width::B64,
        "b128" => Width::B128,
        _ => return None,
    })
}

/// Labels by scope, so that inline assembly may repeat them.
#[derive(Default)]
pub(crate) struct Labels<'a> {
    /// The scope around each scope.
    pub parents: Vec<Option<u32>>,
    names: FxHashSet<(u32, &'a str)>,
}

impl<'a> Labels<'a> {
    /// Adds a scope and returns its number.
    pub fn scope(&mut self, parent: Option<u32>) -> u32 {
        self.parents.push(parent);
        self.parents.len() as u32 - 1
    }

    /// Adds a label; the answer is false where the scope has it already.
    pub fn declare(&mut self, scope: u32, name: &'a str) -> bool {
        self.names.insert((scope, name))
    }

    /// The scope that declares the label `name` as seen from `scope`.
    pub fn home(&self, scope: u32, name: &str) -> Option<u32> {
        let mut scope = Some(scope);
        while let Some(at) = scope {
            if self.names.contains(&(at, name)) {
                return Some(at);
            }
            scope = self.parents[at as usize];
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table<'static> {
        let mut table = Table::default();
        let entry = Entry::Register {
            decl: 0,
            width: Width::B32,
            lanes: 1,
        };
        table.declare("%r", Some(100), entry);
        table.declare("%x1", Some(4), entry);
        table.declare("%lone", None, entry);
        table
    }

    #[test]
    fn a_series_has_exactly_its_members() {
        let table = table();
        let index = |name| table.find(name).map(|(_, index)| index);
        assert_eq!(index("%r0"), Some(0));
        assert_eq!(index("%r99"), Some(99));
        assert_eq!(index("%r100"), None);
        assert_eq!(index("%r01"), None, "another name than %r1");
        assert_eq!(index("%r"), None);
        assert_eq!(index("%x13"), Some(3), "the stem ends in a digit");
        assert_eq!(index("%lone"), Some(0));
        assert_eq!(index("%lone0"), None);
    }

    #[test]
    fn labels_are_found_outwards() {
        let mut labels = Labels::default();
        let outer = labels.scope(None);
        let inner = labels.scope(Some(outer));
        let other = labels.scope(Some(outer));
        assert!(labels.declare(outer, "a"));
        assert!(labels.declare(inner, "b"));
        assert!(!labels.declare(inner, "b"));
        assert_eq!(labels.home(inner, "a"), Some(outer));
        assert_eq!(labels.home(inner, "b"), Some(inner));
        assert_eq!(labels.home(other, "b"), None);
    }
}
