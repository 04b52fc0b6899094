//! A part of a file, and numbers in it.

use std::ops::Range;

use object::read::ReadRef;

/// The bytes `range` of `data`, addressed from zero: a member of an archive looks like a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window<R> {
    data: R,
    start: u64,
    size: u64,
}

impl<'d, R: ReadRef<'d>> Window<R> {
    /// All of `data`.
    pub(crate) fn whole(data: R) -> Window<R> {
        let size = data.len().unwrap_or(0);
        Window {
            data,
            start: 0,
            size,
        }
    }

    /// `size` bytes from `offset` on; `None` where there are fewer.
    pub(crate) fn part(self, offset: u64, size: u64) -> Option<Window<R>> {
        let end = offset.checked_add(size)?;
        (end <= self.size).then(|| Window {
            start: self.start + offset,
            size,
            ..self
        })
    }

    /// The range of the whole file that this is.
    pub(crate) fn range(self) -> Range<u64> {
        self.start..self.start + self.size
    }
}

impl<'d, R: ReadRef<'d>> ReadRef<'d> for Window<R> {
    fn len(self) -> Result<u64, ()> {
        Ok(self.size)
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'d [u8], ()> {
        let part = self.part(offset, size).ok_or(())?;
        self.data.read_bytes_at(part.start, part.size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'d [u8], ()> {
        let size = range.end.checked_sub(range.start).ok_or(())?;
        let part = self.part(range.start, size).ok_or(())?;
        self.data.read_bytes_at_until(part.range(), delimiter)
    }
}

/// The two bytes at `at`, little-endian.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at.checked_add(2)?)?;
    Some(u16::from_le_bytes(bytes.try_into().ok()?))
}

/// The four bytes at `at`, little-endian.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

/// The eight bytes at `at`, little-endian.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

/// `bytes` as little-endian words; what is left over behind the last whole word is dropped.
pub(crate) fn words(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
    let (words, _) = bytes.as_chunks::<4>();
    words.iter().map(|word| u32::from_le_bytes(*word))
}
