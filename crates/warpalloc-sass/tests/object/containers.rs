//! The images in fatbins, host objects and archives.

use std::io::Cursor;
use std::process::Command;

use object::read::ReadCache;
use warpalloc_fuzz::image::{self, part};
use warpalloc_sass::object::{Container, Format, ImageKind, ObjectError};

use crate::tools::{Folder, assemble, corpus, output, tool};

const LZ4: u64 = 0x2000;
const ZSTD: u64 = 0x8000;

struct Found {
    kind: ImageKind,
    arch: String,
    member: Option<String>,
    section: Option<String>,
    content: Vec<u8>,
}

fn images(bytes: &[u8]) -> Result<Vec<Found>, ObjectError> {
    let container = Container::read(bytes)?;
    let found = container.images().iter().map(|image| {
        let packed = container.bytes(image)?;
        Ok(Found {
            kind: image.kind,
            arch: image.arch.to_string(),
            member: image.origin.member.clone(),
            section: image.origin.section.clone(),
            content: image.unpack(packed)?.into_owned(),
        })
    });
    found.collect()
}

fn refusal(bytes: &[u8]) -> String {
    match images(bytes) {
        Ok(found) => panic!("{} images", found.len()),
        Err(error) => error.to_string(),
    }
}

/// A literal run of LZ4: no match, `text` as it is.
fn lz4(text: &[u8]) -> Vec<u8> {
    assert!(text.len() < 15);
    [&[(text.len() as u8) << 4], text].concat()
}

/// A frame of Zstandard with one raw block.
fn zstd(text: &[u8]) -> Vec<u8> {
    let size = text.len() as u8;
    let head = [0x28, 0xb5, 0x2f, 0xfd, 0x20, size, size << 3 | 1, 0, 0];
    [&head, text].concat()
}

#[test]
fn formats_are_told_by_content() {
    let host = image::elf(62, 0, 0, &[]);
    assert_eq!(Format::detect(&image::cubin()), Some(Format::Cubin));
    assert_eq!(Format::detect(&image::fatbin(&[])), Some(Format::Fatbin));
    assert_eq!(Format::detect(&host), Some(Format::Host));
    assert_eq!(Format::detect(b"!<arch>\n"), Some(Format::Archive));
    assert_eq!(Format::detect(b".version 8.0\n.target sm_90\n"), None);
    assert_eq!(Format::detect(b""), None);
}

#[test]
fn entries_are_unpacked_by_their_flags() {
    let fatbin = image::fatbin(&[
        image::entry(1, 80, 0x11, b"plain   ", 0),
        image::entry(1, 90, 0x11 | LZ4 | 0x10_0000, &lz4(b"packed"), 6),
        image::entry(2, 100, 0x11 | ZSTD | 0x20_0000, &zstd(b"frame"), 5),
        image::entry(8, 90, 0x11, b"lto", 0),
    ]);
    let found = images(&fatbin).unwrap();
    let brief: Vec<_> = found
        .iter()
        .map(|f| (f.kind, f.arch.as_str(), f.content.as_slice()))
        .collect();
    assert_eq!(
        brief,
        [
            (ImageKind::Ptx, "sm_80", b"plain   ".as_slice()),
            (ImageKind::Ptx, "sm_90a", b"packed"),
            (ImageKind::Cubin, "sm_100f", b"frame"),
            (ImageKind::Lto, "sm_90", b"lto\0\0\0\0\0"),
        ]
    );
}

/// Two fatbins in a section, with zeros between them, and the section of code to be linked.
fn host() -> Vec<u8> {
    let mut linked = image::fatbin(&[image::entry(1, 80, 0x11, b"first   ", 0)]);
    linked.resize(linked.len() + 24, 0);
    linked.extend(image::fatbin(&[image::entry(1, 90, 0x11, b"second  ", 0)]));
    let other = image::fatbin(&[image::entry(1, 75, 0x11, b"third   ", 0)]);
    let parts = [
        part(".nv_fatbin", image::PROGBITS, 0, linked),
        part(".text", image::PROGBITS, 0, vec![0xc3; 5]),
        part("__nv_relfatbin", image::PROGBITS, 0, other),
    ];
    image::elf(62, 0, 0, &parts)
}

