//! Random functions for tests, fuzzing and benches.
//!
//! [`function`] makes a function of a given [`Shape`] for a target. The function
//! - keeps all rules of the model ([`Function::validate`]);
//! - can be allocated by keeping every value in memory: the operands of each instruction fit
//!   the target's registers together, at any budget from four registers on;
//! - looks like code: mostly arithmetic on one to three recent values, some loads, stores and
//!   constants, compares that feed branches, accumulators carried around loops.
//!
//! *Pressure* is steered by a window of values that still have a use to come. Inputs come
//! from the window, results enter it, and when the window outgrows the wanted pressure, an
//! old value gets its last use. What leaves the window is never read again, so that pressure
//! stays near the target however long the function is.
//!
//! *Control flow* is grown as nested regions: diamonds, switches, loops that test first or
//! last, early exits, and, if asked for, loops with two entries, which no structured
//! language has. Every region starts from the window at its entry, so that values are written
//! on every path to a read.
//!
//! ```
//! use warpalloc::generate::{self, Rng, Shape};
//! use warpalloc::target::Target;
//!
//! let target = Target::cicc();
//! let function = generate::function(&Shape::typical(), &target, &mut Rng::new(1));
//! assert_eq!(function.validate(&target), Ok(()));
//! ```

mod code;
mod flight;
mod flow;
mod palette;
mod rng;
#[cfg(test)]
mod tests;
mod window;

pub use rng::Rng;

use crate::function::{Block, Builder, Convention, Function};
use crate::target::{Class, File, PReg, Target};
use palette::Palette;
use window::Window;

/// What a random function should look like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// About how many instructions.
    pub insts: usize,
    /// About how many blocks.
    pub blocks: usize,
    /// About how many 32-bit registers' worth of values are alive at once.
    pub pressure: usize,
    /// How deep loops may nest; 0 for none.
    pub loop_depth: usize,
    /// Some loops have two entries.
    pub irreducible: bool,
    /// Values of 16, 64, 96, 128, 256 bits and tensor tuples, or of every other width of the
    /// main file, where the target has room.
    pub wide: bool,
    /// Vector loads and stores, matrix instructions: operands in consecutive registers.
    pub groups: bool,
    /// Calls that take and return values in registers of the convention.
    pub calls: bool,
    /// Guarded definitions: operands changed in place.
    pub guards: bool,
    /// Operands in fixed registers, and instructions that clobber a few.
    pub fixed: bool,
    /// Results in the register of an input.
    pub ties: bool,
    /// Compares produce predicates and branches read them.
    pub predicates: bool,
    /// Values in uniform registers, and ordinary values known to be uniform.
    pub uniform: bool,
    /// Constants, and some arithmetic, can be computed again.
    pub remat: bool,
    /// Copies, packing and unpacking.
    pub copies: bool,
    /// Blocks take parameters, and no value is written twice save under a guard.
    pub params: bool,
    /// Results written while inputs are still read.
    pub early_defs: bool,
    /// Operands kept out of some registers.
    pub except: bool,
    /// Pinned values, some of them in a fixed register or kept out of some, where the
    /// target has room for them.
    pub pinned: bool,
    /// Half of the blocks say how often they run.
    pub frequencies: bool,
    /// A function that is called, rather than a kernel.
    pub device: bool,
}

impl Shape {
    /// Arithmetic, loads and stores alone: one block of `insts` instructions.
    pub fn straight(insts: usize) -> Shape {
        Shape {
            insts,
            blocks: 1,
            pressure: 8,
            loop_depth: 0,
            irreducible: false,
            wide: false,
            groups: false,
            calls: false,
            guards: false,
            fixed: false,
            ties: false,
            predicates: false,
            uniform: false,
            remat: true,
            copies: false,
            params: false,
            early_defs: false,
            except: false,
            pinned: false,
            frequencies: false,
            device: false,
        }
    }

    /// A few dozen instructions with everything a function can have.
    pub fn small() -> Shape {
        Shape {
            insts: 30,
            blocks: 6,
            ..Shape::everything()
        }
    }

    /// A kernel as compilers emit them: loops, predicates, wide values, vector accesses.
    pub fn typical() -> Shape {
        Shape {
            insts: 200,
            blocks: 12,
            pressure: 24,
            loop_depth: 2,
            wide: true,
            groups: true,
            guards: true,
            ties: true,
            predicates: true,
            uniform: true,
            copies: true,
            ..Shape::straight(200)
        }
    }

    /// A typical kernel that keeps about `registers` 32-bit registers alive.
    pub fn pressure(registers: usize) -> Shape {
        Shape {
            insts: 200 + 6 * registers,
            pressure: registers,
            ..Shape::typical()
        }
    }

    /// A typical kernel of about `insts` instructions, ten to a block.
    pub fn large(insts: usize) -> Shape {
        Shape {
            insts,
            blocks: insts / 10,
            pressure: 40,
            loop_depth: 3,
            ..Shape::typical()
        }
    }

