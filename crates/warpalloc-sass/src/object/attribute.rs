//! Attributes of a cubin and of its functions: the sections `.nv.info` and `.nv.info.NAME`.
//!
//! An attribute is two bytes, its format and its kind, and a value: nothing, a byte or a half
//! word in the next two bytes, or, by format 4, as many bytes as those two say.

use std::fmt;

use super::ObjectError;
use super::window::{u16_at, u32_at, words};

/// What an attribute is about, by the number in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttributeKind(pub u8);

/// Names the kinds, each by a constant and by the name the vendor's tools print.
macro_rules! kinds {
    ($($number:literal $name:ident,)*) => {
        impl AttributeKind {
            $(
                #[doc = concat!("`EIATTR_", stringify!($name), "`")]
                pub const $name: AttributeKind = AttributeKind($number);
            )*

            /// Every kind that has a name, by number.
            pub const NAMED: &[AttributeKind] = &[$(AttributeKind($number)),*];

            /// The name without `EIATTR_`; `None` for numbers without one.
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($number => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

kinds! {
    0x00 ERROR,
    0x01 PAD,
    0x02 IMAGE_SLOT,
    0x03 JUMPTABLE_RELOCS,
    0x04 CTAIDZ_USED,
    0x05 MAX_THREADS,
    0x06 IMAGE_OFFSET,
    0x07 IMAGE_SIZE,
    0x08 TEXTURE_NORMALIZED,
    0x09 SAMPLER_INIT,
    0x0a PARAM_CBANK,
    0x0b SMEM_PARAM_OFFSETS,
    0x0c CBANK_PARAM_OFFSETS,
    0x0d SYNC_STACK,
    0x0e TEXID_SAMPID_MAP,
    0x0f EXTERNS,
    0x10 REQNTID,
    0x11 FRAME_SIZE,
    0x12 MIN_STACK_SIZE,
    0x13 SAMPLER_FORCE_UNNORMALIZED,
    0x14 BINDLESS_IMAGE_OFFSETS,
    0x15 BINDLESS_TEXTURE_BANK,
    0x16 BINDLESS_SURFACE_BANK,
    0x17 KPARAM_INFO,
    0x18 SMEM_PARAM_SIZE,
    0x19 CBANK_PARAM_SIZE,
    0x1a QUERY_NUMATTRIB,
    0x1b MAXREG_COUNT,
    0x1c EXIT_INSTR_OFFSETS,
    0x1d S2RCTAID_INSTR_OFFSETS,
    0x1e CRS_STACK_SIZE,
    0x1f NEED_CNP_WRAPPER,
    0x20 NEED_CNP_PATCH,
    0x21 EXPLICIT_CACHING,
    0x22 ISTYPEP_USED,
    0x23 MAX_STACK_SIZE,
    0x24 SUQ_USED,
    0x25 LD_CACHEMOD_INSTR_OFFSETS,
    0x26 LOAD_CACHE_REQUEST,
    0x27 ATOM_SYS_INSTR_OFFSETS,
    0x28 COOP_GROUP_INSTR_OFFSETS,
    0x29 COOP_GROUP_MASK_REGIDS,
    0x2a SW1850030_WAR,
    0x2b WMMA_USED,
    0x2c HAS_PRE_V10_OBJECT,
    0x2d ATOMF16_EMUL_INSTR_OFFSETS,
    0x2e ATOM16_EMUL_INSTR_REG_MAP,
    0x2f REGCOUNT,
    0x30 SW2393858_WAR,
    0x31 INT_WARP_WIDE_INSTR_OFFSETS,
    0x32 SHARED_SCRATCH,
    0x33 STATISTICS,
    0x34 INDIRECT_BRANCH_TARGETS,
    0x35 SW2861232_WAR,
    0x36 SW_WAR,
    0x37 CUDA_API_VERSION,
    0x38 NUM_MBARRIERS,
    0x39 MBARRIER_INSTR_OFFSETS,
    0x3a COROUTINE_RESUME_ID_OFFSETS,
    0x3b SAM_REGION_STACK_SIZE,
    0x3c PER_REG_TARGET_PERF_STATS,
    0x3d CTA_PER_CLUSTER,
    0x3e EXPLICIT_CLUSTER,
    0x3f MAX_CLUSTER_RANK,
    0x40 INSTR_REG_MAP,
    0x41 RESERVED_SMEM_USED,
    0x42 RESERVED_SMEM_0_SIZE,
    0x43 UCODE_SECTION_DATA,
    0x44 UNUSED_LOAD_BYTE_OFFSET,
    0x45 KPARAM_INFO_V2,
    0x46 SYSCALL_OFFSETS,
    0x47 SW_WAR_MEMBAR_SYS_INSTR_OFFSETS,
    0x48 GRAPHICS_GLOBAL_CBANK,
    0x49 SHADER_TYPE,
    0x4a VRC_CTA_INIT_COUNT,
    0x4b TOOLS_PATCH_FUNC,
    0x4c NUM_BARRIERS,
    0x4d TEXMODE_INDEPENDENT,
    0x4e PERF_STATISTICS,
    0x4f AT_ENTRY_FRAGMENTS,
    0x50 SPARSE_MMA_MASK,
    0x51 TCGEN05_1CTA_USED,
    0x52 TCGEN05_2CTA_USED,
    0x53 GEN_ERRBAR_AT_EXIT,
    0x54 REG_RECONFIG,
    0x55 ANNOTATIONS,
    0x57 STACK_CANARY_TRAP_OFFSETS,
    0x58 STUB_FUNCTION_KIND,
    0x59 LOCAL_CTA_ASYNC_STORE_OFFSETS,
    0x5a MERCURY_FINALIZER_OPTIONS,
    0x5b BLOCKS_ARE_CLUSTERS,
    0x5c SANITIZE,
    0x5d SYSCALLS_FALLBACK,
    0x5e CUDA_REQ,
    0x5f MERCURY_ISA_VERSION,
    0x61 RTCORE_ENTRY,
    0x62 CLUSTER_LAUNCH_CONTROL_USED,
    0x64 MIN_PER_CTA_MEMORY_SIZE,
    0x65 IGNOREOOB_CP_ASYNC_BULK_INSTR_OFFSETS,
    0x66 LANGUAGE,
}

impl AttributeKind {
    /// Whether the value is a list of offsets of instructions in the function's code.
    pub fn is_offset_list(self) -> bool {
        matches!(
            self,
            AttributeKind::EXIT_INSTR_OFFSETS
                | AttributeKind::S2RCTAID_INSTR_OFFSETS
                | AttributeKind::LD_CACHEMOD_INSTR_OFFSETS
                | AttributeKind::ATOM_SYS_INSTR_OFFSETS
                | AttributeKind::COOP_GROUP_INSTR_OFFSETS
                | AttributeKind::ATOMF16_EMUL_INSTR_OFFSETS
                | AttributeKind::INT_WARP_WIDE_INSTR_OFFSETS
                | AttributeKind::SW_WAR_MEMBAR_SYS_INSTR_OFFSETS
        )
    }
}

impl fmt::Display for AttributeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "EIATTR_{name}"),
            None => write!(f, "attribute {:#04x}", self.0),
        }
    }
}

