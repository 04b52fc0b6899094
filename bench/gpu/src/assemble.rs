//! From sources to images: runs the allocator and ptxas for every build of a run, on all cores.
//!
//! A build that cannot be made (the allocator refuses, ptxas complains) is a result like any
//! other: it carries the reason, and the table shows it.

use std::collections::BTreeMap;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use warpalloc_sass::object::Cubin;

use crate::corpus::{Source, with_cap, with_pragma};
use crate::resources::{self, Resources};

/// Who allocates registers, and where spilled values go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allocator {
    /// ptxas alone, from the original PTX.
    Ptxas,
    /// `warpalloc alloc` first.
    Warpalloc {
        /// `--regalloc`, or `NAME:MARGIN` for `--regalloc` and `--margin`; `default` leaves the
        /// choice to the command, without ptxas to compare with.
        strategy: String,
        /// `--spill-space`.
        space: String,
    },
    /// What `warpalloc alloc` chooses with ptxas at hand.
    Chosen(Choice),
    /// `warpalloc alloc` on the cubin of ptxas.
    Cubin(Recipe),
    /// ptxas alone, from the original PTX with this `.pragma` and the launch bounds in every entry.
    Pragma(String),
    /// ptxas alone, from the original PTX, with these flags.
    Flags(Recipe),
    /// A program that stands in for ptxas, from the original PTX with the launch bounds in every
    /// entry: `warpalloc shim install` makes one.
    Shim(PathBuf),
}

/// What `warpalloc alloc --regalloc=best` is told, and whether its result is machine code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// PTX, with the grid of the launch.
    Ptx,
    /// PTX, without it.
    PtxForAnyGrid,
    /// A cubin, with the grid of the launch.
    Cubin,
    /// A cubin, without it.
    CubinForAnyGrid,
    /// PTX, with the grid of the launch and without ptxas.
    WithoutPtxas,
}

impl Choice {
    const ALL: [Choice; 5] = [
        Choice::Ptx,
        Choice::PtxForAnyGrid,
        Choice::Cubin,
        Choice::CubinForAnyGrid,
        Choice::WithoutPtxas,
    ];

    /// The choice that `--strategies` names so.
    pub fn named(name: &str) -> Option<Choice> {
        Choice::ALL.into_iter().find(|choice| choice.name() == name)
    }

    /// What `--strategies` and the rows call it.
    pub fn name(self) -> &'static str {
        match self {
            Choice::Ptx => "best",
            Choice::PtxForAnyGrid => "best-any-grid",
            Choice::Cubin => "best-cubin",
            Choice::CubinForAnyGrid => "best-cubin-any-grid",
            Choice::WithoutPtxas => "best-no-ptxas",
        }
    }

    fn knows_grid(self) -> bool {
        matches!(self, Choice::Ptx | Choice::Cubin | Choice::WithoutPtxas)
    }

    fn is_machine_code(self) -> bool {
        matches!(self, Choice::Cubin | Choice::CubinForAnyGrid)
    }
}

/// A row and the flags that make it, `NAME` or `NAME=FLAGS`: of ptxas, or of `warpalloc alloc` on a
/// cubin.
///
/// `{dynamic}` in the flags stands for the bytes of dynamic shared memory of the launch, `{cap}` for
/// the cap. Where the cap is named the cubin of the uncapped original goes in, otherwise that of
/// the original at the cap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// What the row is called.
    pub name: String,
    /// The flags, as one writes them on a command line.
    pub flags: String,
}

impl FromStr for Recipe {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, flags) = text.split_once('=').unwrap_or((text, ""));
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.is_empty() || !name.chars().all(plain) {
            return Err(format!("`{name}` is no name of letters, digits, - and _"));
        }
        Ok(Recipe {
            name: name.to_owned(),
            flags: flags.to_owned(),
        })
    }
}

impl Recipe {
    /// The cap of the original whose cubin goes in.
    fn input_cap(&self, cap: Option<u32>) -> Option<u32> {
        cap.filter(|_| !self.takes_cap())
    }

    fn takes_cap(&self) -> bool {
        self.flags.contains("{cap}")
    }
}