    /// Every feature at once.
    pub fn everything() -> Shape {
        Shape {
            insts: 150,
            blocks: 16,
            pressure: 16,
            loop_depth: 3,
            irreducible: true,
            wide: true,
            groups: true,
            calls: true,
            guards: true,
            fixed: true,
            ties: true,
            predicates: true,
            uniform: true,
            remat: true,
            copies: true,
            params: true,
            early_defs: true,
            except: true,
            pinned: true,
            frequencies: true,
            device: true,
        }
    }

    /// Any shape of up to about `insts` instructions.
    pub fn random(insts: usize, rng: &mut Rng) -> Shape {
        let insts = rng.within(3..=insts);
        let mut flip = || rng.one_in(2);
        Shape {
            irreducible: flip(),
            wide: flip(),
            groups: flip(),
            calls: flip(),
            guards: flip(),
            fixed: flip(),
            ties: flip(),
            predicates: flip(),
            uniform: flip(),
            remat: flip(),
            copies: flip(),
            params: flip(),
            early_defs: flip(),
            except: flip(),
            pinned: flip(),
            frequencies: flip(),
            device: flip(),
            insts,
            blocks: rng.within(1..=1 + insts / 5),
            pressure: rng.within(2..=64),
            loop_depth: rng.below(4),
        }
    }
}

/// A random function of the given shape for `target`, which has at least four registers.
pub fn function(shape: &Shape, target: &Target, rng: &mut Rng) -> Function {
    generate(shape, target, rng, "generated", None)
}

/// Random functions that call each other and themselves: the immediate of each call is the
/// number of the function it calls, and arguments and results are in the registers of the
/// convention. `shapes` has one shape per function; all are device functions, and a call
/// for which the function at hand has no room is left out.
///
/// `target` has at least eight registers.
pub fn module(shapes: &[Shape], target: &Target, rng: &mut Rng) -> Vec<Function> {
    let signatures: Vec<Signature> = shapes
        .iter()
        .map(|shape| Signature::random(shape, target, rng))
        .collect();
    let one = |(own, shape): (usize, &Shape)| {
        let shape = Shape {
            device: true,
            calls: true,
            ..shape.clone()
        };
        let module = Some((own, &signatures[..]));
        generate(&shape, target, rng, &format!("f{own}"), module)
    };
    shapes.iter().enumerate().map(one).collect()
}

/// What a function of a module takes and returns.
#[derive(Clone, Debug)]
struct Signature {
    arguments: Vec<Class>,
    results: Vec<Class>,
}

impl Signature {
    fn random(shape: &Shape, target: &Target, rng: &mut Rng) -> Signature {
        let wide = shape.wide && target.budget(File::MAIN) >= 12;
        let classes = Palette::of(target);
        let mut class = || match rng.below(4) {
            0 if wide => classes.pair,
            1 if wide => classes.half,
            _ => classes.word,
        };
        let result = class();
        let mut arguments: Vec<Class> = (0..4).map(|_| class()).collect();
        arguments.truncate(rng.below(5));
        Signature {
            arguments,
            results: vec![result],
        }
    }
}

fn generate(
    shape: &Shape,
    target: &Target,
    rng: &mut Rng,
    name: &str,
    module: Option<(usize, &[Signature])>,
) -> Function {
    let mut builder = Builder::new(name);
    let entry = builder.block();
    if shape.device {
        builder.convention(Convention::Device);
    }
    let mut generator = Generator {
        shape,
        target,
        rng,
        classes: Palette::of(target),
        builder,
        block: entry,
        window: Window::default(),
        pins: pins(shape, target),
        pins_left: pins(shape, target),
        next_imm: 0,
        blocks: 1,
        per_block: 1,
        module,
    };
    generator.body();
    generator.builder.finish()
}

/// Pinned values a function may have. A register is set aside for each from the first
/// instruction to the last, one that calls preserve where there are any.
fn pins(shape: &Shape, target: &Target) -> usize {
    let room = match shape.calls {
        true => 40,
        false => 32,
    };
    let exists = |reg: &PReg| usize::from(reg.unit) < target.file(reg.file).units;
    let preserved = &target.abi().preserved;
    let has_room = target.budget(File::MAIN) >= room && preserved.iter().all(exists);
    if shape.pinned && has_room { 2 } else { 0 }
}

/// A function in the making.
struct Generator<'a> {
    shape: &'a Shape,
    target: &'a Target,
    rng: &'a mut Rng,
    classes: Palette,
    builder: Builder,
    /// Where code is being appended.
    block: Block,
    window: Window,
    /// Pinned values that the function may have.
    pins: usize,
    /// Those it does not have yet.
    pins_left: usize,
    /// Instructions so far; each gets its number as its immediate.
    next_imm: u64,
    /// Blocks so far.
    blocks: usize,
    /// Instructions wanted in each block.
    per_block: usize,
    /// The number of this function and the signatures of all, where there are several.
    module: Option<(usize, &'a [Signature])>,
}
