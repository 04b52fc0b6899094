//! `warpalloc stats` on machine code: what each function of a cubin, or of all the cubins in a
//! library, is given and what it needs.

mod json;
mod source;
mod table;

use anyhow::{anyhow, bail};
use clap::Args;
use object::read::ReadRef;
use rayon::prelude::*;
use warpalloc::target::occupancy::{Launch, Occupancy, occupancy};
use warpalloc::target::sm::Sm;
use warpalloc_sass::isa::File;
use warpalloc_sass::object::{
    Arch, Container, Cubin, Format, Function, Image, ImageKind, LineTable, ObjectError, demangle,
};
use warpalloc_sass::{Measures, Peak, measure};

pub use source::{CodeFile, Source};

/// Which functions to show, and how they are launched.
#[derive(Args, Debug)]
pub struct CodeArgs {
    /// Of machine code, only that for this architecture: 90, sm_90 or sm_90a; may be repeated.
    /// Of PTX, the machine it is measured for, where that is not what the file says
    #[arg(long, value_name = "SM")]
    sm: Vec<Arch>,
    /// Only functions with this in their name, mangled or not; may be repeated
    #[arg(long, value_name = "NAME")]
    kernel: Vec<String>,
    /// Threads per block, for the occupancy of kernels [default: what the kernel requires or at
    /// most takes, where it says so]
    #[arg(long, value_name = "THREADS", value_parser = clap::value_parser!(u32).range(1..=1024))]
    block: Option<u32>,
}

impl CodeArgs {
    /// The machine that PTX is measured for.
    pub fn text_arch(&self) -> Result<Option<Arch>, crate::UsageError> {
        match &self.sm[..] {
            [] => Ok(None),
            [arch] => Ok(Some(*arch)),
            _ => Err(crate::UsageError("PTX is measured for one --sm".to_owned())),
        }
    }

    /// The block size that was given.
    pub fn block(&self) -> Option<u32> {
        self.block
    }

    /// Whether kernels are left out by name or by architecture.
    pub fn selects(&self) -> bool {
        !self.sm.is_empty() || !self.kernel.is_empty()
    }

    /// Threads of the blocks of a function: what was given, or what the cubin says.
    pub fn block_threads(&self, function: &Function) -> Option<u32> {
        self.block.or_else(|| function.block_threads())
    }

    /// A flag that was given, for those who have no use for any.
    pub fn given(&self) -> Option<&'static str> {
        let flags = [
            ("--kernel", !self.kernel.is_empty()),
            ("--block", self.block.is_some()),
        ];
        flags
            .iter()
            .find(|(_, given)| *given)
            .map(|(flag, _)| *flag)
    }

    pub fn wants_arch(&self, arch: Arch) -> bool {
        let is_wanted = |wanted: &Arch| {
            wanted.sm == arch.sm && (wanted.variant.is_none() || wanted.variant == arch.variant)
        };
        self.sm.is_empty() || self.sm.iter().any(is_wanted)
    }

    pub fn wants_name(&self, name: &str, demangled: Option<&str>) -> bool {
        let is_in = |wanted: &String| {
            name.contains(wanted.as_str()) || demangled.is_some_and(|d| d.contains(wanted.as_str()))
        };
        self.kernel.is_empty() || self.kernel.iter().any(is_in)
    }
}

/// What was found in a file.
pub struct Report {
    file: String,
    format: Format,
    images: Vec<ImageReport>,
}

/// One image that was asked for, and the functions in it.
struct ImageReport {
    image: Image,
    functions: Result<Vec<FunctionReport>, ObjectError>,
}

/// One function.
struct FunctionReport {
    name: String,
    demangled: Option<String>,
    is_entry: bool,
    code_bytes: usize,
    registers: Option<u32>,
    frame_bytes: Option<u32>,
    stack_bytes: Option<u32>,
    shared_bytes: u64,
    /// Of constant bank 0, the parameters included.
    constant_bytes: Option<u64>,
    /// Names of device functions within its code.
    inner: Vec<String>,
    block_threads: Option<u32>,
    /// At that block size.
    occupancy: Option<Occupancy>,
    /// What its code needs, or which instruction was refused.
    measures: Result<Measured, Refused>,
}

struct Measured {
    measures: Measures,
    /// Lines of the peaks, in the same order.
    places: Vec<Place>,
}