#[test]
fn host_files_hold_fatbins_in_two_sections() {
    let found = images(&host()).unwrap();
    let brief: Vec<_> = found
        .iter()
        .map(|f| {
            (
                f.section.as_deref().unwrap(),
                f.arch.as_str(),
                f.content.as_slice(),
            )
        })
        .collect();
    assert_eq!(
        brief,
        [
            (".nv_fatbin", "sm_80", b"first   ".as_slice()),
            (".nv_fatbin", "sm_90", b"second  "),
            ("__nv_relfatbin", "sm_75", b"third   "),
        ]
    );
}

fn archive(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut out = b"!<arch>\n".to_vec();
    for (name, content) in members {
        let header = format!(
            "{:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n",
            format!("{name}/"),
            0,
            0,
            0,
            644,
            content.len()
        );
        out.extend(header.as_bytes());
        out.extend(*content);
        out.resize(out.len().next_multiple_of(2), b'\n');
    }
    out
}

#[test]
fn archives_hold_objects() {
    let bytes = archive(&[
        ("a.o", &host()),
        ("notes.txt", b"text"),
        ("b.cubin", &image::cubin()),
    ]);
    let found = images(&bytes).unwrap();
    let members: Vec<_> = found.iter().map(|f| f.member.as_deref().unwrap()).collect();
    assert_eq!(members, ["a.o", "a.o", "a.o", "b.cubin"]);
    assert_eq!(found[3].content, image::cubin());
}

/// Reading by seeking finds the same as reading from memory, and reads an image only when it
/// is asked for.
#[test]
fn files_are_read_in_parts() {
    struct Counted(Cursor<Vec<u8>>, std::rc::Rc<std::cell::Cell<usize>>);
    impl std::io::Read for Counted {
        fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
            let count = self.0.read(buf)?;
            self.1.set(self.1.get() + count);
            Ok(count)
        }
    }
    impl std::io::Seek for Counted {
        fn seek(&mut self, to: std::io::SeekFrom) -> std::io::Result<u64> {
            self.0.seek(to)
        }
    }
    let big = vec![b'x'; 1 << 20];
    let fatbin = image::fatbin(&[
        image::entry(1, 80, 0x11, &big, 0),
        image::entry(1, 90, 0x11, b"small   ", 0),
    ]);
    let read = std::rc::Rc::default();
    let cache = ReadCache::new(Counted(Cursor::new(fatbin), std::rc::Rc::clone(&read)));
    let container = Container::read(&cache).unwrap();
    let [_, small] = container.images() else {
        panic!("{:?}", container.images())
    };
    assert_eq!(container.bytes(small).unwrap(), b"small   ");
    assert!(read.get() < 16 * 1024, "{} bytes were read", read.get());
}

#[test]
fn what_holds_no_device_code_is_said() {
    let nothing = "no device code: there is no section .nv_fatbin or __nv_relfatbin with an image";
    assert_eq!(refusal(&image::elf(62, 0, 0, &[])), nothing);
    assert_eq!(refusal(&image::fatbin(&[])), nothing);
    let text = refusal(b"hello");
    assert_eq!(
        text,
        "not a cubin, fatbin, archive or ELF file: it begins with 68656c6c6f"
    );
    let thin = refusal(b"!<thin>\n");
    assert_eq!(
        thin,
        "a thin archive can't be read: it holds no objects, only their names: give the objects"
    );
    let mut small = image::elf(62, 0, 0, &[]);
    small[4] = 1;
    assert_eq!(
        refusal(&small),
        "a 32-bit or big-endian ELF file can't be read: no toolkit makes device code for such \
         hosts any more"
    );
}