/// Warnings of the allocator about results that are not what the table says they are.
const UNLIKE_ASKED: [&str; 2] = ["passed through unchanged", "spills go to local memory"];

/// One image to make: an entry of the corpus, allocated under a cap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Build {
    /// Which source, by position.
    pub source: usize,
    /// Which entry of it, by position: one that cannot be allocated must not stop the others.
    pub kernel: usize,
    /// `.maxnreg` for every entry.
    pub cap: Option<u32>,
    /// Who allocates.
    pub allocator: Allocator,
}

impl Build {
    /// Whether something else than ptxas, called as for all texts, makes the image.
    fn is_machine_code(&self) -> bool {
        match &self.allocator {
            Allocator::Cubin(_) | Allocator::Flags(_) | Allocator::Shim(_) => true,
            Allocator::Chosen(choice) => choice.is_machine_code(),
            _ => false,
        }
    }

    fn stem(&self, sources: &[Source]) -> String {
        let cap = self.cap.map_or("none".to_owned(), |cap| cap.to_string());
        let maker = match &self.allocator {
            Allocator::Ptxas => "original".to_owned(),
            Allocator::Warpalloc { strategy, space } => format!("{strategy}.{space}"),
            Allocator::Chosen(choice) => choice.name().to_owned(),
            Allocator::Cubin(recipe) => format!("cubin.{}", recipe.name),
            Allocator::Pragma(pragma) => format!("pragma.{pragma}"),
            Allocator::Flags(recipe) => format!("flags.{}", recipe.name),
            Allocator::Shim(_) => "shim".to_owned(),
        };
        let source = &sources[self.source];
        format!(
            "{}.{}.{cap}.{maker}",
            source.name, source.kernels[self.kernel].name
        )
    }
}

/// What the driver loads: a cubin, or PTX for the driver to compile.
#[derive(Clone, Debug)]
pub struct Image {
    /// Where it lies.
    pub path: PathBuf,
    /// What ptxas says of the entry, or, of a cubin that was rewritten, what is in it; nothing
    /// where the driver compiles.
    pub resources: Option<Resources>,
}

impl Image {
    /// A digest of the machine code of a kernel; none where the driver compiles.
    pub fn code(&self, kernel: &str) -> Option<u64> {
        let bytes = std::fs::read(&self.path).ok()?;
        let cubin = Cubin::read(&bytes).ok()?;
        let function = cubin.function(kernel)?;
        let mut digest = DefaultHasher::new();
        // Registers and shared memory say how many blocks are resident.
        (function.code, function.registers, function.shared_bytes).hash(&mut digest);
        Some(digest.finish())
    }
}

/// The programs a run uses and where it leaves its files.
#[derive(Clone, Debug)]
pub struct Workshop {
    /// The `warpalloc` command.
    pub warpalloc: Option<PathBuf>,
    /// ptxas; without it the driver compiles PTX.
    pub ptxas: Option<PathBuf>,
    /// The architecture to assemble for: `sm_90`.
    pub arch: String,
    /// Whether ptxas may contract products and sums.
    pub fmad: bool,
    /// Whether `warpalloc` promotes local variables to registers.
    pub promote: bool,
    /// Where PTX and cubins are left.
    pub folder: PathBuf,
    /// How many programs run at a time.
    pub jobs: usize,
    /// The most time one run of the allocator or of ptxas may take.
    pub patience: Duration,
}

