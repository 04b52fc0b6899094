//! Allocates a product of matrices for a machine like AMD's, with fewer and fewer registers.
//!
//! ```sh
//! cargo run -p warpalloc --example amd
//! ```

#[path = "targets/amd.rs"]
mod machine;

use warpalloc::function::{Builder, Effect, Function};
use warpalloc::target::{Target, TargetError};
use warpalloc::text::Allocated;
use warpalloc::{Options, allocate};

/// Two tiles of sixteen accumulators that grow in a loop and are exchanged in each round.
fn product(target: &Target) -> Function {
    let class = |name: &str| target.class_named(name).expect("the machine has the class");
    let mut b = Builder::new("product");
    let (entry, body, end) = (b.block(), b.block(), b.block());
    let [first, second] = [0, 1].map(|_| b.vreg(class("a16")));
    b.inst(entry, "zero").def(first);
    b.inst(entry, "zero").imm(1).def(second);
    let [this, other] = [0, 1].map(|_| b.vreg(class("a16")));
    b.param(body, this);
    b.param(body, other);
    b.jump(entry, body, &[first, second]);
    let [row, column] = [0, 1].map(|_| b.vreg(class("v4")));
    b.inst(body, "load").def(row).effect(Effect::Read);
    b.inst(body, "load").imm(1).def(column).effect(Effect::Read);
    let grown = b.vreg(class("a16"));
    let inputs = b.inst(body, "mfma").def(grown).use_(row).use_(column);
    inputs.use_(this);
    let more = b.vreg(class("s1"));
    b.inst(body, "compare").def(more).effect(Effect::Read);
    b.edge(body, body, &[other, grown]);
    b.edge(body, end, &[]);
    b.branch(body, "branch").use_(more);
    b.inst(end, "store").use_(grown).effect(Effect::Write);
    b.inst(end, "store").use_(other).effect(Effect::Write);
    b.exit(end, "end");
    b.finish()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for registers in [256, 40, 33, 24] {
        let target: Result<Target, TargetError> = machine::target(registers);
        let target = target?;
        let function = product(&target);
        println!("; {registers} vector registers");
        match allocate(&function, &target, &Options::default()) {
            Err(reason) => println!("; {reason}"),
            Ok(allocation) => {
                let (function, target) = (&function, &target);
                let allocation = &allocation;
                let allocated = Allocated {
                    function,
                    target,
                    allocation,
                };
                println!("{allocated}");
            }
        }
    }
    Ok(())
}
