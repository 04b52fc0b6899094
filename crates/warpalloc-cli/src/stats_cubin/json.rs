//! The report as JSON. Fields are added without notice; `schema` counts up when one changes its
//! meaning or goes away.

use serde_json::{Value, json};
use warpalloc_sass::object::{Compression, Format, Image};

use super::{FunctionReport, ImageReport, Measured, Place, Report};
use crate::occupancy::answer_json;

pub fn render(report: &Report) -> Value {
    json!({
        "file": report.file,
        "format": match report.format {
            Format::Cubin => "cubin",
            Format::Fatbin => "fatbin",
            Format::Host => "elf",
            Format::Archive => "archive",
            _ => "other",
        },
        "images": report.images.iter().map(image).collect::<Vec<_>>(),
    })
}

fn image(report: &ImageReport) -> Value {
    let Image {
        arch,
        origin,
        range,
        compression,
        size,
        ..
    } = &report.image;
    let mut value = json!({
        "arch": arch.to_string(),
        "member": origin.member,
        "section": origin.section,
        "index": origin.index,
        "offset": range.start,
        "bytes": size,
        "compression": match compression {
            Compression::Lz4 => Some("lz4"),
            Compression::Zstd => Some("zstd"),
            _ => None,
        },
    });
    match &report.functions {
        Ok(functions) => value["functions"] = functions.iter().map(function).collect(),
        Err(error) => value["error"] = error.to_string().into(),
    }
    value
}

fn function(report: &FunctionReport) -> Value {
    let mut value = json!({
        "name": report.name,
        "demangled": report.demangled,
        "entry": report.is_entry,
        "code_bytes": report.code_bytes,
        "registers": report.registers,
        "frame_bytes": report.frame_bytes,
        "stack_bytes": report.stack_bytes,
        "shared_bytes": report.shared_bytes,
        "constant_bytes": report.constant_bytes,
        "inner": report.inner,
        "block_threads": report.block_threads,
        "occupancy": report.occupancy.as_ref().map(answer_json),
    });
    match &report.measures {
        Ok(measured) => {
            let measures = &measured.measures;
            value["instructions"] = measures.instructions.into();
            value["loop_depth"] = measures.loop_depth.into();
            value["peaks"] = peaks(measured);
            let access = |l: &warpalloc_sass::LocalAccesses| json!({ "depth": l.depth, "loads": l.loads, "stores": l.stores });
            value["local"] = measures.local.iter().map(access).collect();
        }
        Err(refused) => {
            value["refused"] = json!({ "offset": refused.offset, "reason": refused.reason });
        }
    }
    value
}

fn peaks(measured: &Measured) -> Value {
    let both = measured.measures.peaks.iter().zip(&measured.places);
    let peak = |(peak, place): (&warpalloc_sass::Peak, &Place)| {
        let source = place.source.as_ref();
        json!({
            "file": peak.file.prefix(),
            "registers": peak.registers,
            "named": peak.named,
            "offset": peak.offset,
            "mnemonic": peak.mnemonic,
            "source": source.map(|(file, line)| json!({ "file": file, "line": line })),
            "ptx_line": place.ptx_line,
        })
    };
    both.map(peak).collect()
}
