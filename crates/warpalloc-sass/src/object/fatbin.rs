//! Fatbins: a header, then entries of one image each.
//!
//! | header at | size | what |
//! |---|---|---|
//! | 0 | 4 | `0xba55ed50` |
//! | 4 | 2 | version, 1 |
//! | 6 | 2 | size of this header, 16 |
//! | 8 | 8 | bytes of all entries |
//!
//! | entry at | size | what |
//! |---|---|---|
//! | 0 | 2 | kind: 1 PTX, 2 cubin, 8 LTO intermediate code |
//! | 4 | 4 | size of this header: 64 and what its options take |
//! | 8 | 8 | bytes of the image in the file, padding included |
//! | 16 | 4 | bytes of the image without padding where it is compressed, else 0 |
//! | 28 | 4 | architecture: 90 for `sm_90` |
//! | 32, 36 | 4, 4 | offset and length of a name |
//! | 40 | 8 | flags: `0x2000` LZ4, `0x8000` Zstandard, `0x100000` `a`, `0x200000` `f` |
//! | 56 | 8 | size of the image once decompressed, 0 where it is not compressed |
//!
//! A section may hold several fatbins; each begins at a multiple of eight bytes, and zeros
//! stand in between.

use std::borrow::Cow;
use std::io::Read;

use object::read::ReadRef;

use super::ObjectError;
use super::cubin::Arch;
use super::window::{Window, u16_at, u32_at, u64_at};

/// The first four bytes of a fatbin.
pub(crate) const MAGIC: u32 = 0xba55_ed50;
const HEADER: u64 = 16;
const ENTRY_HEADER: u64 = 64;
/// Fatbins in a section begin at multiples of this.
const ALIGNMENT: u64 = 8;
/// Zeros are skipped in portions of this many bytes.
const SCAN_BYTES: u64 = 4096;

const FLAG_LZ4: u64 = 0x2000;
const FLAG_ZSTD: u64 = 0x8000;
const FLAG_OBFUSCATED: u64 = 0x1_0000;
const FLAG_ARCH_SPECIFIC: u64 = 0x10_0000;
const FLAG_FAMILY_SPECIFIC: u64 = 0x20_0000;

/// More than any image has; what claims to be larger is damaged.
const MAX_IMAGE_BYTES: u64 = 1 << 30;
/// A byte of LZ4 never stands for more than this many.
const LZ4_MAX_RATIO: u64 = 255;

/// What an image is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ImageKind {
    /// PTX text.
    Ptx,
    /// A cubin.
    Cubin,
    /// Intermediate code for link-time optimisation.
    Lto,
    /// Anything else, by the number the fatbin gives it.
    Other(u16),
}

/// How an image is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Compression {
    /// As it is.
    None,
    /// One block of LZ4.
    Lz4,
    /// One frame of Zstandard.
    Zstd,
}

/// One entry of a fatbin.
#[derive(Clone, Debug)]
pub(crate) struct Entry<R> {
    pub(crate) kind: ImageKind,
    pub(crate) arch: Arch,
    pub(crate) compression: Compression,
    pub(crate) is_obfuscated: bool,
    /// The packed image without padding.
    pub(crate) packed: Window<R>,
    /// Bytes of the image once decompressed.
    pub(crate) size: u64,
}

/// The entries of all fatbins in `data`, which begins with one. `region` names it in errors.
pub(crate) fn entries<'d, R: ReadRef<'d>>(
    data: Window<R>,
    region: &str,
) -> Result<Vec<Entry<R>>, ObjectError> {
    let mut found = Vec::new();
    let len = data.len().unwrap_or(0);
    let mut at = 0;
    while let Some(start) = next_fatbin(data, at, len, region)? {
        let header = bytes(data, start, HEADER, region)?;
        let header_size = u64::from(u16_at(header, 6).unwrap_or(0));
        let body = u64_at(header, 8).unwrap_or(0);
        if header_size < HEADER {
            let problem = format!("a fatbin's header has {header_size} bytes, not {HEADER}");
            return Err(ObjectError::malformed(region, start + 6, problem));
        }
        let first = start + header_size;
        let end = match first.checked_add(body) {
            Some(end) if end <= len => end,
            _ => {
                let left = len.saturating_sub(first);
                let problem = format!("the entries of a fatbin take {body} bytes of {left}");
                return Err(ObjectError::malformed(region, start + 8, problem));
            }
        };
        let mut entry_at = first;
        while entry_at < end {
            let (entry, next) = entry(data, entry_at, end, region)?;
            found.push(entry);
            entry_at = next;
        }
        at = end;
    }
    Ok(found)
}

/// Where the next fatbin begins at or behind `at`; zeros may stand before it.
fn next_fatbin<'d, R: ReadRef<'d>>(
    data: Window<R>,
    at: u64,
    len: u64,
    region: &str,
) -> Result<Option<u64>, ObjectError> {
    let mut at = at.next_multiple_of(ALIGNMENT);
    while at.saturating_add(ALIGNMENT) <= len {
        let size = (len - at).min(SCAN_BYTES) / ALIGNMENT * ALIGNMENT;
        let (slots, _) = bytes(data, at, size, region)?.as_chunks::<{ ALIGNMENT as usize }>();
        let Some(skipped) = slots
            .iter()
            .position(|slot| *slot != [0; ALIGNMENT as usize])
        else {
            at += size;
            continue;
        };
        at += skipped as u64 * ALIGNMENT;
        let word = u32_at(&slots[skipped], 0).unwrap_or(0);
        if word == MAGIC {
            return Ok(Some(at));
        }
        let problem = format!("{word:#010x} stands where a fatbin begins, not {MAGIC:#010x}");
        return Err(ObjectError::malformed(region, at, problem));
    }
    Ok(None)
}

