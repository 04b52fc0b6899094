//! How kernels are launched: one JSON file per source of the corpus.
//!
//! A manifest says nothing about allocation. It gives every entry of a PTX file a grid, a block and
//! its arguments, so that a launch is the same whoever made the code. The format is described in
//! the README beside this crate.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// The launches of one source file, by the name of the entry.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// One launch per entry.
    pub kernels: BTreeMap<String, Launch>,
}

impl Manifest {
    /// Reads a manifest.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the manifest {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{}", path.display()))
    }
}

/// One launch of one kernel.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Launch {
    /// Blocks in the grid.
    pub grid: Extent,
    /// Threads in a block.
    pub block: Extent,
    /// Bytes of dynamic shared memory.
    #[serde(default)]
    pub dynamic_shared: u32,
    /// Bytes of stack per thread, where recursion or indirect calls hide the need from the driver.
    #[serde(default)]
    pub stack: usize,
    /// What the kernel is given, in the order of its parameters.
    pub arguments: Vec<Argument>,
}

/// One to three numbers; those left out are 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "Vec<u32>", into = "Vec<u32>")]
pub struct Extent(pub [u32; 3]);

impl Extent {
    /// The product: blocks of a grid, threads of a block.
    pub fn count(self) -> u64 {
        self.0.iter().map(|&side| u64::from(side)).product()
    }
}

impl TryFrom<Vec<u32>> for Extent {
    type Error = String;

    fn try_from(sides: Vec<u32>) -> Result<Self, String> {
        if sides.is_empty() || sides.len() > 3 || sides.contains(&0) {
            return Err(format!(
                "expected one to three positive numbers, found {sides:?}"
            ));
        }
        let mut extent = [1; 3];
        extent[..sides.len()].copy_from_slice(&sides);
        Ok(Extent(extent))
    }
}

impl From<Extent> for Vec<u32> {
    fn from(extent: Extent) -> Self {
        extent.0.to_vec()
    }
}

/// What a parameter receives.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Argument {
    /// A 32-bit integer.
    I32(i32),
    /// A 64-bit integer.
    I64(i64),
    /// A float.
    F32(f32),
    /// A double.
    F64(f64),
    /// The address of global memory.
    Buffer(Buffer),
    /// A texture object over four floats per pixel, filtered linearly, clamped at the edges.
    Texture(Image),
    /// A surface object over four bytes per pixel.
    Surface(Image),
}

impl Argument {
    /// Whether a parameter of PTX type `ty` can take this.
    pub fn fits(&self, ty: &str) -> bool {
        match self {
            Argument::F32(_) => matches!(ty, "f32" | "b32"),
            Argument::F64(_) => matches!(ty, "f64" | "b64"),
            Argument::I32(_) => matches!(ty, "u32" | "s32" | "b32"),
            _ => matches!(ty, "u64" | "s64" | "b64"),
        }
    }
}

/// Global memory that a kernel reads or writes.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Buffer {
    /// The type of an element.
    #[serde(rename = "type")]
    pub element: Element,
    /// How many of them.
    pub count: usize,
    /// What the kernel does with it.
    pub access: Access,
    /// What it holds before the launch.
    #[serde(default)]
    pub init: Init,
}

impl Buffer {
    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.count * self.element.size()
    }
}

/// The type of an element of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Element {
    I8,
    I16,
    I32,
    I64,
    F16,
    Bf16,
    F32,
    F64,
}

impl Element {
    /// Size in bytes.
    pub const fn size(self) -> usize {
        match self {
            Element::I8 => 1,
            Element::I16 | Element::F16 | Element::Bf16 => 2,
            Element::I32 | Element::F32 => 4,
            Element::I64 | Element::F64 => 8,
        }
    }
}

/// What a kernel does with a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Reads only: it must come out as it went in.
    In,
    /// Writes without having read: it must come out changed.
    Out,
    /// Reads and writes: it is restored before every launch.
    Inout,
}

/// The content of a buffer before the launch.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Init {
    /// Random bits; the right choice for integers and for what is only written.
    #[default]
    Bits,
    /// Zeros.
    Zero,
    /// 0, 1, 2…
    Iota,
    /// Numbers spread evenly from the first to the second, the second excluded.
    Uniform(f64, f64),
    /// Integers spread evenly below a bound: indices.
    Below(u64),
    /// These integers.
    Values(Vec<i64>),
}

/// A two-dimensional image behind a texture or surface object.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Image {
    /// Pixels in a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(text: &str) -> Result<Launch, serde_json::Error> {
        serde_json::from_str(text)
    }

    #[test]
    fn reads_every_kind_of_argument() {
        let read = launch(
            r#"{"grid": [2, 3], "block": [64], "arguments": [
                {"i32": -4}, {"f32": 0.5}, {"texture": {"width": 8, "height": 4}},
                {"buffer": {"type": "bf16", "count": 6, "access": "in", "init": {"uniform": [0, 1]}}},
                {"buffer": {"type": "i64", "count": 6, "access": "out"}}]}"#,
        )
        .unwrap();
        assert_eq!(
            (read.grid, read.block),
            (Extent([2, 3, 1]), Extent([64, 1, 1]))
        );
        assert!(matches!(read.arguments[0], Argument::I32(-4)));
        assert!(matches!(
            read.arguments[2],
            Argument::Texture(Image {
                width: 8,
                height: 4
            })
        ));
        let Argument::Buffer(input) = &read.arguments[3] else {
            panic!("not a buffer")
        };
        assert_eq!((input.bytes(), &input.init), (12, &Init::Uniform(0.0, 1.0)));
        let Argument::Buffer(output) = &read.arguments[4] else {
            panic!("not a buffer")
        };
        assert_eq!(output.init, Init::Bits);
    }

    #[test]
    fn refuses_what_it_does_not_know() {
        assert!(launch(r#"{"grid": [1], "block": [1], "arguments": [], "tolerance": 1}"#).is_err());
        assert!(launch(r#"{"grid": [1, 0], "block": [1], "arguments": []}"#).is_err());
        assert!(launch(r#"{"grid": [1, 1, 1, 1], "block": [1], "arguments": []}"#).is_err());
        assert!(launch(r#"{"grid": [1], "block": [1], "arguments": [{"u128": 1}]}"#).is_err());
    }

    #[test]
    fn parameters_take_arguments_of_their_width_and_kind() {
        assert!(Argument::I32(1).fits("u32") && !Argument::I32(1).fits("u64"));
        assert!(Argument::F32(1.0).fits("f32") && !Argument::F32(1.0).fits("u32"));
        assert!(Argument::I64(1).fits("b64") && !Argument::F64(1.0).fits("u64"));
    }
}
