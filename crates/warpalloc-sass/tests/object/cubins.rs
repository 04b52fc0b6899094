//! What a cubin says of its functions.

use std::collections::BTreeMap;
use std::process::Command;

use warpalloc_fuzz::image;
use warpalloc_sass::object::{Arch, Cubin, IndirectBranch, Linkage, Parameter, demangle};

use crate::tools::{CorpusCubin, Folder, assemble, corpus_cubins, output, tool};

#[test]
fn every_table_of_a_cubin_is_read() {
    let bytes = image::cubin();
    let cubin = Cubin::read(&bytes).unwrap();
    assert_eq!(cubin.arch.to_string(), "sm_90");
    assert_eq!((cubin.abi_version, cubin.linkage), (8, Linkage::Executable));
    let [k] = cubin.functions.as_slice() else {
        panic!("{:?}", cubin.functions)
    };
    assert_eq!((k.name, k.is_entry, k.code.len()), ("k", true, 0x60));
    assert_eq!(k.registers, Some(24));
    assert_eq!((k.frame_bytes, k.stack_bytes), (Some(16), Some(32)));
    assert_eq!((k.shared_bytes, k.reserved_shared_bytes), (0x110, 0x400));
    assert_eq!(
        (k.max_block(), k.block_threads()),
        (Some([32, 4, 1]), Some(128))
    );
    let [inner] = k.inner.as_slice() else {
        panic!("{:?}", k.inner)
    };
    assert_eq!(
        (inner.name, inner.offset, inner.size),
        ("inner", 0x40, 0x20)
    );
    assert_eq!(inner.frame_bytes, Some(8));
    let targets = vec![0x20, 0x30];
    assert_eq!(
        k.indirect_branches(),
        [IndirectBranch {
            offset: 0x10,
            targets
        }]
    );
    let parameter = |ordinal, offset| Parameter {
        ordinal,
        offset,
        size: 8,
    };
    assert_eq!(k.parameters(), [parameter(0, 0), parameter(1, 8)]);
    let [relocation] = k.relocations.as_slice() else {
        panic!("{:?}", k.relocations)
    };
    assert_eq!((relocation.offset, relocation.kind), (0x20, 56));
    assert_eq!((relocation.symbol, relocation.addend), (1, Some(0x30)));
    let banks: Vec<_> = k.constants.iter().map(|c| (c.bank, c.size)).collect();
    assert_eq!(banks, [(0, 0x210)]);
    let calls: Vec<_> = cubin.calls.iter().map(|c| (c.caller, c.callee)).collect();
    assert_eq!(calls, [(0, -1), (1, 2)]);
}

#[test]
fn both_layouts_of_the_header_flags_give_the_architecture() {
    let arch = |abi, flags| {
        let bytes = image::elf(190, abi, flags, &image::cubin_parts());
        Cubin::read(&bytes).unwrap().arch.to_string()
    };
    assert_eq!(arch(7, 0x0050_0550), "sm_80");
    assert_eq!(arch(7, 0x005a_0d5a), "sm_90a");
    assert_eq!(arch(8, 0x0601_5904), "sm_89");
    assert_eq!(arch(8, 0x0900_7902), "sm_121");
}

#[test]
fn architectures_are_written_in_three_ways() {
    let arch = |text: &str| text.parse::<Arch>().map(|arch| arch.to_string());
    assert_eq!(arch("90").unwrap(), "sm_90");
    assert_eq!(arch("sm_90a").unwrap(), "sm_90a");
    assert_eq!(arch("120f").unwrap(), "sm_120f");
    for wrong in ["", "sm_", "sm_90b", "sm_90aa", "ninety"] {
        let error = arch(wrong).unwrap_err();
        assert_eq!(
            error,
            format!("`{wrong}` is no architecture; one is 90, sm_90 or sm_90a")
        );
    }
}

#[test]
fn shared_memory_of_older_architectures_has_nothing_reserved() {
    let bytes = image::elf(190, 8, 0x0600_5004, &image::cubin_parts());
    let cubin = Cubin::read(&bytes).unwrap();
    let k = cubin.function("k").unwrap();
    assert_eq!((k.shared_bytes, k.reserved_shared_bytes), (0x510, 0));
}

#[test]
fn register_counts_without_an_attribute_come_from_the_section() {
    let mut parts = image::cubin_parts();
    parts[1].data.clear();
    parts[1].size = 0;
    parts[0].info |= 40 << 24;
    let bytes = image::elf(190, 7, 0x0050_0550, &parts);
    let cubin = Cubin::read(&bytes).unwrap();
    let k = cubin.function("k").unwrap();
    assert_eq!((k.registers, k.is_entry, k.symbol), (Some(40), true, 1));
}

#[test]
fn names_are_demangled_where_they_are_mangled() {
    let name = demangle("_ZN5space3addIfEEvPT_i").unwrap();
    assert_eq!(name, "void space::add<float>(float*, int)");
    assert_eq!(demangle("saxpy"), None);
    assert_eq!(demangle("_Znot a name"), None);
}

/// Every substitution stands for two of the one before it: 2^60 names once written out.
#[test]
fn names_that_unfold_without_end_are_not_demangled() {
    let mut name = "_Z1fI".to_owned();
    name.push_str("S_IiiE");
    for index in 0..30 {
        let digit = char::from_digit(index, 36).unwrap().to_ascii_uppercase();
        name.push_str(&format!("1aIS{digit}_S{digit}_E"));
    }
    name.push_str("Evv");
    assert!(demangle(&name).is_none_or(|long| long.len() <= 16 * 1024));
}

