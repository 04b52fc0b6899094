//! `warpalloc report`: a kernel on one page, to look at and to hand on.
//!
//! [`gather`] finds out what there is to tell; [`json`] is that as a document, which [`html`] puts
//! into a page that draws it; [`svg`] and [`text`] are smaller pictures of the same.

mod gather;
mod html;
mod json;
mod listing;
mod machine;
mod source;
mod svg;
mod text;
mod trials;

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use warpalloc::target::sm::Sm;

use crate::kernels::PtxasArgs;
use crate::{alloc, files, output};
use gather::KernelReport;

const EXAMPLES: &str = "\
Examples:
  warpalloc report gemm.ptx -o report.html         a page to open in a browser, without network
  warpalloc report gemm.ptx --kernel k --block 256 -o report.html
  warpalloc report gemm.ptx --cubin gemm.cubin -o report.html
                                                   with the machine code beside the PTX
  warpalloc report gemm.cubin -o report.html       of machine code alone
  warpalloc report gemm.ptx -o pressure.svg        a picture
  warpalloc report gemm.ptx                        the same in a terminal

Where there is a ptxas, its machine code is shown beside the PTX, and what it makes of each cap
beside what the allocators do.";

/// What to report on.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ReportArgs {
    /// The PTX file, or machine code: a cubin, fatbin, object or library; `-` for standard input
    input: PathBuf,
    /// The kernel; may be left out where there is one only
    #[arg(long, value_name = "NAME")]
    kernel: Option<String>,
    /// Machine code of the same kernel, to show beside its PTX [default: what ptxas makes, where
    /// there is one]
    #[arg(long, value_name = "FILE")]
    cubin: Option<PathBuf>,
    /// Try this cap too, besides those that reach a step of occupancy
    #[arg(long, value_name = "N", value_parser = alloc::cap)]
    maxnreg: Option<u32>,
    /// Threads per block, where the kernel does not say
    #[arg(long, value_name = "THREADS", value_parser = clap::value_parser!(u32).range(1..=1024))]
    block: Option<u32>,
    /// Bytes of dynamic shared memory per block
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    smem: u32,
    /// The machine, where it is not what the file says: 90, sm_90
    #[arg(long, value_name = "SM")]
    sm: Option<Sm>,
    /// Where sources are that line information names; may be repeated
    #[arg(long, value_name = "FOLDER")]
    source: Vec<PathBuf>,
    /// Put no source into the report
    #[arg(long, conflicts_with = "source")]
    no_source: bool,
    /// Try every allocator within every cap, however long that takes [default: what a moment allows]
    #[arg(long)]
    all: bool,
    /// How to write it [default: what the name of the output ends in, else html; text without one]
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
    /// Where to write it [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    ptxas: PtxasArgs,
}

/// How a report is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A page that needs nothing else
    Html,
    /// A picture: the pressure along the code and the occupancy
    Svg,
    /// One object, see docs/json.md
    Json,
    /// For a terminal
    Text,
}

impl Format {
    fn by_name(path: &Path) -> Format {
        let ending = path.extension().map(|ending| ending.to_ascii_lowercase());
        match ending.as_ref().and_then(|ending| ending.to_str()) {
            Some("svg") => Format::Svg,
            Some("json") => Format::Json,
            Some("txt") => Format::Text,
            _ => Format::Html,
        }
    }
}

/// Reports on a kernel.
pub fn run(args: ReportArgs) -> anyhow::Result<()> {
    let report = KernelReport::gather(&args)?;
    let by_name = || args.output.as_deref().map(Format::by_name);
    let format = args.format.or_else(by_name).unwrap_or(Format::Text);
    let written = match format {
        Format::Html => html::render(&report),
        Format::Svg => svg::render(&report),
        Format::Json => format!("{:#}\n", json::render(&report)),
        Format::Text => text::render(&report),
    };
    match &args.output {
        Some(path) => files::write(path, written),
        None => output::print(&written),
    }
}