fn entry<'d, R: ReadRef<'d>>(
    data: Window<R>,
    at: u64,
    end: u64,
    region: &str,
) -> Result<(Entry<R>, u64), ObjectError> {
    let wrong = |offset: u64, problem: String| ObjectError::malformed(region, at + offset, problem);
    if end - at < ENTRY_HEADER {
        let problem = format!("{} bytes are left for an entry's header", end - at);
        return Err(wrong(0, problem));
    }
    let header = bytes(data, at, ENTRY_HEADER, region)?;
    let u32_of = |offset| u64::from(u32_at(header, offset).unwrap_or(0));
    let kind = match u16_at(header, 0).unwrap_or(0) {
        1 => ImageKind::Ptx,
        2 => ImageKind::Cubin,
        8 => ImageKind::Lto,
        other => ImageKind::Other(other),
    };
    let header_size = u32_of(4);
    let padded = u64_at(header, 8).unwrap_or(0);
    let (packed_size, flags) = (u32_of(16), u64_at(header, 40).unwrap_or(0));
    let unpacked = u64_at(header, 56).unwrap_or(0);
    if header_size < ENTRY_HEADER || header_size > end - at {
        let problem = format!("an entry's header has {header_size} bytes");
        return Err(wrong(4, problem));
    }
    let body = at + header_size;
    if padded > end - body {
        let problem = format!("an image takes {padded} bytes of {}", end - body);
        return Err(wrong(8, problem));
    }
    let compression = match (flags & FLAG_LZ4 != 0, flags & FLAG_ZSTD != 0) {
        (false, false) => Compression::None,
        (true, false) => Compression::Lz4,
        (false, true) => Compression::Zstd,
        (true, true) => return Err(wrong(40, "two compressions at once".to_owned())),
    };
    let (packed_size, size) = match compression {
        Compression::None => (padded, padded),
        _ => (packed_size, unpacked),
    };
    if packed_size > padded {
        let problem = format!("{packed_size} compressed bytes in an image of {padded}");
        return Err(wrong(16, problem));
    }
    if size > MAX_IMAGE_BYTES {
        let problem = format!("an image of {size} bytes; {MAX_IMAGE_BYTES} are the most");
        return Err(wrong(56, problem));
    }
    let variant = match flags {
        _ if flags & FLAG_ARCH_SPECIFIC != 0 => Some('a'),
        _ if flags & FLAG_FAMILY_SPECIFIC != 0 => Some('f'),
        _ => None,
    };
    let sm = u32_at(header, 28).unwrap_or(0);
    let short = || wrong(16, format!("{packed_size} bytes of an image are not there"));
    let entry = Entry {
        kind,
        arch: Arch { sm, variant },
        compression,
        is_obfuscated: flags & FLAG_OBFUSCATED != 0,
        packed: data.part(body, packed_size).ok_or_else(short)?,
        size,
    };
    Ok((entry, body + padded))
}

fn bytes<'d, R: ReadRef<'d>>(
    data: Window<R>,
    at: u64,
    size: u64,
    region: &str,
) -> Result<&'d [u8], ObjectError> {
    let short = |()| ObjectError::malformed(region, at, format!("{size} bytes are not there"));
    data.read_bytes_at(at, size).map_err(short)
}

/// An image as it was before it was packed; `size` is what the entry says of it.
pub(crate) fn unpack<'d>(
    packed: &'d [u8],
    compression: Compression,
    size: u64,
) -> Result<Cow<'d, [u8]>, ObjectError> {
    let wrong = |problem: String| ObjectError::malformed("compressed image", 0u64, problem);
    let limit = usize::try_from(size).map_err(|_| wrong(format!("{size} bytes")))?;
    let image = match compression {
        Compression::None => return Ok(Cow::Borrowed(packed)),
        Compression::Lz4 => {
            let most = (packed.len() as u64).saturating_mul(LZ4_MAX_RATIO);
            if size > most {
                let problem = format!("{} bytes of LZ4 for {size}", packed.len());
                return Err(wrong(problem));
            }
            let result = lz4_flex::block::decompress(packed, limit);
            result.map_err(|error| wrong(format!("LZ4: {error}")))?
        }
        Compression::Zstd => {
            let told = |error: &dyn std::fmt::Display| wrong(format!("Zstandard: {error}"));
            let decoder = ruzstd::decoding::StreamingDecoder::new(packed);
            let decoder = decoder.map_err(|error| told(&error))?;
            let mut image = Vec::new();
            // One byte more than promised is enough to know that there are too many.
            let result = decoder.take(size + 1).read_to_end(&mut image);
            result.map_err(|error| told(&error))?;
            image
        }
    };
    match image.len() == limit {
        true => Ok(Cow::Owned(image)),
        false => Err(wrong(format!("{} bytes, not {size}", image.len()))),
    }
}
