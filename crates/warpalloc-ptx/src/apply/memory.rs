//! Spill memory: what is declared for it, what sets it up, how it is reached.
//!
//! ptxas is a second allocator behind ours. It promotes plain `.local` accesses at known
//! addresses back into registers, so local slots are reached through a generic address with
//! strong accesses, which it leaves where they stand. `.relaxed.cta` is served by the
//! first-level cache; `.volatile`, four times slower, is for targets without it.
//!
//! Shared slots are 32-bit words laid out `[word][thread]`: the threads of a warp always hit
//! 32 different banks, and a wide value is several words. That takes the size of the block,
//! so only entries that bound it can have them.

use super::name_liveness::NotExpressible;
use crate::ast;
use std::fmt::Write;
use warpalloc::allocation::{Frame, SlotAddr, Space};

/// The shared memory a kernel may declare statically.
const STATIC_SHARED_LIMIT: u64 = 48 * 1024;

/// The lowest byte of the frame lies at a multiple of this, and slots are aligned from there.
const FRAME_ALIGN: u32 = 16;

/// What the surroundings of a function allow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Surroundings {
    /// 32 or 64.
    pub address_size: u32,
    /// Whether `.relaxed.cta` exists.
    pub relaxed: bool,
    /// The most threads of a block, where the entry says so.
    pub threads: Option<Threads>,
    /// Bytes of shared memory that the kernel declares and is launched with.
    pub shared_bytes: u64,
}

/// The size of a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Threads {
    /// The most there may be.
    pub count: u32,
    /// All of them lie along the x axis.
    pub flat: bool,
}

impl Surroundings {
    /// Bytes of a frame in shared memory per thread that fit beside what the kernel has itself.
    pub fn shared_room(&self) -> u32 {
        let threads = self.threads.map_or(0, |threads| threads.count).max(1);
        let left = STATIC_SHARED_LIMIT.saturating_sub(self.shared_bytes) / u64::from(threads);
        // Slots are words.
        u32::try_from(left / 4 * 4).unwrap_or(u32::MAX)
    }
}

/// General registers that hold the address of a spill frame in `space`.
pub(crate) fn base_registers(space: Space, surroundings: &Surroundings) -> u32 {
    match space {
        Space::Local => surroundings.address_size / 32,
        _ => 1,
    }
}

/// The spill memory of one function.
pub(crate) struct Memory {
    frame: Frame,
    surroundings: Surroundings,
    threads: u32,
    suffix: String,
}

impl Memory {
    /// Memory for `frame`; `text` is the function's, whose names are not to be taken.
    pub fn new(
        frame: Frame,
        surroundings: Surroundings,
        text: &str,
    ) -> Result<Memory, NotExpressible> {
        let threads = surroundings.threads.map_or(0, |threads| threads.count);
        let bytes = u64::from(frame.shared.next_multiple_of(4)) * u64::from(threads);
        if frame.shared > 0 && threads == 0 {
            let message = "spilling to shared memory needs `.maxntid` or `.reqntid`";
            return Err(NotExpressible(message.to_owned()));
        }
        if frame.shared > surroundings.shared_room() {
            let own = surroundings.shared_bytes;
            return Err(NotExpressible(format!(
                "spilling to shared memory takes {bytes} bytes beside the kernel's own {own}, \
                 {STATIC_SHARED_LIMIT} are allowed"
            )));
        }
        Ok(Memory {
            frame,
            surroundings,
            threads,
            suffix: free_suffix(text),
        })
    }

    /// Declarations and the first instructions of the function.
    pub fn prologue(&self, out: &mut String) {
        if self.frame.local > 0 {
            self.local_prologue(out);
        }
        if self.frame.shared > 0 {
            self.shared_prologue(out);
        }
    }

    fn local_prologue(&self, out: &mut String) {
        let (size, bits, suffix) = (
            self.frame.local,
            self.surroundings.address_size,
            &self.suffix,
        );
        let mut lines = vec![format!(
            ".local .align {FRAME_ALIGN} .b8 __warpalloc_frame{suffix}[{size}];"
        )];
        if !self.is_mixed() {
            lines.push(format!(".reg .b{bits} %FRAME;"));
            lines.push(format!("mov.u{bits} \t%FRAME, __warpalloc_frame{suffix};"));
            lines.push(format!("cvta.local.u{bits} \t%FRAME, %FRAME;"));
        }
        for line in lines {
            let _ = write!(out, "\n\t{line}");
        }
    }

    fn shared_prologue(&self, out: &mut String) {
        let size = self.frame.shared.next_multiple_of(4) * self.threads;
        let suffix = &self.suffix;
        let is_flat = self.surroundings.threads.is_some_and(|t| t.flat);
        let mut lines = vec![
            format!(".shared .align 16 .b8 __warpalloc_slots{suffix}[{size}];"),
            ".reg .b32 %SLOTS, %THREAD<3>;".to_owned(),
        ];
        let linear: &[&str] = if is_flat {
            &["mov.u32 \t%THREAD0, %tid.x;"]
        } else {
            &[
                "mov.u32 \t%THREAD0, %tid.z;",
                "mov.u32 \t%THREAD1, %ntid.y;",
                "mov.u32 \t%THREAD2, %tid.y;",
                "mad.lo.u32 \t%THREAD0, %THREAD0, %THREAD1, %THREAD2;",
                "mov.u32 \t%THREAD1, %ntid.x;",
                "mov.u32 \t%THREAD2, %tid.x;",
                "mad.lo.u32 \t%THREAD0, %THREAD0, %THREAD1, %THREAD2;",
            ]
        };
        lines.extend(linear.iter().map(|&line| line.to_owned()));
        lines.push(format!("mov.u32 \t%SLOTS, __warpalloc_slots{suffix};"));
        lines.push("mad.lo.u32 \t%SLOTS, %THREAD0, 4, %SLOTS;".to_owned());
        for line in lines {
            let _ = write!(out, "\n\t{line}");
        }
    }

