//! Data movement and conversion.

use super::modifier::{is_integer_type, type_bits, types, width_of_bits};
use super::row::{Row, cheap, exchanges, ordered, pure, reads, remat, together};
use super::{
    AddressShape, Description, Effect, InstrShape, OperandRole, OperandShape, Ty, UnknownReason,
    Width,
};

pub(super) const ROWS: &[Row] = &[
    // Registers.
    pure("mov", "=any* any*").refined(mov),
    cheap("prmt", 1, "=32 32 32 32"),
    pure("cvt", "=~D ~T* ...").refined(cvt),
    pure("cvt.pack", "=~32 ~32 ~32 ~32?"),
    cheap("cvta", 1, "=T T"),
    pure("isspacep", "=1 any"),
    pure("mapa", "=T T 32"),
    pure("getctarank", "=32 T"),
    // Exchange between the threads of a warp.
    together("shfl", "=32|1 32 32 32 32?"),
    together("vote", ".ballot: =32 1 32?; =1 1 32?"),
    together("match", "=32|1 T 32"),
    together("redux", "=32 32 32"),
    together("activemask", "=32"),
    together("elect", "=32|1 32"),
    // Loads and stores.
    reads("ld", "=~T* [] 64?").grouped(8).refined(load),
    reads("ldu", "=~T* []").grouped(4),
    ordered("st", "[] ~T* 64?").grouped(8),
    ordered("st.async", "[] T* []?").grouped(4),
    ordered("st.bulk", "[] any #"),
    ordered("red.async", "[] T []?"),
    ordered("multimem.ld_reduce", "=T* []").grouped(4),
    ordered("multimem.st", "[] T*").grouped(4),
    ordered("multimem.red", "[] T*").grouped(4),
    ordered("multimem.st.async", "[] T* ...").grouped(4),
    ordered("multimem.red.async", "[] T* ...").grouped(4),
    ordered("multimem.cp.async.bulk", "[] [] 32 ..."),
    ordered("multimem.cp.reduce.async.bulk", "[] [] 32 ..."),
    // Cache hints.
    ordered("prefetch", "[]"),
    ordered("prefetchu", "[]"),
    ordered("applypriority", "[] #"),
    ordered("discard", "[] #"),
    pure("createpolicy.fractional", "=64 32?"),
    pure("createpolicy.range", "=64 [] 32 32"),
    pure("createpolicy.cvt", "=64 64"),
    // Asynchronous copies: sizes, masks and policies are all read.
    ordered("cp.async", "[] [] # ..."),
    ordered("cp.async.commit_group", ""),
    ordered("cp.async.wait_group", "#"),
    ordered("cp.async.wait_all", ""),
    ordered("cp.async.mbarrier", "[]"),
    ordered("cp.async.bulk", "[] [] 32 ..."),
    ordered("cp.async.bulk.prefetch", "[] 32 64?"),
    ordered("cp.async.bulk.prefetch.tensor", "[] ..."),
    ordered("cp.async.bulk.tensor", "[] [] ..."),
    ordered("cp.async.bulk.commit_group", ""),
    ordered("cp.async.bulk.wait_group", "#"),
    ordered("cp.reduce.async.bulk", "[] [] 32 ..."),
    ordered("cp.reduce.async.bulk.tensor", "[] [] 64?"),
    ordered("tensormap.replace", "[] any any?"),
    ordered("tensormap.cp_fenceproxy", "[] [] #"),
    // Matrices between shared memory and registers.
    exchanges("ldmatrix", "=32* []").grouped(4),
    together("stmatrix", "[] 32*").grouped(4),
    exchanges("movmatrix", "=32 32"),
];

/// Reading a special register takes a detour through another unit.
const SPECIAL_CYCLES: u8 = 2;

/// Kernel parameters lie in a constant bank, which most instructions read as an operand.
const PARAMETER_CYCLES: u8 = 0;

/// `mov` copies a register, packs or unpacks one, or materialises a constant, an address or a special register.
fn mov(shape: &InstrShape, description: &mut Description) -> Result<(), UnknownReason> {
    use OperandShape::*;
    let bits = types(shape)
        .next_back()
        .and_then(type_bits)
        .ok_or(UnknownReason::Type(0))?;
    let lane = |lanes: u8| match lanes {
        0 | 1 => width_of_bits(bits),
        lanes if bits % u16::from(lanes) == 0 && bits > 1 => width_of_bits(bits / u16::from(lanes)),
        _ => None,
    };
    let (destination, source) = match (shape.operands[0], shape.operands[1]) {
        // `mov.v4.u32 {a, b, c, d}, %tid` moves whole elements; without `.v4` a vector is a register taken apart.
        (Vector(wanted), Special { lanes, .. }) if wanted <= lanes => (lane(1), lane(1)),
        (Vector(to), Vector(from)) if to == from && shape.has_any(&["v2", "v4"]) => {
            (lane(1), lane(1))
        }
        (Vector(lanes), Register) => (lane(lanes), lane(1)),
        (Register, Vector(lanes)) => (lane(1), lane(lanes)),
        (Vector(_), _) | (_, Vector(_)) => (None, None),
        _ => (lane(1), lane(1)),
    };
    let exactly =
        |width: Option<Width>, index| width.map(Ty::Exactly).ok_or(UnknownReason::Type(index));
    description.operands[0].role = OperandRole::Def(exactly(destination, 0)?);
    description.operands[1].role = OperandRole::Use(exactly(source, 1)?);
    description.copy = matches!(shape.operands, [Register | Vector(_), Register | Vector(_)]);
    if matches!(shape.operands[1], Special { volatile: true, .. }) {
        description.effect = Effect::Write;
    } else if !description.copy {
        let special = matches!(shape.operands[1], Special { .. });
        description.remat = remat(shape, if special { SPECIAL_CYCLES } else { 1 });
    }
    Ok(())
}

/// Only conversions between integers are cheap; those with several sources build packed values.
fn cvt(shape: &InstrShape, description: &mut Description) -> Result<(), UnknownReason> {
    if types(shape).count() < 2 {
        return Err(UnknownReason::Type(1));
    }
    if types(shape).all(is_integer_type) && shape.operands.len() == 2 {
        description.remat = remat(shape, 1);
    }
    Ok(())
}

/// What a load may be reordered with depends on where it reads and on the order it asks for.
fn load(shape: &InstrShape, description: &mut Description) -> Result<(), UnknownReason> {
    let parameter = shape
        .modifiers
        .iter()
        .any(|m| m.split("::").next() == Some("param"));
    let of_kernel =
        shape.operands.get(1) == Some(&OperandShape::Memory(AddressShape::KernelParameter));
    description.effect = if shape.has_any(&["volatile", "relaxed", "acquire", "mmio"]) {
        Effect::Write
    } else if parameter && of_kernel {
        description.remat = remat(shape, PARAMETER_CYCLES);
        Effect::Pure
    } else if parameter {
        // Results of a call, or arguments of this function: they stay beside the call or the entry.
        Effect::Write
    } else if shape.has_any(&["nc", "const"]) {
        Effect::Pure
    } else {
        Effect::Read
    };
    Ok(())
}
