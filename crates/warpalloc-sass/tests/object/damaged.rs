//! Damaged input: an error that names the place, never a panic.

use warpalloc::generate::Rng;
use warpalloc_fuzz::{damage, image, reads};
use warpalloc_sass::object::Cubin;

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

fn damage_many(original: &[u8], rounds: usize, seed: u64) {
    let mut rng = Rng::new(seed);
    for _ in 0..rounds {
        let mut bytes = original.to_vec();
        damage::bytes(&mut bytes, &mut rng);
        reads(&bytes);
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
