//! Cubins and fatbins written by hand, for tests without NVIDIA's tools.
//!
//! They look like what the toolkit writes and are not meant to run.

/// A section of a cubin to be.
pub struct Part {
    /// Its name.
    pub name: &'static str,
    /// `sh_type`.
    pub kind: u32,
    /// `sh_info`.
    pub info: u32,
    /// `sh_link`.
    pub link: u32,
    /// Its content.
    pub data: Vec<u8>,
    /// `sh_size`; more than the content of sections that have none in the file.
    pub size: u64,
}

/// `sh_type`: content as it is.
pub const PROGBITS: u32 = 1;
/// `sh_type`: symbols.
pub const SYMTAB: u32 = 2;
/// `sh_type`: names.
pub const STRTAB: u32 = 3;
/// `sh_type`: relocations with addends.
pub const RELA: u32 = 4;
/// `sh_type`: no content in the file.
pub const NOBITS: u32 = 8;
/// `sh_type`: attributes.
pub const INFO: u32 = 0x7000_0000;

/// A section with that content.
pub fn part(name: &'static str, kind: u32, info: u32, data: Vec<u8>) -> Part {
    Part {
        name,
        kind,
        info,
        link: 0,
        size: data.len() as u64,
        data,
    }
}

/// The bytes of little-endian words.
pub fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// An attribute of format 4.
pub fn attribute(kind: u8, value: &[u32]) -> Vec<u8> {
    let size = u16::try_from(value.len() * 4).unwrap();
    let mut bytes = vec![4, kind];
    bytes.extend(size.to_le_bytes());
    bytes.extend(words(value));
    bytes
}

/// A symbol: name's offset in the string table, info, other, section, value, size.
pub fn symbol(name: u32, info: u8, other: u8, section: u16, value: u64, size: u64) -> Vec<u8> {
    let mut bytes = name.to_le_bytes().to_vec();
    bytes.extend([info, other]);
    bytes.extend(section.to_le_bytes());
    bytes.extend(value.to_le_bytes());
    bytes.extend(size.to_le_bytes());
    bytes
}

/// An ELF file with these sections behind the empty one, and `.shstrtab` last.
pub fn elf(machine: u16, abi_version: u8, flags: u32, parts: &[Part]) -> Vec<u8> {
    let mut out = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0x41, abi_version];
    out.resize(64, 0);
    let mut names = vec![0];
    let mut headers = vec![0; 64];
    let mut section = |out: &mut Vec<u8>, names: &mut Vec<u8>, part: &Part| {
        out.resize(out.len().next_multiple_of(16), 0);
        let (name, offset) = (names.len() as u32, out.len() as u64);
        names.extend(part.name.as_bytes());
        names.push(0);
        out.extend(&part.data);
        headers.extend(words(&[name, part.kind]));
        for value in [0, 0, offset, part.size] {
            headers.extend(u64::to_le_bytes(value));
        }
        headers.extend(words(&[part.link, part.info]));
        let entry: u64 = match part.kind {
            SYMTAB | RELA => 24,
            _ => 0,
        };
        headers.extend(1u64.to_le_bytes());
        headers.extend(entry.to_le_bytes());
    };
    for part in parts {
        section(&mut out, &mut names, part);
    }
    let mut strings = names.clone();
    strings.extend(b".shstrtab\0");
    section(&mut out, &mut names, &part(".shstrtab", STRTAB, 0, strings));
    out.resize(out.len().next_multiple_of(8), 0);
    let (table, count) = (out.len() as u64, parts.len() as u16 + 2);
    out.extend(headers);
    out[16..18].copy_from_slice(&2u16.to_le_bytes());
    out[18..20].copy_from_slice(&machine.to_le_bytes());
    out[40..48].copy_from_slice(&table.to_le_bytes());
    out[48..52].copy_from_slice(&flags.to_le_bytes());
    for (at, value) in [(52, 64), (54, 56), (58, 64), (60, count), (62, count - 1)] {
        out[at..at + 2].copy_from_slice(&u16::to_le_bytes(value));
    }
    out
}

