//! Runs nvdisasm and reads what it prints.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use warpalloc_sass::Links;
use warpalloc_sass::isa::{File, Reg, RegSet};

/// One instruction.
pub struct Row {
    pub offset: usize,
    pub text: String,
    pub defs: RegSet,
    pub uses: RegSet,
    /// Registers with any mark.
    pub live: RegSet,
}

impl Row {
    /// The mnemonic without guard and modifiers.
    pub fn mnemonic(&self) -> &str {
        let mut words = self.text.split_whitespace();
        let first = words.next().unwrap_or("");
        let opcode = match first.starts_with('@') {
            true => words.next().unwrap_or(""),
            false => first,
        };
        opcode.split(['.', ';']).next().unwrap_or("")
    }
}

/// One section.
#[derive(Default)]
pub struct Listing {
    pub name: String,
    pub rows: Vec<Row>,
    labels: HashMap<String, usize>,
}

impl Listing {
    /// Where indirect branches go, as nvdisasm has found out.
    pub fn links(&self) -> Links {
        let mut links = Links::default();
        for row in &self.rows {
            let Some((_, targets)) = row.text.split_once("BRANCH_TARGETS ") else {
                continue;
            };
            let targets = targets.split('"').next().unwrap_or("");
            let offsets = targets
                .split(',')
                .filter_map(|label| self.labels.get(label.trim()).copied())
                .collect();
            links.tables.insert(row.offset, offsets);
        }
        links
    }
}

/// The table's columns: byte in the line and register.
type Columns = Vec<(usize, Reg)>;

/// Lists functions of a cubin, given by their symbols, one section at a time.
pub fn list(
    nvdisasm: &Path,
    cubin: &Path,
    functions: &[u32],
    mut each: impl FnMut(Listing),
) -> Result<(), String> {
    let functions: Vec<_> = functions.iter().map(u32::to_string).collect();
    let mut child = Command::new(nvdisasm)
        .args(["-lrm", "narrow", "-c", "-fun", &functions.join(",")])
        .arg(cubin)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{}: {error}", nvdisasm.display()))?;
    let stdout = child.stdout.take().ok_or("no output")?;
    let mut lines = BufReader::new(stdout);
    let mut line = String::new();
    let mut listing = Listing::default();
    let mut header: Vec<String> = Vec::new();
    let mut columns = Columns::new();
    loop {
        line.clear();
        if lines
            .read_line(&mut line)
            .map_err(|error| error.to_string())?
            == 0
        {
            break;
        }
        if let Some(rest) = line.strip_prefix("//--------------------- ") {
            if !listing.rows.is_empty() {
                each(std::mem::take(&mut listing));
            }
            listing = Listing::default();
            listing.name = rest.split_whitespace().next().unwrap_or("").to_owned();
            header.clear();
            columns.clear();
            continue;
        }
        let Some(at) = line.find("// |") else {
            continue;
        };
        let (code, table) = line.split_at(at);
        let code = code.trim();
        if let Some(rest) = code.strip_prefix("/*") {
            let Some((offset, text)) = rest.split_once("*/") else {
                continue;
            };
            let Ok(offset) = usize::from_str_radix(offset, 16) else {
                continue;
            };
            listing.rows.push(row(offset, text.trim(), table, &columns));
        } else if let Some(label) = code.strip_suffix(':') {
            let next = listing.rows.last().map_or(0, |row| row.offset + 16);
            listing.labels.insert(label.to_owned(), next);
        } else if code.is_empty() && listing.rows.is_empty() {
            if table.contains('#') {
                columns = parse_columns(&header, table);
            }
            header.push(table.to_owned());
        }
    }
    if !listing.rows.is_empty() {
        each(listing);
    }
    let mut errors = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        stderr
            .read_to_string(&mut errors)
            .map_err(|error| error.to_string())?;
    }
    match child.wait().map_err(|error| error.to_string())?.success() {
        true => Ok(()),
        false => Err(errors
            .lines()
            .next()
            .unwrap_or("nvdisasm failed")
            .to_owned()),
    }
}

fn parse_columns(header: &[String], units: &str) -> Columns {
    let names = header
        .iter()
        .find(|line| line.contains("GPR") || line.contains("PRED"));
    let names: Vec<_> = names
        .map(|line| line.split('|').skip(1).map(str::trim).collect())
        .unwrap_or_default();
    let mut columns = Columns::new();
    let mut file = None;
    let mut cell = 0;
    let mut counted = false;
    for (at, byte) in units.bytes().enumerate() {
        match byte {
            b'|' => {
                file = match names.get(cell) {
                    Some(&"GPR") => Some(File::R),
                    Some(&"UGPR") => Some(File::UR),
                    Some(&"PRED") => Some(File::P),
                    Some(&"UPRED") => Some(File::UP),
                    _ => None,
                };
                cell += 1;
                counted = false;
            }
            b'#' => counted = true,
            b'0'..=b'9' if counted => {
                let above = header
                    .iter()
                    .filter_map(|line| line.as_bytes().get(at))
                    .filter(|byte| byte.is_ascii_digit());
                let number = above
                    .chain([&byte])
                    .fold(0u32, |number, digit| number * 10 + u32::from(digit - b'0'));
                if let (Some(file), Ok(index)) = (file, u8::try_from(number)) {
                    columns.push((at, Reg { file, index }));
                }
            }
            _ => {}
        }
    }
    columns
}

fn row(offset: usize, text: &str, table: &str, columns: &Columns) -> Row {
    let mut row = Row {
        offset,
        text: text.to_owned(),
        defs: RegSet::EMPTY,
        uses: RegSet::EMPTY,
        live: RegSet::EMPTY,
    };
    for &(at, reg) in columns {
        match table.as_bytes().get(at) {
            Some(b'^') => {
                row.defs.insert(reg);
            }
            Some(b'v') => {
                row.uses.insert(reg);
            }
            Some(b'x') => {
                row.defs.insert(reg);
                row.uses.insert(reg);
            }
            Some(b':') => {}
            _ => continue,
        }
        row.live.insert(reg);
    }
    row
}
