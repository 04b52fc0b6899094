//! The file that holds the figures: read with the lines of its tables, written so that what a
//! person added stays.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use anyhow::{Context, anyhow, bail};
use toml_edit::{ArrayOfTables, Document, DocumentMut, Item, Table, TableLike, value};
use warpalloc_ptx::diag::Lines;

use super::tolerance::{Tolerance, Tolerances, known_figures};
use crate::kernels::{Figure, Figures, Key, Keyed, Origin};

/// The version of the format.
const SCHEMA: i64 = 1;

const START: &str = "\
# What each kernel takes. `warpalloc check FILES` fails where one takes more;
# `warpalloc check FILES --update` writes the figures anew and keeps comments and tolerances.
schema = 1

# By how much a figure may get worse: a count, or a share such as \"5%\".
# A kernel's own table may hold the same: tolerance.registers = 4
[tolerance]
registers = 0
spill_bytes = 0

# The most that a kernel may take that has no table yet.
[new]
spill_bytes = 0
";

/// The figures of kernels, and how they are held to them.
pub struct Baseline {
    /// The name of the file.
    pub name: String,
    /// The ptxas it was made with.
    pub ptxas: Option<String>,
    pub tolerance: Tolerances,
    /// The most that new kernels may take.
    pub limits: Figures,
    pub entries: Vec<Entry>,
    /// Where in `entries` the table of a kernel is.
    by_key: BTreeMap<Key, usize>,
    document: DocumentMut,
}

/// The table of a kernel.
#[derive(Debug)]
pub struct Entry {
    pub key: Key,
    pub origin: Option<Origin>,
    pub figures: Figures,
    pub tolerance: Tolerances,
    /// The line of its heading.
    pub line: u32,
}

impl Baseline {
    /// One without kernels.
    pub fn new() -> Baseline {
        Baseline {
            name: String::new(),
            ptxas: None,
            tolerance: Tolerances::default(),
            limits: Figures::default(),
            entries: Vec::new(),
            by_key: BTreeMap::new(),
            document: START.parse().unwrap_or_default(),
        }
    }

    /// Reads a file; `None` where there is none.
    pub fn read(path: &Path) -> anyhow::Result<Option<Baseline>> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", path.display()));
            }
        };
        Baseline::parse(path, &text).map(Some)
    }

    pub fn parse(path: &Path, text: &str) -> anyhow::Result<Baseline> {
        let reader = Text {
            name: path.display().to_string(),
            lines: Lines::of(text),
        };
        let document = Document::parse(text).map_err(|error| {
            anyhow!(crate::UsageError(format!(
                "{}: {}",
                reader.at(error.span()),
                error.message()
            )))
        })?;
        let root = document.as_table();
        let mut entries = Vec::new();
        let (mut ptxas, mut tolerance, mut limits) =
            (None, Tolerances::default(), Figures::default());
        let mut schema = None;
        for (key, item) in root.iter() {
            match key {
                "schema" => schema = item.as_integer(),
                "ptxas" => ptxas = Some(reader.text(key, item)?),
                "tolerance" => tolerance = reader.tolerances(item)?,
                "new" => limits = reader.limits(item)?,
                "kernel" => {
                    let tables = item
                        .as_array_of_tables()
                        .ok_or_else(|| reader.wrong(item, "kernels are tables [[kernel]]"))?;
                    for table in tables {
                        entries.push(reader.entry(table)?);
                    }
                }
                _ => {
                    return Err(reader.unknown(item, key, "schema, ptxas, tolerance, new, kernel"));
                }
            }
        }
        match schema {
            Some(SCHEMA) => {}
            Some(other) => bail!(crate::UsageError(format!(
                "{}: schema {other} is not known to this warpalloc, which reads {SCHEMA}",
                reader.name
            ))),
            None => bail!(crate::UsageError(format!(
                "{}: `schema = {SCHEMA}` is missing: is it a baseline?",
                reader.name
            ))),
        }
        reader.refuse_doubles(&entries)?;
        Ok(Baseline {
            name: reader.name,
            ptxas,
            tolerance,
            limits,
            by_key: (0..entries.len())
                .map(|at| (entries[at].key.clone(), at))
                .collect(),
            entries,
            document: document.into_mut(),
        })
    }

    /// The table that a kernel is held to: its own, or that of all kernels of its name.
    pub fn entry(&self, key: &Key) -> Option<&Entry> {
        let own = self.by_key.get(key);
        let found = own.or_else(|| self.by_key.get(&key.without_file()));
        found.map(|at| &self.entries[*at])
    }

    /// The text with new figures: tables sorted, comments and tolerances kept.
    pub fn updated(
        &self,
        kernels: &[Keyed],
        only_better: bool,
        is_partial: bool,
        ptxas: Option<&str>,
    ) -> anyhow::Result<String> {
        let mut document = self.document.clone();
        if let Some(release) = ptxas {
            document["ptxas"] = value(release);
        }
        let old = match document.remove("kernel") {
            Some(Item::ArrayOfTables(tables)) => tables.into_iter().collect(),
            _ => Vec::new(),
        };
        let mut old: BTreeMap<Key, Table> = self
            .entries
            .iter()
            .map(|entry| entry.key.clone())
            .zip(old)
            .collect();
        let mut tables: Vec<(Key, Table)> = Vec::new();
        for kernel in kernels {
            let mine = old.remove(&kernel.key);
            let is_known = mine.is_some();
            let mut table = mine.unwrap_or_default();
            write(&mut table, kernel, only_better && is_known);
            tables.push((kernel.key.clone(), table));
        }
        if is_partial {
            tables.extend(old);
        }
        tables.sort_by(|a, b| a.0.cmp(&b.0));
        let mut array = ArrayOfTables::new();
        for (_, mut table) in tables {
            // Printed in the order of the array.
            table.set_position(None);
            array.push(table);
        }
        document.insert("kernel", Item::ArrayOfTables(array));
        Ok(document.to_string())
    }
}

