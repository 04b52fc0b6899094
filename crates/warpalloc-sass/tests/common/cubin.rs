//! What the comparison needs of a cubin: the sections with code.

use object::Endianness;
use object::elf::{FileHeader64, SHT_PROGBITS};
use object::read::elf::{FileHeader, SectionHeader};

/// The code of one kernel, with the functions it calls, or of one device function.
pub struct Section {
    pub name: String,
    pub code: Vec<u8>,
}

pub struct Cubin {
    pub sm: u32,
    pub sections: Vec<Section>,
    /// The symbols of the functions that nvdisasm can print live ranges for.
    pub printable: Vec<u32>,
    /// The file with the header that nvdisasm wants before it follows control flow.
    pub image: Vec<u8>,
}

/// The ABI of the ELF header before CUDA 13 and since.
const OLD_ABI: u8 = 0x33;
const NEW_ABI: u8 = 0x41;

impl Cubin {
    pub fn read(bytes: &[u8]) -> object::Result<Self> {
        let header = FileHeader64::<Endianness>::parse(bytes)?;
        let endian = header.endian()?;
        let flags = header.e_flags(endian).0;
        let old = bytes[7] == OLD_ABI;
        let sm = if old { flags & 0xff } else { flags >> 8 & 0xff };
        let table = header.sections(endian, bytes)?;
        let mut sections = Vec::new();
        let mut printable = Vec::new();
        for section in table.iter() {
            let name = table.section_name(endian, section)?;
            if name == b".nv.info" {
                printable = with_few_registers(section.data(endian, bytes)?);
            }
            if section.sh_type(endian) == SHT_PROGBITS && name.starts_with(b".text.") {
                sections.push(Section {
                    name: String::from_utf8_lossy(name).into_owned(),
                    code: section.data(endian, bytes)?.to_vec(),
                });
            }
        }
        Ok(Self {
            sm,
            sections,
            printable,
            image: modern(bytes, sm),
        })
    }
}

/// The same file with the ELF header of CUDA 13. The sections are the same in both.
fn modern(bytes: &[u8], sm: u32) -> Vec<u8> {
    let mut image = bytes.to_vec();
    if image[7] == OLD_ABI {
        image[7] = NEW_ABI;
        image[8] = 8;
        image[20..24].copy_from_slice(&1u32.to_le_bytes());
        let flags = 0x0600_0004 | sm << 8;
        image[48..52].copy_from_slice(&flags.to_le_bytes());
    }
    image
}

/// The symbols whose EIATTR_REGCOUNT is below 255: nvdisasm gives up on a file with a function
/// of 255 registers unless it is told to leave that one out.
fn with_few_registers(info: &[u8]) -> Vec<u32> {
    let word = |at: usize| {
        let bytes = info.get(at..at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    };
    let mut symbols = Vec::new();
    let mut at = 0;
    while let Some(header) = word(at) {
        let (format, attribute, size) = (header & 0xff, header >> 8 & 0xff, header >> 16);
        at += 4;
        if format != 4 {
            continue;
        }
        if let (0x2f, Some(symbol), Some(0..255)) = (attribute, word(at), word(at + 4)) {
            symbols.push(symbol);
        }
        at += size as usize;
    }
    symbols
}