impl Workshop {
    /// Makes every build; the results stand in the order of the builds.
    pub fn make(&self, sources: &[Source], builds: &[Build]) -> Vec<Result<Image, String>> {
        let texts = in_parallel(self.jobs, builds, |build| self.text(sources, build));
        // Uncapped and lightly capped builds are often the same text: assemble it once.
        let mut first_of: BTreeMap<(usize, usize, &str), usize> = BTreeMap::new();
        for (index, (build, text)) in builds.iter().zip(&texts).enumerate() {
            if let Ok(text) = text {
                first_of
                    .entry((build.source, build.kernel, text))
                    .or_insert(index);
            }
        }
        let distinct: Vec<usize> = first_of.values().copied().collect();
        let made = in_parallel(self.jobs, &distinct, |&index| {
            let (build, text) = (&builds[index], texts[index].as_deref().unwrap_or_default());
            let entry = &sources[build.source].kernels[build.kernel].name;
            let image = self.assemble(text, entry, &build.stem(sources));
            image.map_err(|error| format!("{error:#}"))
        });
        let images: BTreeMap<usize, Result<Image, String>> =
            distinct.into_iter().zip(made).collect();
        let image_of = |(build, text): (&Build, &Result<String, String>)| {
            let text = text.as_ref().map_err(Clone::clone)?;
            images[&first_of[&(build.source, build.kernel, text.as_str())]].clone()
        };
        let texts_done = builds.iter().zip(&texts).map(image_of);
        let mut images: Vec<Result<Image, String>> = texts_done.collect();
        let rewritten: Vec<usize> = (0..builds.len())
            .filter(|&index| builds[index].is_machine_code())
            .collect();
        let made = in_parallel(self.jobs, &rewritten, |&index| {
            let build = &builds[index];
            match &build.allocator {
                Allocator::Chosen(choice) => self
                    .chosen_cubin(sources, build, *choice)
                    .map_err(|error| format!("{error:#}")),
                Allocator::Flags(recipe) => self.flagged(sources, build, recipe),
                Allocator::Shim(shim) => self.shimmed(sources, build, shim),
                _ => self.rewritten(sources, builds, &images, build),
            }
        });
        for (index, image) in rewritten.into_iter().zip(made) {
            images[index] = image;
        }
        images
    }

    /// What a program in the place of ptxas makes of the whole module, as compilers call it.
    fn shimmed(&self, sources: &[Source], build: &Build, shim: &Path) -> Result<Image, String> {
        let source = &sources[build.source];
        let image = || {
            let text = with_cap(&source.bounded()?, build.cap, &source.name)?;
            let image = self.assembled_by(shim, &text, None, "", &build.stem(sources))?;
            image_of_cubin(image, &source.kernels[build.kernel].name)
        };
        image().map_err(|error: anyhow::Error| format!("{error:#}"))
    }

    fn flagged(&self, sources: &[Source], build: &Build, recipe: &Recipe) -> Result<Image, String> {
        let source = &sources[build.source];
        let entry = &source.kernels[build.kernel].name;
        let image = || {
            let ptxas = self.ptxas.as_ref().context("flags are for a ptxas")?;
            let text = source.capped(build.cap)?;
            let stem = build.stem(sources);
            let image = self.assembled_by(ptxas, &text, Some(entry), &recipe.flags, &stem)?;
            image_of_cubin(image, entry)
        };
        image().map_err(|error: anyhow::Error| format!("{error:#}"))
    }

    /// What the allocator makes of a cubin of ptxas.
    fn rewritten(
        &self,
        sources: &[Source],
        builds: &[Build],
        images: &[Result<Image, String>],
        build: &Build,
    ) -> Result<Image, String> {
        let Allocator::Cubin(recipe) = &build.allocator else {
            return Err("not a build of a cubin".to_owned());
        };
        if recipe.takes_cap() && build.cap.is_none() {
            return Err("there is no cap".to_owned());
        }
        let input = Build {
            cap: recipe.input_cap(build.cap),
            allocator: Allocator::Ptxas,
            ..build.clone()
        };
        let input = builds.iter().position(|other| *other == input);
        let input = input.map(|index| images[index].clone());
        let input = input.unwrap_or_else(|| Err("ptxas did not build the original".to_owned()))?;
        self.rewrite(sources, build, recipe, &input.path)
            .map_err(|error| format!("{error:#}"))
    }