/// Writes the figures of a kernel into its table.
fn write(table: &mut Table, kernel: &Keyed, only_better: bool) {
    let Ok(figures) = &kernel.kernel.figures else {
        return;
    };
    put(table, "name", kernel.key.name.as_str().into());
    put(table, "arch", kernel.key.arch.as_str().into());
    if let Some(file) = &kernel.key.file {
        put(table, "file", file.as_str().into());
    }
    put(table, "from", kernel.kernel.origin.name().into());
    for figure in Figure::ALL {
        let was = table.get(figure.name()).and_then(Item::as_integer);
        let was = was.and_then(|was| u64::try_from(was).ok());
        match (figures.get(figure), was) {
            (Some(is), Some(was)) if only_better && figure.worse_by(was, is) >= 0 => {}
            (Some(is), _) => put(table, figure.name(), is.cast_signed().into()),
            (None, _) if only_better => {}
            (None, _) => {
                table.remove(figure.name());
            }
        }
    }
    match kernel.kernel.block {
        Some(block) => put(table, "block", i64::from(block).into()),
        None => {
            table.remove("block");
        }
    }
}

/// Sets a value and keeps the comment behind it.
fn put(table: &mut Table, key: &str, new: toml_edit::Value) {
    match table.get_mut(key).and_then(Item::as_value_mut) {
        Some(old) => {
            let decor = old.decor().clone();
            *old = new;
            *old.decor_mut() = decor;
        }
        None => {
            table.insert(key, Item::Value(new));
        }
    }
}

/// A baseline being read; errors name the place.
struct Text<'t> {
    name: String,
    lines: Lines<'t>,
}