/// Where an instruction comes from.
#[derive(Default)]
struct Place {
    source: Option<(String, u32)>,
    ptx_line: Option<u32>,
}

struct Refused {
    offset: Option<usize>,
    reason: String,
}

impl Report {
    /// The file.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The report as JSON (docs/json.md), without its version.
    pub fn as_json(&self) -> serde_json::Value {
        json::render(self)
    }

    /// The report as a table.
    pub fn as_text(&self) -> String {
        table::render(self)
    }
}

impl Measured {
    fn of(&self, file: File) -> Option<(&Peak, &Place)> {
        let mut both = self.measures.peaks.iter().zip(&self.places);
        both.find(|(peak, _)| peak.file == file)
    }
}

/// The images of a file that were asked for, and what was made of each.
pub struct Images<T> {
    pub format: Format,
    pub images: Vec<(Image, Result<T, ObjectError>)>,
}

/// A file with device code, and none of what was asked for.
#[derive(Debug)]
pub struct NothingWanted(String);

impl std::fmt::Display for NothingWanted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NothingWanted {}

/// Whether a file holds images of a kind.
pub fn has(file: &CodeFile, kind: ImageKind) -> anyhow::Result<bool> {
    let context = |error: ObjectError| anyhow!(error).context(file.name().to_owned());
    let is_of_kind = |images: &[Image]| images.iter().any(|image| image.kind == kind);
    match file {
        CodeFile::OnDisk { cache, .. } => {
            Container::read(cache).map(|container| is_of_kind(container.images()))
        }
        CodeFile::InMemory { bytes, .. } => {
            Container::read(bytes.as_slice()).map(|container| is_of_kind(container.images()))
        }
    }
    .map_err(context)
}

/// Makes something of each image of `kind` in a file that was asked for, on all cores.
pub fn each_image<T: Send>(
    file: &CodeFile,
    args: &CodeArgs,
    kind: ImageKind,
    work: impl Fn(&Image, &[u8]) -> Result<T, ObjectError> + Sync,
) -> anyhow::Result<Images<T>> {
    match file {
        CodeFile::OnDisk { name, cache } => each_image_of(name, cache, args, kind, work),
        CodeFile::InMemory { name, bytes } => {
            each_image_of(name, bytes.as_slice(), args, kind, work)
        }
    }
}

fn each_image_of<'d, T: Send, R: ReadRef<'d>>(
    name: &str,
    data: R,
    args: &CodeArgs,
    kind: ImageKind,
    work: impl Fn(&Image, &[u8]) -> Result<T, ObjectError> + Sync,
) -> anyhow::Result<Images<T>> {
    let context = |error: ObjectError| anyhow!(error).context(name.to_owned());
    let container = Container::read(data).map_err(context)?;
    let of_kind = container.images().iter().filter(|image| image.kind == kind);
    // PTX is measured for the machine that was asked for, whatever it was written for.
    let is_wanted = |image: &&Image| kind == ImageKind::Ptx || args.wants_arch(image.arch);
    let wanted: Vec<&Image> = of_kind.filter(is_wanted).collect();
    if wanted.is_empty() {
        let told = format!("{name}: {}", nothing_wanted(container.images(), args));
        return Err(NothingWanted(told).into());
    }
    // Files are read by one thread, decompressed and decoded by all.
    let packed: Result<Vec<_>, _> = wanted.iter().map(|image| container.bytes(image)).collect();
    let packed = packed.map_err(context)?;
    let images = wanted.into_par_iter().zip(packed);
    let images: Vec<_> = images
        .map(|(image, packed)| (image.clone(), work(image, packed)))
        .collect();
    if let Some((_, Err(error))) = images.first()
        && images.iter().all(|(_, made)| made.is_err())
    {
        return Err(context(error.clone()));
    }
    Ok(Images {
        format: container.format(),
        images,
    })
}

/// Looks at what was asked for of a file.
pub fn report(file: &CodeFile, args: &CodeArgs) -> anyhow::Result<Report> {
    let name = file.name();
    let found = each_image(file, args, ImageKind::Cubin, |image, packed| {
        functions(image, packed, args)
    })?;
    let images = found.images.into_iter();
    let report = Report {
        file: name.to_owned(),
        format: found.format,
        images: images
            .map(|(image, functions)| ImageReport { image, functions })
            .collect(),
    };
    let is_empty = |image: &ImageReport| image.functions.as_ref().is_ok_and(Vec::is_empty);
    if !args.kernel.is_empty() && report.images.iter().all(is_empty) {
        bail!(
            "{name}: no function has {} in its name",
            args.kernel.join(" or ")
        );
    }
    Ok(report)
}

