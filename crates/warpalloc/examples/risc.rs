//! Allocates a function that calls another in a loop, for a small RISC.
//!
//! ```sh
//! cargo run -p warpalloc --example risc
//! ```

#[path = "targets/risc.rs"]
mod machine;

use machine::{FLOAT, INT};
use warpalloc::function::{Builder, Clobbers, Convention, Effect, Kind};
use warpalloc::text::Allocated;
use warpalloc::{Options, allocate};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let target = machine::target()?;
    let mut b = Builder::new("sum_of_calls");
    b.convention(Convention::Device);
    let (entry, body, end) = (b.block(), b.block(), b.block());
    let (count, zero) = (b.vreg(INT), b.vreg(FLOAT));
    b.arguments(&target, &[count])?;
    b.inst(entry, "fzero").def(zero).remat(1);
    let (left, sum) = (b.vreg(INT), b.vreg(FLOAT));
    b.param(body, left);
    b.param(body, sum);
    b.jump(entry, body, &[count, zero]);
    let (term, fewer, more) = (b.vreg(FLOAT), b.vreg(INT), b.vreg(FLOAT));
    let call = b.inst(body, "call").kind(Kind::Call).effect(Effect::Write);
    let call = call.clobbers(Clobbers::Abi);
    call.receive(&target, &[term])?.pass(&target, &[left])?;
    b.inst(body, "addi").imm(u64::MAX).def(fewer).use_(left);
    b.inst(body, "fadd").def(more).use_(sum).use_(term);
    b.edge(body, body, &[fewer, more]);
    b.edge(body, end, &[]);
    b.branch(body, "bnez").use_(fewer);
    b.ret(end, "ret").give(&target, &[more])?;
    let function = b.finish();
    let allocation = allocate(&function, &target, &Options::default())?;
    let allocated = Allocated {
        function: &function,
        target: &target,
        allocation: &allocation,
    };
    println!("{allocated}");
    Ok(())
}