impl Text<'_> {
    fn at(&self, span: Option<Range<usize>>) -> String {
        match span {
            Some(span) => {
                let offset = u32::try_from(span.start).unwrap_or(u32::MAX);
                let (line, column) = self.lines.line_and_column(offset);
                format!("{}:{line}:{column}", self.name)
            }
            None => self.name.clone(),
        }
    }

    fn wrong(&self, item: &Item, why: &str) -> anyhow::Error {
        anyhow!(crate::UsageError(format!(
            "{}: {why}",
            self.at(item.span())
        )))
    }

    fn unknown(&self, item: &Item, key: &str, known: &str) -> anyhow::Error {
        self.wrong(
            item,
            &format!("`{key}` is not known here; there are {known}"),
        )
    }

    fn text(&self, key: &str, item: &Item) -> anyhow::Result<String> {
        let text = item.as_str().map(str::to_owned);
        text.ok_or_else(|| self.wrong(item, &format!("`{key}` is a text")))
    }

    fn count(&self, key: &str, item: &Item) -> anyhow::Result<u64> {
        let count = item
            .as_integer()
            .and_then(|count| u64::try_from(count).ok());
        count.ok_or_else(|| self.wrong(item, &format!("`{key}` is a count")))
    }

    fn figure(&self, key: &str, item: &Item) -> anyhow::Result<Figure> {
        let unknown = || self.wrong(item, &format!("`{key}`: {}", known_figures()));
        Figure::named(key).ok_or_else(unknown)
    }

    fn table<'i>(&self, item: &'i Item) -> anyhow::Result<&'i dyn TableLike> {
        item.as_table_like()
            .ok_or_else(|| self.wrong(item, "a table of figures is wanted here"))
    }

    fn tolerances(&self, item: &Item) -> anyhow::Result<Tolerances> {
        let mut tolerances = Tolerances::default();
        for (key, item) in self.table(item)?.iter() {
            let figure = self.figure(key, item)?;
            let text = item.as_str().map(str::to_owned);
            let text = text.or_else(|| item.as_integer().map(|count| count.to_string()));
            let tolerance = text.and_then(|text| Tolerance::parse(&text));
            let wrong = || {
                let why = format!("`{key}` is a count such as 2, or a share such as \"5%\"");
                self.wrong(item, &why)
            };
            tolerances.set(figure, tolerance.ok_or_else(wrong)?);
        }
        Ok(tolerances)
    }

    fn limits(&self, item: &Item) -> anyhow::Result<Figures> {
        let mut limits = Figures::default();
        for (key, item) in self.table(item)?.iter() {
            let figure = self.figure(key, item)?;
            limits.set(figure, Some(self.count(key, item)?));
        }
        Ok(limits)
    }

    fn entry(&self, table: &Table) -> anyhow::Result<Entry> {
        let offset = table.span().map_or(0, |span| span.start);
        let mut entry = Entry {
            key: Key::default(),
            origin: None,
            figures: Figures::default(),
            tolerance: Tolerances::default(),
            line: self.lines.line(u32::try_from(offset).unwrap_or(0)) as u32,
        };
        for (key, item) in table.iter() {
            match key {
                "name" => entry.key.name = self.text(key, item)?,
                "arch" => entry.key.arch = self.text(key, item)?,
                "file" => entry.key.file = Some(self.text(key, item)?),
                "from" => {
                    let name = self.text(key, item)?;
                    let wrong = || self.wrong(item, "figures are from warpalloc, ptxas or cubin");
                    entry.origin = Some(Origin::named(&name).ok_or_else(wrong)?);
                }
                "block" => {
                    self.count(key, item)?;
                }
                "tolerance" => entry.tolerance = self.tolerances(item)?,
                _ => {
                    let figure = self.figure(key, item)?;
                    entry.figures.set(figure, Some(self.count(key, item)?));
                }
            }
        }
        if entry.key.name.is_empty() || entry.key.arch.is_empty() {
            bail!(crate::UsageError(format!(
                "{}: a kernel has a `name` and an `arch`",
                self.at(table.span())
            )));
        }
        Ok(entry)
    }

    fn refuse_doubles(&self, entries: &[Entry]) -> anyhow::Result<()> {
        let mut seen = std::collections::BTreeMap::new();
        for entry in entries {
            if let Some(first) = seen.insert(&entry.key, entry.line) {
                bail!(crate::UsageError(format!(
                    "{}:{}: the table of `{}` for {} stands in line {first} already",
                    self.name, entry.line, entry.key.name, entry.key.arch
                )));
            }
        }
        Ok(())
    }
}
