//! The allocators, each behind the same interface.

mod external;
mod regalloc2;
mod warp;

use external::Process;

use crate::code::Code;
use crate::function::Func;
use crate::{PEAK, text};
use ::regalloc2::Algorithm;
use anyhow::{Context, Result, bail};
use cpu_time::ThreadTime;
use peakmem_alloc::PeakMemAllocTrait;
use std::cell::RefCell;
use std::hint::black_box;
use std::time::Duration;
use warpalloc::Strategy;

/// An allocator with its options.
pub struct Allocator {
    pub name: String,
    /// What the name stands for, for readers of the table.
    pub remark: String,
    /// The most registers of one class that it can handle.
    pub most_registers: usize,
    kind: Kind,
}

enum Kind {
    Warp(warp::Variant),
    Regalloc2(Algorithm),
    External(RefCell<Process>),
}

impl Allocator {
    /// Every allocator that is linked in: three variants of each strategy of warpalloc but the
    /// naive one, and regalloc2's two.
    pub fn built_in() -> Vec<Allocator> {
        let mut all = Vec::new();
        let strategies = || Strategy::ALL.into_iter().filter(|&s| s != Strategy::Naive);
        let variants = [
            ("", true, false, "default options, without the proof"),
            (
                "-ns",
                false,
                false,
                "scheduler off: the order everyone else keeps; without the proof",
            ),
            (
                "+proof",
                true,
                true,
                "default options in full: the result is proved",
            ),
        ];
        for (suffix, schedule, verify, remark) in variants {
            all.extend(strategies().map(|strategy| Allocator {
                name: format!("{}{suffix}", strategy.name()),
                remark: remark.to_owned(),
                most_registers: 255,
                kind: Kind::Warp(warp::Variant {
                    strategy,
                    schedule,
                    verify,
                }),
            }));
        }
        let regalloc2 = [("ion", Algorithm::Ion), ("fastalloc", Algorithm::Fastalloc)];
        all.extend(regalloc2.map(|(name, algorithm)| Allocator {
            name: name.to_owned(),
            remark: "regalloc2".to_owned(),
            most_registers: regalloc2::MOST_REGISTERS,
            kind: Kind::Regalloc2(algorithm),
        }));
        all
    }

    /// An allocator in a process of its own.
    pub fn external(name: &str, command: &str) -> Result<Allocator> {
        let mut process = Process::start(command).with_context(|| format!("external {name}"))?;
        let remark = process
            .version()
            .with_context(|| format!("external {name}"))?;
        Ok(Allocator {
            name: name.to_owned(),
            remark,
            most_registers: 255,
            kind: Kind::External(RefCell::new(process)),
        })
    }

    /// Whether the allocator reorders instructions.
    pub fn reorders(&self) -> bool {
        matches!(&self.kind, Kind::Warp(variant) if variant.schedule)
    }

    /// Whether the allocator runs in this process, where a profiler sees it.
    pub fn is_linked(&self) -> bool {
        !matches!(self.kind, Kind::External(_))
    }
}

/// A function in the forms of all allocators.
pub struct Job<'a> {
    f: &'a Func,
    warp: warp::Job,
    regalloc2: regalloc2::Job,
    text: String,
    /// Tells functions apart, so that a process is given each of them once.
    number: u64,
}

impl<'a> Job<'a> {
    /// `f` for `k` registers, with these options of warpalloc changed.
    pub fn new(
        f: &'a Func,
        k: usize,
        options: &[(String, String)],
        number: u64,
    ) -> Result<Job<'a>> {
        Ok(Job {
            f,
            warp: warp::Job::new(f, k, options)?,
            regalloc2: regalloc2::Job::new(f, k.min(regalloc2::MOST_REGISTERS)),
            text: text::print_function(f, k),
            number,
        })
    }

    /// Allocates and returns the code.
    pub fn code(&self, allocator: &Allocator) -> Result<Code> {
        match &allocator.kind {
            Kind::Warp(variant) => self.warp.code(self.f, *variant),
            Kind::Regalloc2(algorithm) => self.regalloc2.code(self.f, *algorithm),
            Kind::External(process) => self.given(process, Process::code),
        }
    }

    /// Processor time of one allocation, the release of its result excluded.
    pub fn time(&self, allocator: &Allocator) -> Result<Duration> {
        let start = ThreadTime::now();
        match &allocator.kind {
            Kind::Warp(variant) => {
                let result = self.warp.run(*variant);
                let time = start.elapsed();
                black_box(result).map(|_| time)
            }
            Kind::Regalloc2(algorithm) => {
                let result = self.regalloc2.run(*algorithm);
                let time = start.elapsed();
                black_box(result).map(|_| time)
            }
            Kind::External(process) => self.given(process, Process::time),
        }
    }

    /// The most bytes that one allocation has on the heap at once; nothing where an external
    /// allocator does not say.
    pub fn peak(&self, allocator: &Allocator) -> Result<Option<usize>> {
        PEAK.reset_peak_memory();
        match &allocator.kind {
            Kind::Warp(variant) => drop(black_box(self.warp.run(*variant)?)),
            Kind::Regalloc2(algorithm) => drop(black_box(self.regalloc2.run(*algorithm)?)),
            Kind::External(process) => return self.given(process, Process::peak),
        }
        Ok(Some(PEAK.get_peak_memory()))
    }

    /// Allocates once, for callgrind to count what is executed meanwhile. The name is what
    /// callgrind is told to look for.
    #[inline(never)]
    pub fn rivals_counted_allocation(&self, allocator: &Allocator) -> Result<()> {
        match &allocator.kind {
            Kind::Warp(variant) => self.warp.run(*variant).map(drop),
            Kind::Regalloc2(algorithm) => self.regalloc2.run(*algorithm).map(drop),
            Kind::External(_) => bail!("{} runs in another process", allocator.name),
        }
    }

    fn given<T>(
        &self,
        process: &RefCell<Process>,
        ask: impl FnOnce(&mut Process) -> Result<T>,
    ) -> Result<T> {
        let mut process = process.borrow_mut();
        process.give(self.number, &self.text)?;
        ask(&mut process)
    }
}