/// `NOP` with a stall of one cycle.
pub const NOP: [u32; 4] = [0x0000_7918, 0, 0, 0x000f_c200];

/// A cubin for `sm_90` with one kernel `k`: 128 threads, 24 registers, a frame of 16 bytes,
/// 272 bytes of shared memory, a device function within, an indirect branch, a relocation.
pub fn cubin() -> Vec<u8> {
    elf(190, 8, 0x0600_5a04, &cubin_parts())
}

/// The sections of [`cubin`]; the code is the first.
pub fn cubin_parts() -> Vec<Part> {
    let mut info = attribute(0x2f, &[1, 24]);
    info.extend(attribute(0x11, &[1, 16]));
    info.extend(attribute(0x12, &[1, 32]));
    info.extend(attribute(0x11, &[2, 8]));
    let mut own = attribute(0x05, &[32, 4, 1]);
    own.extend(attribute(0x34, &[0x10, 0, 2, 0x20, 0x30]));
    own.extend([3, 0x1b, 0xff, 0, 1, 0x35, 0, 0, 2, 0x4c, 1, 0]);
    own.extend(attribute(0x17, &[0, 0x0008_0001, 0x0021_f000]));
    own.extend(attribute(0x17, &[0, 0, 0x0021_f000]));
    let mut symtab = symbol(0, 0, 0, 0, 0, 0);
    symtab.extend(symbol(1, 0x12, 0x10, 1, 0, 0x60));
    symtab.extend(symbol(3, 0x02, 0, 1, 0x40, 0x20));
    let mut rela = 0x20u64.to_le_bytes().to_vec();
    rela.extend(words(&[56, 1, 0x30, 0]));
    vec![
        part(".text.k", PROGBITS, 1, words(&NOP).repeat(6)),
        part(".nv.info", INFO, 0, info),
        part(".nv.info.k", INFO, 1, own),
        Part {
            size: 0x510,
            ..part(".nv.shared.k", NOBITS, 1, Vec::new())
        },
        part(".nv.constant0.k", PROGBITS, 1, vec![0; 0x210]),
        Part {
            link: 7,
            ..part(".symtab", SYMTAB, 3, symtab)
        },
        part(".strtab", STRTAB, 0, b"\0k\0inner\0".to_vec()),
        Part {
            link: 6,
            ..part(".rela.text.k", RELA, 1, rela)
        },
        part(".nv.callgraph", INFO + 1, 0, words(&[0, u32::MAX, 1, 2])),
    ]
}

/// An entry of a fatbin: kind, architecture, flags, content, size once decompressed.
pub fn entry(kind: u16, arch: u32, flags: u64, content: &[u8], size: u64) -> Vec<u8> {
    let padded = (content.len() as u64).next_multiple_of(8);
    let packed = if size == 0 { 0 } else { content.len() as u32 };
    let mut out = kind.to_le_bytes().to_vec();
    out.extend(0x101u16.to_le_bytes());
    out.extend(64u32.to_le_bytes());
    out.extend(padded.to_le_bytes());
    out.extend(words(&[packed, 0, 0x0001_0008, arch, 0, 0]));
    out.extend(flags.to_le_bytes());
    out.extend(0u64.to_le_bytes());
    out.extend(size.to_le_bytes());
    out.extend(content);
    out.resize(64 + padded as usize, 0);
    out
}

/// A fatbin of these entries.
pub fn fatbin(entries: &[Vec<u8>]) -> Vec<u8> {
    let body = entries.concat();
    let mut out = 0xba55_ed50u32.to_le_bytes().to_vec();
    out.extend([1, 0, 16, 0]);
    out.extend((body.len() as u64).to_le_bytes());
    out.extend(body);
    out
}