/// A function's registers, stack, shared memory and constant bank 0.
type Usage = BTreeMap<String, [u64; 4]>;

/// What `cuobjdump -res-usage` prints: a name on one line, `REG:24 STACK:0 …` on the next.
fn res_usage(text: &str) -> Usage {
    let mut found = BTreeMap::new();
    let mut name = None;
    for line in text.lines().map(str::trim) {
        if let Some(function) = line.strip_prefix("Function ") {
            name = Some(function.trim_end_matches(':').to_owned());
        } else if let Some(name) = name.take_if(|_| line.starts_with("REG:")) {
            let value = |key: &str| {
                let word = line.split(' ').find_map(|word| word.strip_prefix(key));
                word.map_or(0, |word| word.parse().unwrap())
            };
            let keys = ["REG:", "STACK:", "SHARED:", "CONSTANT[0]:"];
            found.insert(name, keys.map(value));
        }
    }
    found
}

fn own_usage(cubin: &Cubin) -> Usage {
    let usage = |f: &warpalloc_sass::object::Function| {
        let bank = f.constants.iter().find(|c| c.bank == 0);
        let values = [
            f.registers.unwrap_or(0).into(),
            f.stack_bytes.unwrap_or(0).into(),
            f.shared_bytes + f.reserved_shared_bytes,
            bank.map_or(0, |bank| bank.size),
        ];
        (f.name.to_owned(), values)
    };
    cubin.functions.iter().map(usage).collect()
}

#[test]
fn resources_are_those_that_cuobjdump_prints_or_is_skipped() {
    let Some(cuobjdump) = tool("cuobjdump") else {
        return;
    };
    let folder = Folder::new();
    for CorpusCubin { name, bytes } in corpus_cubins() {
        let path = folder.write("a.cubin", bytes);
        let said = output(Command::new(&cuobjdump).arg("-res-usage").arg(path));
        let cubin = Cubin::read(bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(own_usage(&cubin), res_usage(&said), "{name}");
        assert!(cubin.functions.iter().all(|f| f.is_entry), "{name}");
    }
}

const BLOCKS: &str = ".version 8.7\n.target sm_75\n.address_size 64\n\
.visible .entry most(.param .u64 p, .param .u32 n, .param .align 8 .b8 s[24]) .maxntid 128, 2, 1\n{\n ret;\n}\n\
.visible .entry exact() .reqntid 64\n{\n ret;\n}\n\
.visible .entry free()\n{\n ret;\n}\n";

#[test]
fn block_sizes_and_parameters_are_those_of_the_ptx_or_is_skipped() {
    let Some(ptxas) = tool("ptxas") else { return };
    for arch in ["sm_75", "sm_80", "sm_90", "sm_90a", "sm_100"] {
        let bytes = assemble(&ptxas, BLOCKS, arch, &[]).unwrap();
        let cubin = Cubin::read(&bytes).unwrap();
        assert_eq!(cubin.arch.to_string(), arch);
        let function = |name| cubin.function(name).unwrap();
        let most = function("most");
        assert_eq!(
            (most.max_block(), most.block_threads()),
            (Some([128, 2, 1]), Some(256))
        );
        let sizes: Vec<_> = most
            .parameters()
            .iter()
            .map(|p| (p.offset, p.size))
            .collect();
        assert_eq!(sizes, [(0, 8), (8, 4), (16, 24)]);
        let exact = function("exact");
        assert_eq!(
            (exact.required_block(), exact.block_threads()),
            (Some([64, 1, 1]), Some(64))
        );
        assert_eq!(function("free").block_threads(), None);
    }
}

#[test]
fn relocatable_cubins_have_device_functions_of_their_own_or_is_skipped() {
    let Some(ptxas) = tool("ptxas") else { return };
    let text = ".version 8.7\n.target sm_80\n.address_size 64\n\
        .visible .func (.param .b32 r) helper(.param .b32 a)\n{\n .reg .b32 %r<3>;\n \
        ld.param.u32 %r1, [a];\n add.s32 %r2, %r1, 1;\n st.param.b32 [r], %r2;\n ret;\n}\n\
        .visible .entry k(.param .u64 p)\n{\n .reg .b32 %r<3>;\n .reg .b64 %d;\n \
        .param .b32 a;\n .param .b32 r;\n ld.param.u64 %d, [p];\n mov.u32 %r1, %tid.x;\n \
        st.param.b32 [a], %r1;\n call (r), helper, (a);\n ld.param.b32 %r2, [r];\n \
        st.global.u32 [%d], %r2;\n ret;\n}\n";
    let bytes = assemble(&ptxas, text, "sm_80", &["-c"]).unwrap();
    let cubin = Cubin::read(&bytes).unwrap();
    assert_eq!(cubin.linkage, Linkage::Relocatable);
    let (k, helper) = (
        cubin.function("k").unwrap(),
        cubin.function("helper").unwrap(),
    );
    assert!(k.is_entry && !helper.is_entry);
    let called = |r: &&warpalloc_sass::object::Relocation| r.symbol as usize == helper.symbol;
    assert_eq!(k.relocations.iter().filter(called).count(), 1);
    let edge = (k.symbol as i32, helper.symbol as i32);
    assert!(cubin.calls.iter().any(|c| (c.caller, c.callee) == edge));
}
