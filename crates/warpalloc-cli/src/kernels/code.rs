//! Kernels in machine code.

use rayon::prelude::*;
use warpalloc::target::occupancy::Occupancy;
use warpalloc_ptx::SourceLine;
use warpalloc_sass::isa::File;
use warpalloc_sass::measure;
use warpalloc_sass::object::{Cubin, Function, Image, ImageKind, ObjectError, demangle};

use super::{Details, Figure, Figures, Kernel, Origin, Reader, text};
use crate::output;
use crate::stats_cubin::{self, CodeFile};

/// The kernels of all cubins that are asked for; where a file holds PTX only, of that.
pub fn kernels(reader: &Reader, file: &CodeFile) -> anyhow::Result<Vec<Kernel>> {
    let has_cubins = stats_cubin::has(file, ImageKind::Cubin)?;
    let kind = match has_cubins {
        true => ImageKind::Cubin,
        false => ImageKind::Ptx,
    };
    let name = file.name();
    let images = stats_cubin::each_image(file, reader.args, kind, |image, packed| {
        let content = image.unpack(packed)?;
        let file = label(name, image);
        Ok(match kind {
            ImageKind::Ptx => Content::Text(file, content.into_owned()),
            _ => Content::Kernels(of_cubin(reader, &file, &content, Origin::Cubin)?),
        })
    })?;
    let mut found = Vec::new();
    for (image, content) in images.images {
        match content {
            Ok(Content::Kernels(kernels)) => found.extend(kernels),
            Ok(Content::Text(file, bytes)) => {
                // Texts in fatbins end in zeros.
                let text = String::from_utf8_lossy(&bytes);
                found.extend(text::kernels(reader, &file, text.trim_end_matches('\0'))?);
            }
            Err(error) => {
                output::warning(&format!("{}: not read: {error}", label(name, &image)));
            }
        }
    }
    Ok(found)
}

enum Content {
    Kernels(Vec<Kernel>),
    Text(String, Vec<u8>),
}

fn label(file: &str, image: &Image) -> String {
    match &image.origin.member {
        Some(member) => format!("{file}({member})"),
        None => file.to_owned(),
    }
}

/// The kernels of a cubin that are asked for.
pub fn of_cubin(
    reader: &Reader,
    file: &str,
    content: &[u8],
    origin: Origin,
) -> Result<Vec<Kernel>, ObjectError> {
    let cubin = Cubin::read(content)?;
    // Lines only help to read the rest: a table that can't be read is none.
    let lines = cubin.source_lines().unwrap_or_default();
    let entries = cubin.functions.par_iter().filter(|f| f.is_entry);
    let kernels = entries.filter_map(|function| {
        let demangled = demangle(function.name);
        let is_wanted = reader.args.wants_name(function.name, demangled.as_deref());
        let source = || {
            let line = lines.find(function.section, 0)?;
            Some(SourceLine {
                file: line.file.to_owned(),
                line: line.line,
            })
        };
        is_wanted.then(|| Kernel {
            name: demangled.unwrap_or_else(|| function.name.to_owned()),
            symbol: function.name.to_owned(),
            arch: cubin.arch.to_string(),
            file: file.to_owned(),
            line: None,
            source: source(),
            origin,
            block: reader.args.block_threads(function),
            figures: Ok(figures(reader, &cubin, function)),
            details: details(reader, &cubin, function),
        })
    });
    Ok(kernels.collect())
}

fn figures(reader: &Reader, cubin: &Cubin, function: &Function) -> Figures {
    let mut figures = Figures::default();
    figures.set(Figure::Registers, function.registers);
    figures.set(Figure::FrameBytes, function.stack_bytes);
    figures.set(Figure::SharedBytes, Some(function.shared_bytes));
    let occupancy: Option<Occupancy> = stats_cubin::occupancy_of(cubin.arch, function, reader.args);
    figures.set(Figure::Warps, occupancy.map(|o| o.warps));
    figures.set(Figure::LocalAccesses, local_accesses(cubin, function));
    figures
}

/// Loads and stores of local memory. Code without a stack has none, and need not be decoded;
/// of code that can't be decoded they are not known.
fn local_accesses(cubin: &Cubin, function: &Function) -> Option<u64> {
    if function.stack_bytes == Some(0) {
        return Some(0);
    }
    let measures = measure(cubin, function).ok()?;
    let accesses = measures.local.iter().map(|l| l.loads + l.stores);
    Some(accesses.sum::<usize>() as u64)
}

/// What the code says where it can be decoded.
fn details(reader: &Reader, cubin: &Cubin, function: &Function) -> Option<Details> {
    if !reader.details {
        return None;
    }
    let measures = measure(cubin, function).ok()?;
    let lines = cubin.source_lines().unwrap_or_default();
    let peak = measures.peak(File::R).and_then(|peak| {
        let offset = peak.offset?;
        let line = lines.find(function.section, offset as u64);
        let line = line.map(|line| format!(", {}:{}", line.file, line.line));
        let place = format!(
            "{offset:#06x} {}{}",
            peak.mnemonic.unwrap_or_default(),
            line.unwrap_or_default()
        );
        Some((peak.registers as usize, place))
    });
    Some(Details {
        text: None,
        instructions: measures.instructions,
        peak,
    })
}
