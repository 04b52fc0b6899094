//! Damaged input: an error that names the place, never a panic.

use warpalloc_sass::object::{Container, Cubin};

use crate::image;
use crate::tools::{CorpusCubin, corpus_cubins};

fn refusal(parts: &[image::Part]) -> String {
    match Cubin::read(&image::elf(190, 8, 0x0600_5a04, parts)) {
        Ok(cubin) => panic!("{cubin:?}"),
        Err(error) => error.to_string(),
    }
}

/// The hand-made cubin with section `index` replaced.
fn with(index: usize, data: Vec<u8>) -> Vec<image::Part> {
    let mut parts = image::cubin_parts();
    parts[index].size = data.len() as u64;
    parts[index].data = data;
    parts
}

#[test]
fn damaged_tables_are_refused_by_place() {
    let cut = image::attribute(0x2f, &[1, 24])[..8].to_vec();
    assert_eq!(
        refusal(&with(1, cut)),
        ".nv.info, offset 0x0: EIATTR_REGCOUNT has 8 bytes, and 4 are left"
    );
    let mut format = image::attribute(0x2f, &[1, 24]);
    format.extend([9, 0x2f, 0, 0]);
    assert_eq!(
        refusal(&with(1, format)),
        ".nv.info, offset 0xc: an attribute has format 9"
    );
    assert_eq!(
        refusal(&with(2, vec![1, 0x35])),
        ".nv.info.k, offset 0x0: 2 bytes are left for an attribute"
    );
    assert_eq!(
        refusal(&with(7, vec![0; 25])),
        ".rela.text.k, offset 0x0: 25 bytes are no table of 24 each"
    );
    let mut parts = image::cubin_parts();
    parts[0].size = 1 << 40;
    let text = refusal(&parts);
    assert!(
        text.starts_with("section 1, offset 0x40: .text.k, 1099511627776 bytes: "),
        "{text}"
    );
}

#[test]
fn unknown_headers_are_refused() {
    let bytes = image::elf(190, 9, 0, &image::cubin_parts());
    let error = Cubin::read(&bytes).unwrap_err().to_string();
    assert_eq!(
        error,
        "a cubin of ABI version 9 can't be read: only versions up to 8 are known"
    );
    let error = Cubin::read(b"text").unwrap_err().to_string();
    assert_eq!(error, "ELF header, offset 0x0: not a cubin");
}

#[test]
fn indirect_branches_whose_list_ends_early_have_no_targets() {
    let own = image::attribute(0x34, &[0x10, 0, 3, 0x20, 0x30]);
    let bytes = image::elf(190, 8, 0x0600_5a04, &with(2, own));
    let cubin = Cubin::read(&bytes).unwrap();
    assert_eq!(cubin.function("k").unwrap().indirect_branches(), []);
}

/// A small generator: the same damage on every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize
    }

    fn below(&mut self, bound: usize) -> usize {
        self.next() % bound.max(1)
    }
}

/// One to four bytes, words or cuts.
fn damage(bytes: &mut Vec<u8>, random: &mut Random) {
    const NUMBERS: [u64; 8] = [0, 1, 0x7f, 0xff, 0xffff, 0x7fff_ffff, 0xffff_ffff, u64::MAX];
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len());
        match random.below(8) {
            0 => bytes.truncate(at),
            1..=3 => {
                let number = NUMBERS[random.below(NUMBERS.len())].to_le_bytes();
                let width = [1, 2, 4, 8][random.below(4)].min(bytes.len() - at);
                bytes[at..at + width].copy_from_slice(&number[..width]);
            }
            _ if bytes.is_empty() => {}
            _ => bytes[at] = random.next() as u8,
        }
        if bytes.is_empty() {
            return;
        }
    }
}

/// Reads everything there is to read.
fn read_all(bytes: &[u8]) {
    let Ok(container) = Container::read(bytes) else {
        return;
    };
    for image in container.images() {
        let packed = container.bytes(image).unwrap_or_default();
        let Ok(content) = image.unpack(packed) else {
            continue;
        };
        let Ok(cubin) = Cubin::read(&content) else {
            continue;
        };
        let tables = [cubin.source_lines(), cubin.ptx_lines()];
        for function in &cubin.functions {
            let _ = (function.block_threads(), function.parameters());
            let _ = function.indirect_branches();
            for lines in tables.iter().flatten() {
                let _ = lines.find(function.section, 16);
            }
        }
    }
}

fn damage_many(original: &[u8], rounds: usize, seed: u64) {
    let mut random = Random(seed);
    for _ in 0..rounds {
        let mut bytes = original.to_vec();
        damage(&mut bytes, &mut random);
        read_all(&bytes);
    }
}

#[test]
fn damaged_files_never_panic() {
    let cubin = image::cubin();
    let fatbin = image::fatbin(&[image::entry(2, 90, 0x11, &cubin, 0)]);
    let host = image::elf(62, 0, 0, &[image::part(".nv_fatbin", 1, 0, fatbin.clone())]);
    damage_many(&cubin, 20_000, 1);
    damage_many(&fatbin, 10_000, 2);
    damage_many(&host, 10_000, 3);
}

/// What ptxas writes has more tables, line programs above all.
#[test]
fn damaged_cubins_of_ptxas_never_panic_or_is_skipped() {
    for CorpusCubin { name, bytes } in corpus_cubins() {
        let wanted = ["calls", "saxpy", "switchboard"];
        if wanted.iter().any(|wanted| name.starts_with(wanted)) {
            damage_many(bytes, 2_000, 4);
        }
    }
}