    fn rewrite(
        &self,
        sources: &[Source],
        build: &Build,
        recipe: &Recipe,
        input: &Path,
    ) -> Result<Image> {
        if input
            .extension()
            .is_none_or(|extension| extension != "cubin")
        {
            bail!("without ptxas there are no cubins");
        }
        let warpalloc = self.warpalloc.as_ref();
        let warpalloc = warpalloc.context("no warpalloc command was given")?;
        let stem = build.stem(sources);
        let kernel = &sources[build.source].kernels[build.kernel];
        let output = self.folder.join(format!("{stem}.cubin"));
        let mut command = Command::new(warpalloc);
        command.arg("alloc").arg(input).arg("-o").arg(&output);
        command.args(["--entry", &kernel.name]);
        command.args(["--block", &kernel.launch.block.count().to_string()]);
        let cap = build.cap.map_or(String::new(), |cap| cap.to_string());
        let flags = recipe.flags.replace("{cap}", &cap);
        let flags = flags.replace("{dynamic}", &kernel.launch.dynamic_shared.to_string());
        command.args(flags.split_whitespace());
        self.finish(command, &self.folder.join(format!("{stem}.alloc.log")))?;
        image_of_cubin(output, &kernel.name)
    }

    fn text(&self, sources: &[Source], build: &Build) -> Result<String, String> {
        let source = &sources[build.source];
        let text = match &build.allocator {
            Allocator::Ptxas => source.capped(build.cap),
            Allocator::Warpalloc { strategy, space } => {
                self.allocated(source, build, strategy, space, &build.stem(sources))
            }
            Allocator::Chosen(choice) if !choice.is_machine_code() => {
                self.chosen_text(source, build, *choice, &build.stem(sources))
            }
            Allocator::Pragma(pragma) => source
                .bounded()
                .and_then(|text| with_pragma(&text, pragma, &source.name))
                .and_then(|text| with_cap(&text, build.cap, &source.name)),
            Allocator::Cubin(_)
            | Allocator::Chosen(_)
            | Allocator::Flags(_)
            | Allocator::Shim(_) => {
                return Err("machine code has no text".to_owned());
            }
        };
        text.map_err(|error| format!("{error:#}"))
    }

    /// What the allocator makes of the entry and, unless it spills to shared memory, which called
    /// functions cannot, of all functions that it may call.
    fn allocated(
        &self,
        source: &Source,
        build: &Build,
        strategy: &str,
        space: &str,
        stem: &str,
    ) -> Result<String> {
        let entry = &source.kernels[build.kernel].name;
        let in_shared = space == "shared";
        let text = match in_shared {
            true => source.bounded()?,
            false => source.text.clone(),
        };
        let output = self.folder.join(format!("{stem}.out.ptx"));
        let mut command = self.alloc(&text, entry, stem, &output)?;
        // What an allocator makes is measured, not what ptxas would rather have.
        command.args(["--spill-space", space, "--no-ptxas"]);
        for function in source.functions.iter().filter(|_| !in_shared) {
            command.args(["--entry", function]);
        }
        if let Some(cap) = build.cap {
            command.args(["--maxnreg", &cap.to_string()]);
        }
        if self.promote {
            command.arg("--promote-local");
        }
        match strategy.split_once(':') {
            Some((strategy, margin)) => {
                command.args(["--regalloc", strategy, "--margin", margin]);
            }
            None if strategy != "default" => {
                command.args(["--regalloc", strategy]);
            }
            None => {}
        }
        let said = self.finish(command, &self.folder.join(format!("{stem}.alloc.log")))?;
        if let Some(line) = said
            .lines()
            .find(|line| UNLIKE_ASKED.iter().any(|told| line.contains(told)))
        {
            bail!("{}", line.trim());
        }
        with_cap(&std::fs::read_to_string(&output)?, build.cap, stem)
    }

    /// `warpalloc alloc` for one entry of a text.
    fn alloc(&self, text: &str, entry: &str, stem: &str, output: &Path) -> Result<Command> {
        let warpalloc = self
            .warpalloc
            .as_ref()
            .context("no warpalloc command was given")?;
        let input = self.folder.join(format!("{stem}.in.ptx"));
        std::fs::write(&input, text)?;
        let mut command = Command::new(warpalloc);
        command.arg("alloc").arg(&input).arg("-o").arg(output);
        let contract = if self.fmad { "ptxas" } else { "off" };
        command.args(["--jobs", "1", "--contract", contract, "--entry", entry]);
        Ok(command)
    }

