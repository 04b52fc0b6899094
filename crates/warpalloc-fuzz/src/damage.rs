//! Breaking things at random.

use warpalloc::Allocation;
use warpalloc::allocation::{Edit, Edits, Point, SlotAddr, Space};
use warpalloc::function::{Function, Inst};
use warpalloc::generate::Rng;
use warpalloc::target::{File, PReg, Target};

/// A few bytes or numbers of a file replaced, or its end cut off.
pub fn bytes(file: &mut Vec<u8>, rng: &mut Rng) {
    const NUMBERS: [u64; 8] = [0, 1, 0x7f, 0xff, 0xffff, 0x7fff_ffff, 0xffff_ffff, u64::MAX];
    for _ in 0..rng.within(1..=4) {
        let at = rng.below(file.len());
        let end = (at + (1 << rng.below(4))).min(file.len());
        match rng.below(8) {
            0 => file.truncate(at),
            1..=3 => {
                let number = rng
                    .pick(&NUMBERS)
                    .map_or([0; 8], |number| number.to_le_bytes());
                file[at..end].copy_from_slice(&number[..end - at]);
            }
            _ => {
                if let Some(byte) = file.get_mut(at) {
                    *byte = rng.below(256) as u8;
                }
            }
        }
    }
}

/// `text` with a few places changed: bytes replaced, pieces repeated, cut or moved.
pub(crate) fn text(text: &str, rng: &mut Rng) -> String {
    const PIECES: [&str; 16] = [
        " ", "\n", ",", ":", "=", "->", "(", "}", "v0", "v9", "block1", "R0", "early ", "0", "\"",
        "@",
    ];
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..rng.within(1..=4) {
        let at = rng.below(bytes.len());
        let end = (at + rng.within(1..=8)).min(bytes.len());
        match rng.below(4) {
            0 => {
                bytes.drain(at..end);
            }
            1 => {
                let piece = bytes[at..end].to_vec();
                let to = rng.below(bytes.len());
                bytes.splice(to..to, piece);
            }
            2 => {
                let piece = rng.pick(&PIECES).copied().unwrap_or("");
                bytes.splice(at..at, piece.bytes());
            }
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = rng.below(128) as u8;
                }
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Changes one thing about `allocation`.
pub(crate) fn allocation(
    function: &Function,
    target: &Target,
    allocation: &mut Allocation,
    rng: &mut Rng,
) {
    let mut edits: Vec<(Point, Edit)> = allocation
        .edits
        .iter()
        .map(|(point, edit)| (point, edit.clone()))
        .collect();
    let at = rng.below(edits.len());
    match rng.below(10) {
        0 | 1 => {
            let operand = rng.below(allocation.registers.len());
            if let Some(reg) = allocation.registers.get_mut(operand) {
                *reg = register(target, rng);
            }
        }
        2 => {
            let (a, b) = (
                rng.below(allocation.registers.len()),
                rng.below(allocation.registers.len()),
            );
            if !allocation.registers.is_empty() {
                allocation.registers.swap(a, b);
            }
        }
        3 if !edits.is_empty() => {
            edits.remove(at);
        }
        4 if !edits.is_empty() => {
            let copy = edits[at].clone();
            edits.insert(rng.below(edits.len()), copy);
        }
        5 if edits.len() > 1 => {
            let other = rng.below(edits.len());
            let (a, b) = (edits[at].1.clone(), edits[other].1.clone());
            edits[at].1 = b;
            edits[other].1 = a;
        }
        6 | 7 if !edits.is_empty() => edit(target, &mut edits[at].1, rng),
        8 => {
            let frame = &mut allocation.frame;
            frame.local = frame.local.wrapping_sub(4 * rng.within(1..=2) as u32);
        }
        _ => {
            let insts: Vec<Inst> = function.insts().collect();
            if let Some(&inst) = rng.pick(&insts) {
                allocation.deleted.insert(inst);
            }
        }
    }
    allocation.edits = Edits::new(function, edits);
}

/// A register that may or may not exist.
fn register(target: &Target, rng: &mut Rng) -> PReg {
    let file = match rng.below(8) {
        0 => File::new(rng.below(6)),
        _ => File::R,
    };
    let exists = file.index() < target.files().len();
    let units = if exists { target.file(file).units } else { 4 };
    let unit = match rng.below(16) {
        0 => 65_535 - rng.below(4),
        _ => rng.below(units + 2),
    };
    PReg::new(file, unit)
}

fn edit(target: &Target, edit: &mut Edit, rng: &mut Rng) {
    match edit {
        Edit::Move { to, from, width } => {
            change(target, to, width, rng);
            if rng.one_in(3) {
                *from = register(target, rng);
            }
        }
        Edit::Swap { a, b, width } => {
            change(target, a, width, rng);
            if rng.one_in(3) {
                *b = register(target, rng);
            }
        }
        Edit::Transfer { to, regs, .. } => change(target, to, regs, rng),
        Edit::Store { to, from, width } => {
            change(target, from, width, rng);
            slot(to, rng);
        }
        Edit::Reload { to, from, width } => {
            change(target, to, width, rng);
            slot(from, rng);
        }
        Edit::Recompute { regs, .. } => {
            let at = rng.below(regs.len());
            match regs.get_mut(at) {
                Some(reg) => *reg = register(target, rng),
                None => regs.push(register(target, rng)),
            }
        }
    }
}

/// Changes a register or a width, or neither.
fn change(target: &Target, reg: &mut PReg, width: &mut u8, rng: &mut Rng) {
    match rng.below(4) {
        0 => *width = rng.below(10) as u8,
        1 | 2 => *reg = register(target, rng),
        _ => {}
    }
}

fn slot(slot: &mut SlotAddr, rng: &mut Rng) {
    match rng.below(6) {
        0 => slot.space = Space::Shared,
        1 => slot.offset = i32::MIN + rng.below(8) as i32,
        2 => slot.offset = slot.offset.wrapping_add(4),
        3 => slot.offset = slot.offset.wrapping_sub(2),
        _ => {}
    }
}
