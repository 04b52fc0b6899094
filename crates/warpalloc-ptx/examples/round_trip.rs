//! Allocates a PTX module and prints it, with what became of each function.
//!
//! ```sh
//! cargo run -p warpalloc-ptx --example round_trip [FILE.ptx]
//! ```

use warpalloc_ptx::module::{ModuleOptions, Outcome, allocate_module};

const SAXPY: &str = ".version 8.0
.target sm_90
.address_size 64
.visible .entry saxpy(.param .u64 x, .param .u64 y, .param .f32 a)
{
	.reg .f32 %f<5>;
	.reg .b32 %r<2>;
	.reg .b64 %rd<7>;
	ld.param.u64 %rd1, [x];
	ld.param.u64 %rd2, [y];
	ld.param.f32 %f1, [a];
	mov.u32 %r1, %tid.x;
	mul.wide.u32 %rd3, %r1, 4;
	add.s64 %rd4, %rd1, %rd3;
	add.s64 %rd5, %rd2, %rd3;
	ld.global.f32 %f2, [%rd4];
	ld.global.f32 %f3, [%rd5];
	fma.rn.f32 %f4, %f1, %f2, %f3;
	st.global.f32 [%rd5], %f4;
	ret;
}
";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let text = match std::env::args().nth(1) {
        Some(path) => std::fs::read_to_string(path)?,
        None => SAXPY.to_owned(),
    };
    let options = ModuleOptions {
        maxnreg: Some(32),
        ..ModuleOptions::default()
    };
    let result = allocate_module(&text, &options, None)?;
    print!("{}", result.text);
    for function in &result.functions {
        match &function.outcome {
            Outcome::Allocated(allocated) => println!(
                "// {}: {} virtual registers in {} registers",
                function.name, function.vregs, allocated.registers
            ),
            other => println!("// {}: {other:?}", function.name),
        }
    }
    Ok(())
}