/// Why there is no image to look at, and what there would be.
fn nothing_wanted(images: &[Image], args: &CodeArgs) -> String {
    let list = |kind| {
        let of_kind = images.iter().filter(|image| image.kind == kind);
        let mut found: Vec<Arch> = of_kind.map(|image| image.arch).collect();
        found.sort();
        found.dedup();
        found
            .iter()
            .map(Arch::to_string)
            .collect::<Vec<_>>()
            .join(", ")
    };
    let (cubins, texts) = (list(ImageKind::Cubin), list(ImageKind::Ptx));
    if !cubins.is_empty() {
        let wanted: Vec<_> = args.sm.iter().map(Arch::to_string).collect();
        return format!("no cubin for {}; there are {cubins}", wanted.join(" or "));
    }
    match texts.is_empty() {
        true => "no cubin and no PTX".to_owned(),
        false => format!("no cubin, only PTX for {texts}: `cuobjdump -xptx all` extracts it"),
    }
}

fn functions(
    image: &Image,
    packed: &[u8],
    args: &CodeArgs,
) -> Result<Vec<FunctionReport>, ObjectError> {
    let content = image.unpack(packed)?;
    let cubin = Cubin::read(&content)?;
    // Lines only help to read the rest: a table that can't be read is none.
    let source = cubin.source_lines().unwrap_or_default();
    let ptx = cubin.ptx_lines().unwrap_or_default();
    let reports = cubin.functions.par_iter().filter_map(|function| {
        let demangled = demangle(function.name);
        let is_wanted = args.wants_name(function.name, demangled.as_deref());
        is_wanted.then(|| {
            let measures = measured(&cubin, function, &source, &ptx);
            function_report(&cubin, function, demangled, measures, args)
        })
    });
    Ok(reports.collect())
}

fn measured(
    cubin: &Cubin,
    function: &Function,
    source: &LineTable,
    ptx: &LineTable,
) -> Result<Measured, Refused> {
    let measures = measure(cubin, function).map_err(|error| Refused {
        offset: error.offset(),
        reason: error.to_string(),
    })?;
    let place = |peak: &Peak| {
        let Some(offset) = peak.offset else {
            return Place::default();
        };
        let find = |table: &LineTable| {
            let found = table.find(function.section, offset as u64)?;
            Some((found.file.to_owned(), found.line))
        };
        Place {
            source: find(source),
            ptx_line: find(ptx).map(|(_, line)| line),
        }
    };
    let places = measures.peaks.iter().map(place).collect();
    Ok(Measured { measures, places })
}

/// What is resident of a kernel, where its block size is known.
pub fn occupancy_of(arch: Arch, function: &Function, args: &CodeArgs) -> Option<Occupancy> {
    let launch = Launch {
        registers_per_thread: function.registers?,
        block_threads: args.block_threads(function)?,
        shared_bytes: u32::try_from(function.shared_bytes).ok()?,
    };
    // An architecture the table of limits leaves out has no occupancy to tell.
    let sm: Sm = arch.sm.to_string().parse().ok()?;
    occupancy(sm, &launch).ok().filter(|_| function.is_entry)
}

fn function_report(
    cubin: &Cubin,
    function: &Function,
    demangled: Option<String>,
    measures: Result<Measured, Refused>,
    args: &CodeArgs,
) -> FunctionReport {
    let bank = function.constants.iter().find(|bank| bank.bank == 0);
    FunctionReport {
        name: function.name.to_owned(),
        demangled,
        is_entry: function.is_entry,
        code_bytes: function.code.len(),
        registers: function.registers,
        frame_bytes: function.frame_bytes,
        stack_bytes: function.stack_bytes,
        shared_bytes: function.shared_bytes,
        constant_bytes: bank.map(|bank| bank.size),
        inner: function.inner.iter().map(|f| f.name.to_owned()).collect(),
        block_threads: args.block_threads(function).filter(|_| function.is_entry),
        occupancy: occupancy_of(cubin.arch, function, args),
        measures,
    }
}
