//! The images in a file, whatever kind of file it is.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use object::LittleEndian;
use object::elf::FileHeader64;
use object::read::ReadRef;
use object::read::archive::ArchiveFile;
use object::read::elf::{FileHeader, SectionHeader};

use super::cubin::{self, Arch};
use super::fatbin::{self, Compression, ImageKind};
use super::window::{Window, u16_at, u32_at};
use super::{Cubin, ObjectError};

/// Sections of host files that hold fatbins: linked device code, and what is yet to be linked.
const FATBIN_SECTIONS: [&[u8]; 2] = [b".nv_fatbin", b"__nv_relfatbin"];

/// `e_machine` of cubins.
const EM_CUDA: u16 = 190;

/// Bytes by which [`Format::detect`] tells formats apart.
const START: u64 = 20;

/// What kind of file holds the images.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// A cubin.
    Cubin,
    /// A fatbin.
    Fatbin,
    /// An object, shared library or executable of the host.
    Host,
    /// An archive of objects.
    Archive,
}

impl Format {
    /// The format of a file that starts like this; `None` for what holds no machine code,
    /// such as text. Twenty bytes are enough.
    pub fn detect(start: &[u8]) -> Option<Format> {
        if start.starts_with(b"\x7fELF") {
            return match u16_at(start, 18)? {
                EM_CUDA => Some(Format::Cubin),
                _ => Some(Format::Host),
            };
        }
        if u32_at(start, 0) == Some(fatbin::MAGIC) {
            return Some(Format::Fatbin);
        }
        let is_archive = start.starts_with(b"!<arch>\n") || start.starts_with(b"!<thin>\n");
        is_archive.then_some(Format::Archive)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::Cubin => "a cubin",
            Format::Fatbin => "a fatbin",
            Format::Host => "an ELF file of the host",
            Format::Archive => "an archive",
        })
    }
}

/// Where in a file an image was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Origin {
    /// The member of an archive.
    pub member: Option<String>,
    /// The section of a host file.
    pub section: Option<String>,
    /// Counts the images of that section, fatbin or file from zero.
    pub index: usize,
}

/// One image in a file; its bytes are read by [`Container::bytes`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Image {
    /// What it is.
    pub kind: ImageKind,
    /// The architecture it is for.
    pub arch: Arch,
    /// Where it was found.
    pub origin: Origin,
    /// Its bytes in the file, without padding.
    pub range: Range<u64>,
    /// How these bytes are packed.
    pub compression: Compression,
    /// How many bytes the image has once decompressed.
    pub size: u64,
    /// Whether the vendor's tools have scrambled it.
    pub is_obfuscated: bool,
}

impl Image {
    /// The image itself, from its bytes in the file.
    pub fn unpack<'b>(&self, packed: &'b [u8]) -> Result<Cow<'b, [u8]>, ObjectError> {
        if self.is_obfuscated {
            return Err(ObjectError::Unsupported {
                what: "an obfuscated image".to_owned(),
                reason: "the key is not public".to_owned(),
            });
        }
        fatbin::unpack(packed, self.compression, self.size)
    }
}

/// A file and the images in it. `R` is `&[u8]`, or a `&ReadCache` of the `object` crate, by
/// which only the parts of a file are read that are asked for.
#[derive(Clone, Debug)]
pub struct Container<R> {
    data: R,
    format: Format,
    images: Vec<Image>,
}

impl<'d, R: ReadRef<'d>> Container<R> {
    /// Finds the images in `data`.
    pub fn read(data: R) -> Result<Container<R>, ObjectError> {
        let window = Window::whole(data);
        let start = start(window);
        let Some(format) = Format::detect(start) else {
            let start = start.iter().map(|byte| format!("{byte:02x}")).collect();
            return Err(ObjectError::UnknownFormat { start });
        };
        let images = match format {
            Format::Archive => archive(window)?,
            format => file(window, format, None)?,
        };
        if images.is_empty() {
            return Err(ObjectError::NoDeviceCode);
        }
        Ok(Container {
            data,
            format,
            images,
        })
    }

    /// What kind of file it is.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The images, in the order of the file.
    pub fn images(&self) -> &[Image] {
        &self.images
    }

    /// The bytes of an image as they are in the file; [`Image::unpack`] makes an image of them.
    pub fn bytes(&self, image: &Image) -> Result<&'d [u8], ObjectError> {
        let Range { start, end } = image.range;
        let size = end.saturating_sub(start);
        let short = |()| {
            let problem = format!("an image's {size} bytes can't be read");
            ObjectError::malformed("file", start, problem)
        };
        self.data.read_bytes_at(start, size).map_err(short)
    }
}

/// What [`Format::detect`] looks at; all of a shorter file.
fn start<'d, R: ReadRef<'d>>(data: Window<R>) -> &'d [u8] {
    let size = data.len().unwrap_or(0).min(START);
    data.read_bytes_at(0, size).unwrap_or(&[])
}