    fn chosen_text(
        &self,
        source: &Source,
        build: &Build,
        choice: Choice,
        stem: &str,
    ) -> Result<String> {
        let output = self.folder.join(format!("{stem}.out.ptx"));
        self.choose(source, build, choice, stem, &output)?;
        with_cap(&std::fs::read_to_string(&output)?, build.cap, stem)
    }

    fn chosen_cubin(&self, sources: &[Source], build: &Build, choice: Choice) -> Result<Image> {
        let (source, stem) = (&sources[build.source], build.stem(sources));
        let output = self.folder.join(format!("{stem}.cubin"));
        self.choose(source, build, choice, &stem, &output)?;
        image_of_cubin(output, &source.kernels[build.kernel].name)
    }

    fn choose(
        &self,
        source: &Source,
        build: &Build,
        choice: Choice,
        stem: &str,
        output: &Path,
    ) -> Result<()> {
        let kernel = &source.kernels[build.kernel];
        let mut command = self.alloc(&source.text, &kernel.name, stem, output)?;
        command.args(["--regalloc", "best", "--no-cache"]);
        match choice {
            Choice::WithoutPtxas => command.arg("--no-ptxas"),
            _ => {
                let ptxas = self.ptxas.as_ref().context("a choice needs ptxas")?;
                command.arg("--ptxas").arg(ptxas)
            }
        };
        let launch = &kernel.launch;
        command.args(["--block", &launch.block.count().to_string()]);
        command.args(["--dynamic-shared", &launch.dynamic_shared.to_string()]);
        if choice.knows_grid() {
            command.args(["--grid", &launch.grid.count().to_string()]);
        }
        command.args(["--sm", self.arch.trim_start_matches("sm_")]);
        if let Some(cap) = build.cap {
            command.args(["--maxnreg", &cap.to_string()]);
        }
        if self.promote {
            command.arg("--promote-local");
        }
        self.finish(command, &self.folder.join(format!("{stem}.alloc.log")))?;
        Ok(())
    }

    fn assemble(&self, text: &str, entry: &str, stem: &str) -> Result<Image> {
        let Some(ptxas) = &self.ptxas else {
            let ptx = self.folder.join(format!("{stem}.ptx"));
            std::fs::write(&ptx, text)?;
            return Ok(Image {
                path: ptx,
                resources: None,
            });
        };
        let cubin = self.assembled_by(ptxas, text, Some(entry), "", stem)?;
        let report = std::fs::read_to_string(self.folder.join(format!("{stem}.ptxas.log")))?;
        Ok(Image {
            path: cubin,
            resources: resources::read_report(&report).remove(entry),
        })
    }

    /// The cubin that a ptxas makes of a text, or of one entry of it.
    fn assembled_by(
        &self,
        ptxas: &Path,
        text: &str,
        entry: Option<&str>,
        flags: &str,
        stem: &str,
    ) -> Result<PathBuf> {
        let ptx = self.folder.join(format!("{stem}.ptx"));
        std::fs::write(&ptx, text)?;
        let cubin = self.folder.join(format!("{stem}.cubin"));
        let mut command = Command::new(ptxas);
        let fmad = if self.fmad { "true" } else { "false" };
        command.args(["-v", "-fmad", fmad, "-arch", &self.arch]);
        command.args(entry.iter().flat_map(|entry| ["-e", *entry]));
        command.args(flags.split_whitespace());
        command.arg("-o").arg(&cubin).arg(&ptx);
        self.finish(command, &self.folder.join(format!("{stem}.ptxas.log")))?;
        Ok(cubin)
    }