/// The value of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttributeValue<'d> {
    /// That it is there is all it says.
    Present,
    /// A byte.
    Byte(u8),
    /// Two bytes.
    Half(u16),
    /// Bytes whose meaning the kind gives.
    Bytes(&'d [u8]),
}

/// One attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attribute<'d> {
    /// What it is about.
    pub kind: AttributeKind,
    /// Where it begins in its section.
    pub offset: usize,
    /// Its value.
    pub value: AttributeValue<'d>,
}

/// An attribute before its value is read.
const HEADER: usize = 4;

impl<'d> Attribute<'d> {
    /// The attributes in `data`, the content of the section `region`.
    pub(crate) fn parse_all(
        data: &'d [u8],
        region: &str,
    ) -> Result<Vec<Attribute<'d>>, ObjectError> {
        let mut found = Vec::new();
        let mut at = 0;
        while at < data.len() {
            let wrong = |problem: String| ObjectError::malformed(region, at as u64, problem);
            let Some(&[format, kind, byte, high]) = data.get(at..at + HEADER) else {
                let problem = format!("{} bytes are left for an attribute", data.len() - at);
                return Err(wrong(problem));
            };
            let half = u16::from_le_bytes([byte, high]);
            let (value, size) = match format {
                1 => (AttributeValue::Present, 0),
                2 => (AttributeValue::Byte(byte), 0),
                3 => (AttributeValue::Half(half), 0),
                4 => {
                    let size = usize::from(half);
                    let value = data.get(at + HEADER..at + HEADER + size).ok_or_else(|| {
                        let left = data.len() - at - HEADER;
                        let kind = AttributeKind(kind);
                        wrong(format!("{kind} has {size} bytes, and {left} are left"))
                    })?;
                    (AttributeValue::Bytes(value), size)
                }
                other => return Err(wrong(format!("an attribute has format {other}"))),
            };
            found.push(Attribute {
                kind: AttributeKind(kind),
                offset: at,
                value,
            });
            at += HEADER + size;
        }
        Ok(found)
    }

    /// The bytes of the value, empty where it is not of that format.
    pub fn bytes(&self) -> &'d [u8] {
        match self.value {
            AttributeValue::Bytes(bytes) => bytes,
            _ => &[],
        }
    }

    /// The value as words.
    pub fn words(&self) -> impl Iterator<Item = u32> + 'd {
        words(self.bytes())
    }

    /// The value as a number, whatever its width; `None` where it has more than one word.
    pub fn number(&self) -> Option<u32> {
        match self.value {
            AttributeValue::Present => None,
            AttributeValue::Byte(byte) => Some(byte.into()),
            AttributeValue::Half(half) => Some(half.into()),
            AttributeValue::Bytes(bytes) if bytes.len() == 4 => u32_at(bytes, 0),
            AttributeValue::Bytes(_) => None,
        }
    }

    /// The symbol and the number of an attribute in `.nv.info`, such as a register count.
    pub fn of_symbol(&self) -> Option<(u32, u32)> {
        let bytes = self.bytes();
        (bytes.len() == 8).then_some((u32_at(bytes, 0)?, u32_at(bytes, 4)?))
    }

    /// Threads of a block along its three dimensions.
    pub fn dimensions(&self) -> Option<[u32; 3]> {
        let bytes = self.bytes();
        Some([u32_at(bytes, 0)?, u32_at(bytes, 4)?, u32_at(bytes, 8)?])
    }

    /// The parameter that `EIATTR_KPARAM_INFO` describes.
    pub fn parameter(&self) -> Option<Parameter> {
        if self.kind != AttributeKind::KPARAM_INFO {
            return None;
        }
        let bytes = self.bytes();
        Some(Parameter {
            ordinal: u16_at(bytes, 4)?,
            offset: u16_at(bytes, 6)?,
            // The upper 14 bits of the last word; below are the space and the alignment.
            size: u32_at(bytes, 8)? >> 18,
        })
    }

    /// The branches of `EIATTR_INDIRECT_BRANCH_TARGETS`; `None` where the list ends early.
    pub fn indirect_branches(&self) -> Option<Vec<IndirectBranch>> {
        let mut words = self.words();
        let mut found = Vec::new();
        while let Some(offset) = words.next() {
            let _unknown = words.next()?;
            let count = words.next()? as usize;
            let targets: Vec<u32> = words.by_ref().take(count).collect();
            if targets.len() < count {
                return None;
            }
            found.push(IndirectBranch { offset, targets });
        }
        Some(found)
    }
}

/// A parameter of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its position in the declaration, from zero.
    pub ordinal: u16,
    /// Where it begins in the parameter space.
    pub offset: u16,
    /// Its bytes.
    pub size: u32,
}

/// A branch to one of several places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndirectBranch {
    /// Offset of the branch in the function's code.
    pub offset: u32,
    /// Offsets it may go to.
    pub targets: Vec<u32>,
}