fn file<'d, R: ReadRef<'d>>(
    data: Window<R>,
    format: Format,
    member: Option<&str>,
) -> Result<Vec<Image>, ObjectError> {
    match format {
        Format::Cubin => bare_cubin(data, member).map(|image| vec![image]),
        Format::Fatbin => {
            let entries = fatbin::entries(data, "fatbin")?;
            Ok(images(entries, member, None))
        }
        Format::Host => host(data, member),
        Format::Archive => Err(ObjectError::Unsupported {
            what: "an archive in an archive".to_owned(),
            reason: "unpack the outer one first".to_owned(),
        }),
    }
}

fn archive<'d, R: ReadRef<'d>>(data: Window<R>) -> Result<Vec<Image>, ObjectError> {
    let wrong = |error: object::read::Error| {
        ObjectError::malformed("archive", 0u64, format!("not readable: {error}"))
    };
    let archive = ArchiveFile::parse(data).map_err(wrong)?;
    if archive.is_thin() {
        return Err(ObjectError::Unsupported {
            what: "a thin archive".to_owned(),
            reason: "it holds no objects, only their names: give the objects".to_owned(),
        });
    }
    let mut found = Vec::new();
    for member in archive.members() {
        let member = member.map_err(wrong)?;
        let name = String::from_utf8_lossy(member.name());
        let (offset, size) = member.file_range();
        let Some(part) = data.part(offset, size) else {
            let problem = format!("member {name} has {size} bytes");
            return Err(ObjectError::malformed("archive", offset, problem));
        };
        // Members of other kinds, such as resources, hold no device code.
        if let Some(format) = Format::detect(start(part)) {
            found.extend(file(part, format, Some(&name))?);
        }
    }
    Ok(found)
}

fn host<'d, R: ReadRef<'d>>(
    data: Window<R>,
    member: Option<&str>,
) -> Result<Vec<Image>, ObjectError> {
    let wrong = |error: object::read::Error| {
        ObjectError::malformed("ELF header", 0u64, format!("not readable: {error}"))
    };
    let ident = data.read_bytes_at(4, 2).unwrap_or(&[]);
    // Class 2 is 64 bits, data 1 little-endian.
    if ident != [2, 1] {
        return Err(ObjectError::Unsupported {
            what: "a 32-bit or big-endian ELF file".to_owned(),
            reason: "no toolkit makes device code for such hosts any more".to_owned(),
        });
    }
    let header = FileHeader64::<LittleEndian>::parse(data).map_err(wrong)?;
    let sections = header.sections(LittleEndian, data).map_err(wrong)?;
    let mut found = Vec::new();
    for section in sections.iter() {
        // A name that can't be read is none of those looked for.
        let name = sections.section_name(LittleEndian, section);
        if !name.is_ok_and(|name| FATBIN_SECTIONS.contains(&name)) {
            continue;
        }
        let name = String::from_utf8_lossy(name.unwrap_or_default()).into_owned();
        let Some((offset, size)) = section.file_range(LittleEndian) else {
            continue;
        };
        let Some(part) = data.part(offset, size) else {
            let problem = format!("section {name} has {size} bytes from {offset:#x} on");
            return Err(ObjectError::malformed("ELF sections", offset, problem));
        };
        let entries = fatbin::entries(part, &name)?;
        found.extend(images(entries, member, Some(&name)));
    }
    Ok(found)
}

fn images<'d, R: ReadRef<'d>>(
    entries: Vec<fatbin::Entry<R>>,
    member: Option<&str>,
    section: Option<&str>,
) -> Vec<Image> {
    let image = |(index, entry): (usize, fatbin::Entry<R>)| Image {
        kind: entry.kind,
        arch: entry.arch,
        origin: Origin {
            member: member.map(str::to_owned),
            section: section.map(str::to_owned),
            index,
        },
        range: entry.packed.range(),
        compression: entry.compression,
        size: entry.size,
        is_obfuscated: entry.is_obfuscated,
    };
    entries.into_iter().enumerate().map(image).collect()
}

fn bare_cubin<'d, R: ReadRef<'d>>(
    data: Window<R>,
    member: Option<&str>,
) -> Result<Image, ObjectError> {
    let size = data.len().unwrap_or(0);
    let bytes = data.read_bytes_at(0, size).unwrap_or(&[]);
    Ok(Image {
        kind: ImageKind::Cubin,
        arch: cubin::arch(bytes)?,
        origin: Origin {
            member: member.map(str::to_owned),
            ..Origin::default()
        },
        range: data.range(),
        compression: Compression::None,
        size,
        is_obfuscated: false,
    })
}

impl Cubin<'_> {
    /// Whether `bytes` look like a cubin.
    pub fn detect(bytes: &[u8]) -> bool {
        Format::detect(bytes) == Some(Format::Cubin)
    }
}