    /// Runs a program to its end and gives back what it said; its complaint where it fails.
    fn finish(&self, mut command: Command, log: &Path) -> Result<String> {
        let program = Path::new(command.get_program())
            .file_name()
            .unwrap_or_default()
            .to_owned();
        let program = program.to_string_lossy();
        let output = File::create(log)?;
        command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        let mut child = command
            .spawn()
            .with_context(|| format!("cannot run {program}"))?;
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if begin.elapsed() > self.patience {
                child.kill()?;
                child.wait()?;
                bail!(
                    "{program} took longer than {} seconds",
                    self.patience.as_secs()
                );
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let mut said = Vec::new();
        File::open(log)?.read_to_end(&mut said)?;
        let said = String::from_utf8_lossy(&said).into_owned();
        if !status.success() {
            bail!("{program}: {}", complaint(&said));
        }
        Ok(said)
    }
}

fn image_of_cubin(path: PathBuf, entry: &str) -> Result<Image> {
    let resources = resources::of_cubin(&std::fs::read(&path)?, entry)?;
    Ok(Image {
        path,
        resources: Some(resources),
    })
}

/// The line that says what went wrong, or the last one.
fn complaint(said: &str) -> &str {
    let lines = || said.lines().map(str::trim).filter(|line| !line.is_empty());
    lines()
        .find(|line| line.contains("error") || line.contains("fatal"))
        .or_else(|| lines().next_back())
        .unwrap_or("no message")
}

/// Applies `work` to every item with `jobs` threads; results in the order of the items.
fn in_parallel<T: Sync, R: Send>(
    jobs: usize,
    items: &[T],
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, R)>> = Mutex::new(Vec::with_capacity(items.len()));
    std::thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, items.len().max(1)) {
            scope.spawn(|| {
                while let Some((index, item)) = {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    items.get(index).map(|item| (index, item))
                } {
                    let result = work(item);
                    if let Ok(mut done) = done.lock() {
                        done.push((index, result));
                    }
                }
            });
        }
    });
    let mut done = done
        .into_inner()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corpus::Kernel;
    use crate::manifest::{Extent, Launch};

    #[test]
    fn parallel_results_keep_their_order() {
        let items: Vec<usize> = (0..100).collect();
        let doubled = in_parallel(4, &items, |item| item * 2);
        assert_eq!(doubled, (0..200).step_by(2).collect::<Vec<_>>());
        assert!(in_parallel(4, &[] as &[usize], |item| *item).is_empty());
    }

    #[test]
    fn the_complaint_is_the_line_with_the_error() {
        assert_eq!(
            complaint("note\nk.ptx, line 3; error : Unknown\ndone\n"),
            "k.ptx, line 3; error : Unknown"
        );
        assert_eq!(complaint("one\ntwo\n\n"), "two");
        assert_eq!(
            complaint("x fatal : (C7602) few\nx fatal : aborted due to errors\n"),
            "x fatal : (C7602) few"
        );
        assert_eq!(complaint(""), "no message");
    }

    #[test]
    fn flags_that_name_the_cap_take_the_uncapped_cubin() {
        let capped: Recipe = "shared=--spills shared".parse().unwrap();
        assert_eq!(capped.input_cap(Some(64)), Some(64));
        let uncapped: Recipe = "spill=--maxnreg {cap}".parse().unwrap();
        assert_eq!(uncapped.input_cap(Some(64)), None);
    }

    #[test]
    fn a_build_that_fails_carries_the_reason() {
        let folder = std::env::temp_dir();
        let workshop = Workshop {
            warpalloc: None,
            ptxas: None,
            arch: "sm_90".into(),
            fmad: false,
            promote: false,
            folder,
            jobs: 2,
            patience: Duration::from_secs(1),
        };
        let one = Extent([1; 3]);
        let launch = Launch {
            grid: one,
            block: one,
            dynamic_shared: 0,
            stack: 0,
            arguments: vec![],
        };
        let source = Source {
            name: "k".into(),
            text: String::new(),
            requires_sm: 90,
            kernels: vec![Kernel {
                name: "k".into(),
                launch,
            }],
            functions: Vec::new(),
        };
        let allocator = Allocator::Warpalloc {
            strategy: "x".into(),
            space: "local".into(),
        };
        let build = Build {
            source: 0,
            kernel: 0,
            cap: Some(32),
            allocator,
        };
        let made = workshop.make(&[source], &[build]);
        assert_eq!(
            made[0].as_ref().unwrap_err(),
            "no warpalloc command was given"
        );
    }
}
