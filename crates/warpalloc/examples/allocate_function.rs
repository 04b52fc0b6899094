//! Builds a function, allocates it in few registers, and prints what became of it.
//!
//! ```sh
//! cargo run -p warpalloc --example allocate_function
//! ```

use warpalloc::function::{Builder, Effect};
use warpalloc::target::{Class, File, Target};
use warpalloc::text::Allocated;
use warpalloc::{Options, allocate};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // y = a * x + y for a pair of values, with one value too many for three registers.
    let mut b = Builder::new("axpy");
    let block = b.block();
    let [a, x0, x1, y0, y1] = std::array::from_fn(|_| b.vreg(Class::R32));
    for (value, offset) in [a, x0, x1, y0, y1].into_iter().zip(0..) {
        b.inst(block, "load")
            .def(value)
            .imm(offset)
            .effect(Effect::Read);
    }
    for (x, y) in [(x0, y0), (x1, y1)] {
        // The result takes the place of `y`.
        b.inst(block, "fma").use_def(y).use_(a).use_(x);
        b.inst(block, "store").use_(y).effect(Effect::Write);
    }
    b.exit(block, "exit");
    let function = b.finish();

    let target = Target::hardware(90)?.with_budget(File::R, 3);
    // The result is proved before it is returned.
    let allocation = allocate(&function, &target, &Options::default())?;
    let shown = Allocated {
        function: &function,
        target: &target,
        allocation: &allocation,
    };
    print!("{shown}");
    println!(
        "; {} values spilled, {} bytes of frame",
        allocation.stats.spilled, allocation.frame.local
    );
    Ok(())
}
