//! Modifiers: the types among them, and the vocabulary of all others.
//!
//! The vocabulary is one set for the whole ISA. It is there to notice what a newer ISA adds, not to check PTX: whether a
//! modifier may stand at an instruction is for ptxas to say.

use super::{InstrShape, Width};
use rustc_hash::FxHashSet;
use std::sync::LazyLock;

/// Bits of a value of this type; `None` for a modifier that is no type. Sub-byte matrix elements count as what a
/// register of a fragment holds: 32 bits.
pub(crate) fn type_bits(modifier: &str) -> Option<u16> {
    Some(match modifier {
        "pred" => 1,
        "b8" | "u8" | "s8" | "e4m3" | "e5m2" | "e3m2" | "e2m3" | "e2m1" | "ue8m0" | "ue4m3"
        | "e2m1x2" => 8,
        "b16" | "u16" | "s16" | "f16" | "bf16" => 16,
        "e4m3x2" | "e5m2x2" | "e2m3x2" | "e3m2x2" | "ue8m0x2" | "s2f6x2" | "e2m1x4" => 16,
        "b32" | "u32" | "s32" | "f32" | "tf32" | "b1" | "b4" | "u4" | "s4" => 32,
        "f16x2" | "bf16x2" | "u16x2" | "s16x2" | "u8x4" | "s8x4" => 32,
        "e4m3x4" | "e5m2x4" | "e2m3x4" | "e3m2x4" => 32,
        "b64" | "u64" | "s64" | "f64" | "f32x2" => 64,
        "b128" => 128,
        _ => return None,
    })
}

/// Whether the type is an integer or a plain bit string.
pub(super) fn is_integer_type(modifier: &str) -> bool {
    matches!(modifier.as_bytes(), [b'b' | b'u' | b's', b'0'..=b'9', ..])
        && type_bits(modifier).is_some()
}

/// The width of the register that holds so many bits.
pub(super) fn width_of_bits(bits: u16) -> Option<Width> {
    Some(match bits {
        1 => Width::B1,
        8 | 16 => Width::B16,
        32 => Width::B32,
        64 => Width::B64,
        128 => Width::B128,
        _ => return None,
    })
}

/// The type modifiers of an instruction, in order.
pub(super) fn types<'a>(shape: &InstrShape<'a>) -> impl DoubleEndedIterator<Item = &'a str> {
    shape
        .modifiers
        .iter()
        .copied()
        .filter(|m| type_bits(m).is_some())
}

/// Whether the ISA uses this modifier anywhere.
pub(super) fn is_known(modifier: &str) -> bool {
    if type_bits(modifier).is_some() {
        return true;
    }
    match modifier.split_once("::") {
        Some((head, tail)) => HEADS.contains(head) && tail.split("::").all(|t| !t.is_empty()),
        None => WORDS.contains(modifier) || is_shape(modifier),
    }
}

/// `m16n8k16`, `m8n8`, `x4`, `v2`, `2d`, `16x256b`, `16x32bx2` and their like: letters and numbers in turn.
fn is_shape(modifier: &str) -> bool {
    let (mut letters, mut digits, mut run) = (0, 0, 0);
    for c in modifier.bytes() {
        match c {
            b'0'..=b'9' => (digits, run) = (digits + 1, 0),
            b'a'..=b'z' => (letters, run) = (letters + 1, run + 1),
            _ => return false,
        }
        if run > 2 {
            return false;
        }
    }
    digits > 0
        && letters > 0
        && modifier
            .bytes()
            .all(|c| c.is_ascii_digit() || b"mnkxvdbmsap".contains(&c))
        && type_bits(modifier).is_none()
}

/// Heads of `head::tail` modifiers; their tails only tune.
const QUALIFIED: &str = "L1 L2 acc async collector cta_group fence get_first_ctaid im2col kind layout mbarrier multicast \
                         pack param scale_vec scaled shared sp sync_restrict tensormap tile unpack wait warpx2";

static HEADS: LazyLock<FxHashSet<&str>> = LazyLock::new(|| QUALIFIED.split(' ').collect());

static WORDS: LazyLock<FxHashSet<&str>> =
    LazyLock::new(|| VOCABULARY.iter().flat_map(|l| l.split(' ')).collect());

const VOCABULARY: &[&str] = &[
    // rounding, range, approximation
    "rn rz rm rp rna rs rni rzi rmi rpi sat satfinite relu ftz noftz approx full abs xorsign NaN oob nan wrap clamp",
    // arithmetic
    "hi lo wide cc shiftamt l r f4e b4e rc8 ecl ecr rc16 shr7 shr15 po",
    // comparison and tests
    "eq ne lt le gt ge ls hs equ neu ltu leu gtu geu num and or xor not",
    "finite infinite notanumber number normal subnormal",
    // state spaces, addressing, caches, order
    "global local shared const param to tex surf nc ca cg cs lu cv wb wt volatile relaxed acquire release acq_rel sc",
    "weak mmio unified cta cluster gpu sys gl level L1 L2 range fractional cvt pack",
    // warp level
    "sync up down bfly idx all any uni ballot warp trans aligned",
    // atomics and reductions
    "add min max inc dec cas exch ll popc sum",
    // copies
    "async bulk commit_group wait_group wait_all read tensor prefetch reduce mbarrier arrive noinc bulk_group tile",
    "im2col im2col_no_offs cp_mask ignore_oob tensormap replace cp_fenceproxy",
    "global_address rank box_dim global_dim global_stride element_stride elemtype interleave_layout swizzle_mode",
    "swizzle_atomicity fill_mode",
    // textures and surfaces
    "base grad cube acube a1d a2d 2dms a2dms b p zero trap mip g a width height depth channel_data_type",
    "channel_order normalized_coords force_unnormalized_coords filter_mode addr_mode_0 addr_mode_1 addr_mode_2",
    "array_size num_mipmap_levels num_samples memory_layout texref samplerref surfref",
    // synchronisation
    "red init inval expect_tx complete_tx arrive_drop noComplete test_wait try_wait parity pending_count wait proxy",
    "alias mbarrier_init thread sync_restrict launch_dependents try_cancel query_cancel is_canceled get_first_ctaid",
    "mask check_layout",
    // matrices
    "cp load store mma_async fence row col d c sp block_scale mma ld st alloc dealloc relinquish_alloc_permit shift commit",
    "ws pred warpx4 warpx2 32x128b ashift down block16 block32 b8x16 b6x16_p32 b4x16_p64 pack ld_reduce bit",
    // register budget
    "inc dec",
];