#[test]
fn damaged_fatbins_are_refused_by_place() {
    let entry = || image::entry(1, 90, 0x11 | LZ4, &lz4(b"packed"), 6);
    let damaged = |at: usize, bytes: &[u8]| {
        let mut fatbin = image::fatbin(&[entry()]);
        fatbin[at..at + bytes.len()].copy_from_slice(bytes);
        refusal(&fatbin)
    };
    assert_eq!(
        damaged(8, &[0xff; 8]),
        "fatbin, offset 0x8: the entries of a fatbin take 18446744073709551615 bytes of 72"
    );
    assert_eq!(
        damaged(8, &[8]),
        "fatbin, offset 0x10: 8 bytes are left for an entry's header"
    );
    assert_eq!(
        damaged(6, &[4]),
        "fatbin, offset 0x6: a fatbin's header has 4 bytes, not 16"
    );
    assert_eq!(
        damaged(20, &[0]),
        "fatbin, offset 0x14: an entry's header has 0 bytes"
    );
    assert_eq!(
        damaged(24, &[0xff; 8]),
        "fatbin, offset 0x18: an image takes 18446744073709551615 bytes of 8"
    );
    assert_eq!(
        damaged(32, &[9]),
        "fatbin, offset 0x20: 9 compressed bytes in an image of 8"
    );
    assert_eq!(
        damaged(57, &[0xa0]),
        "fatbin, offset 0x38: two compressions at once"
    );
    assert_eq!(
        damaged(72, &[0, 0, 0, 0, 1]),
        "fatbin, offset 0x48: an image of 4294967296 bytes; 1073741824 are the most"
    );
    assert_eq!(
        damaged(72, &[7]),
        "compressed image, offset 0x0: 6 bytes, not 7"
    );
    assert_eq!(
        damaged(72, &[0, 0, 1]),
        "compressed image, offset 0x0: 7 bytes of LZ4 for 65536"
    );
    assert_eq!(
        damaged(58, &[1]),
        "an obfuscated image can't be read: the key is not public"
    );
    let mut two = image::fatbin(&[entry()]);
    two.extend(b"not a fatbin....");
    assert_eq!(
        refusal(&two),
        "fatbin, offset 0x58: 0x20746f6e stands where a fatbin begins, not 0xba55ed50"
    );
}

/// A megabyte of zeros in twenty bytes, where the entry promises eight of them.
#[test]
fn images_larger_than_promised_are_refused() {
    let blocks = [[0x02u8, 0x00, 0x10, 0], [0x03, 0x00, 0x10, 0]].concat();
    let bomb = [[0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x58].as_slice(), &blocks].concat();
    let fatbin = image::fatbin(&[image::entry(1, 90, 0x11 | ZSTD, &bomb, 8)]);
    assert_eq!(
        refusal(&fatbin),
        "compressed image, offset 0x0: 9 bytes, not 8"
    );
}

#[test]
fn fatbins_of_the_toolkit_give_back_what_went_in_or_is_skipped() {
    let (Some(ptxas), Some(fatbinary)) = (tool("ptxas"), tool("fatbinary")) else {
        return;
    };
    let (_, ptx) = corpus()
        .into_iter()
        .find(|(name, _)| name.starts_with("calls"))
        .unwrap();
    let cubin = assemble(&ptxas, &ptx, "sm_90", &[]).unwrap();
    let folder = Folder::new();
    let (cubin_path, ptx_path) = (folder.write("a.cubin", &cubin), folder.write("a.ptx", &ptx));
    for mode in ["default", "size", "speed", "balance", "none"] {
        let fatbin = folder.path("a.fatbin");
        let mut command = Command::new(&fatbinary);
        command.args(["-64", "--compress-all", "--compress-mode", mode, "--create"]);
        command.arg(&fatbin);
        command.arg(format!(
            "--image3=kind=elf,sm=90a,file={}",
            cubin_path.display()
        ));
        command.arg(format!(
            "--image3=kind=ptx,sm=90,file={}",
            ptx_path.display()
        ));
        output(&mut command);
        let found = images(&std::fs::read(&fatbin).unwrap()).unwrap();
        let [first, second] = found.as_slice() else {
            panic!("{mode}: {} images", found.len())
        };
        assert_eq!(
            (first.kind, first.arch.as_str()),
            (ImageKind::Cubin, "sm_90a"),
            "{mode}"
        );
        assert_eq!(
            (second.kind, second.arch.as_str()),
            (ImageKind::Ptx, "sm_90"),
            "{mode}"
        );
        assert_eq!(first.content, cubin, "{mode}");
        // The toolkit leaves comments out.
        let (text, original) = (statements(&second.content), statements(ptx.as_bytes()));
        assert!(text == original, "{mode}: the text has changed");
    }
}

/// The words of a PTX text without comments and without the zeros behind it.
fn statements(text: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(text);
    let lines = text.trim_end_matches('\0').lines();
    lines
        .flat_map(|line| {
            line.split("//")
                .next()
                .unwrap_or_default()
                .split_whitespace()
        })
        .map(str::to_owned)
        .collect()
}
