//! What is counted of a kernel.

use std::fmt;

/// One thing that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Figure {
    Registers,
    SpillBytes,
    FrameBytes,
    LocalAccesses,
    SharedBytes,
    Warps,
}

impl Figure {
    pub const ALL: [Figure; 6] = [
        Figure::Registers,
        Figure::SpillBytes,
        Figure::FrameBytes,
        Figure::LocalAccesses,
        Figure::SharedBytes,
        Figure::Warps,
    ];

    /// As baselines, JSON and rules call it.
    pub fn name(self) -> &'static str {
        match self {
            Figure::Registers => "registers",
            Figure::SpillBytes => "spill_bytes",
            Figure::FrameBytes => "frame_bytes",
            Figure::LocalAccesses => "local_accesses",
            Figure::SharedBytes => "shared_bytes",
            Figure::Warps => "warps",
        }
    }

    pub fn named(name: &str) -> Option<Figure> {
        Figure::ALL.into_iter().find(|figure| figure.name() == name)
    }

    pub fn meaning(self) -> &'static str {
        match self {
            Figure::Registers => "registers per thread",
            Figure::SpillBytes => "bytes of spill stores and spill loads",
            Figure::FrameBytes => "bytes of local memory per thread",
            Figure::LocalAccesses => "loads and stores of local memory in the code",
            Figure::SharedBytes => "bytes of static shared memory per block",
            Figure::Warps => "warps resident on a multiprocessor",
        }
    }

    /// By how much `is` is worse than `was`; negative where it is better.
    pub fn worse_by(self, was: u64, is: u64) -> i64 {
        let change = is.cast_signed().saturating_sub(was.cast_signed());
        match self {
            Figure::Warps => -change,
            _ => change,
        }
    }
}

impl Figure {
    /// A line of a table of what moved: the figure then and now, and what to say of it.
    pub fn line(self, told: &str, was: u64, is: u64, remark: &str) -> String {
        let change = format!("{:+}", i128::from(is) - i128::from(was));
        format!("  {self:<14} {told:>8} -> {is:<8} {change:>8}  {remark}")
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What is known of a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures([Option<u64>; Figure::ALL.len()]);

impl Figures {
    pub fn get(&self, figure: Figure) -> Option<u64> {
        self.0[figure as usize]
    }

    pub fn set(&mut self, figure: Figure, value: Option<impl Into<u64>>) {
        self.0[figure as usize] = value.map(Into::into);
    }

    /// Those that are known.
    pub fn iter(&self) -> impl Iterator<Item = (Figure, u64)> + '_ {
        Figure::ALL
            .into_iter()
            .filter_map(|figure| Some((figure, self.get(figure)?)))
    }
}