    /// Whether shared memory holds the slots accessed most, and local memory the others. ptxas may
    /// move accesses to those, which gains more than it loses by promoting some to registers
    /// (`docs/ptxas-behaviour.md`).
    fn is_mixed(&self) -> bool {
        self.frame.shared > 0 && self.frame.local > 0
    }

    /// Whether wide values go word by word.
    pub fn is_by_words(&self, space: Space) -> bool {
        space == Space::Shared
    }

    /// The address of a slot as it stands between brackets.
    pub fn address(&self, slot: SlotAddr) -> String {
        let from_start = i64::from(self.frame.size(slot.space)) + i64::from(slot.offset);
        match slot.space {
            Space::Shared => {
                let word = from_start.div_euclid(4) * i64::from(self.threads) * 4;
                format!("[%SLOTS+{}]", word + from_start.rem_euclid(4))
            }
            _ if self.is_mixed() => format!("[__warpalloc_frame{}+{from_start}]", self.suffix),
            _ => format!("[%FRAME+{from_start}]"),
        }
    }

    /// What stands between `ld` or `st` and the type.
    pub fn qualifier(&self, space: Space) -> &'static str {
        match space {
            Space::Shared => ".volatile.shared",
            _ if self.is_mixed() => ".local",
            _ if self.surroundings.relaxed => ".relaxed.cta",
            _ => ".volatile",
        }
    }
}

/// What makes our symbols differ from those a function has already.
fn free_suffix(text: &str) -> String {
    let taken = |suffix: &str| {
        ["frame", "slots"]
            .iter()
            .any(|stem| text.contains(&format!("__warpalloc_{stem}{suffix}")))
    };
    match taken("") {
        false => String::new(),
        true => (1..)
            .map(|n| format!("_{n}"))
            .find(|suffix| !taken(suffix))
            .unwrap_or_default(),
    }
}

/// Bytes a variable takes, counting alignment as if it came first.
pub(crate) fn variable_bytes(var: &ast::VarDecl) -> u64 {
    let element = match var.ty {
        "b16" | "u16" | "s16" | "f16" | "bf16" => 2,
        "b32" | "u32" | "s32" | "f32" | "f16x2" | "bf16x2" => 4,
        "b64" | "u64" | "s64" | "f64" => 8,
        "b128" => 16,
        _ => 1,
    };
    let size = |declarator: &ast::Declarator| {
        let dims = declarator.dims.iter().map(|dim| dim.unwrap_or(0));
        let elements = dims.fold(1u64, u64::saturating_mul);
        let count = u64::from(declarator.count.unwrap_or(1));
        elements
            .saturating_mul(element * u64::from(var.vector))
            .saturating_mul(count)
            .next_multiple_of(u64::from(var.align.unwrap_or(1).max(1)))
    };
    var.names.iter().map(size).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn surroundings() -> Surroundings {
        Surroundings {
            address_size: 64,
            relaxed: true,
            threads: Some(Threads {
                count: 128,
                flat: false,
            }),
            shared_bytes: 1024,
        }
    }

    #[test]
    fn slots_grow_down_from_the_end_of_the_frame() {
        let memory = |local, shared| {
            let frame = Frame { local, shared };
            Memory::new(frame, surroundings(), "__warpalloc_frame").unwrap()
        };
        let slot = |space, offset| SlotAddr { space, offset };
        let local = memory(28, 0);
        assert_eq!(local.address(slot(Space::Local, -4)), "[%FRAME+24]");
        assert_eq!(local.address(slot(Space::Local, -28)), "[%FRAME+0]");
        let memory = memory(28, 8);
        let direct = "[__warpalloc_frame_1+24]";
        assert_eq!(memory.address(slot(Space::Local, -4)), direct);
        assert_eq!(memory.address(slot(Space::Shared, -4)), "[%SLOTS+512]");
        assert_eq!(memory.address(slot(Space::Shared, -8)), "[%SLOTS+0]");
        assert_eq!(memory.address(slot(Space::Shared, -6)), "[%SLOTS+2]");
        let bases = [Space::Local, Space::Shared].map(|s| base_registers(s, &surroundings()));
        assert_eq!(bases, [2, 1]);
    }

    #[test]
    fn shared_memory_has_its_limits() {
        let frame = |shared| Frame { local: 0, shared };
        let full = (48 * 1024 - 1024) / 128;
        assert!(Memory::new(frame(full), surroundings(), "").is_ok());
        assert!(Memory::new(frame(full + 4), surroundings(), "").is_err());
        let unbounded = Surroundings {
            threads: None,
            ..surroundings()
        };
        assert!(Memory::new(frame(4), unbounded, "").is_err());
        assert!(Memory::new(frame(0), unbounded, "").is_ok());
    }

    #[test]
    fn symbols_that_exist_are_left_alone() {
        assert_eq!(free_suffix("x"), "");
        assert_eq!(free_suffix("__warpalloc_frame[4]"), "_1");
    }
}
