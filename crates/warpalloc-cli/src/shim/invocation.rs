//! The arguments of ptxas, read as ptxas reads them.
//!
//! `--long value`, `--long=value`, `-short value`, `-short=value`; `-O3` and `-m64` also without
//! a space, and `-O` never with one. Options that take no value refuse `=`. What is not in the
//! table is not understood, and then nothing is done to the input.

use std::ffi::OsString;
use std::path::PathBuf;

/// What an option takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    Nothing,
    Value,
    /// A value in the same word: `-O3`.
    Joined,
}

use Takes::{Joined, Nothing, Value};

/// The options of ptxas 13: long name, short name, what they take. `--help` leaves out
/// `regAllocOptLevel`, which Triton sets.
const OPTIONS: [(&str, &str, Takes); 54] = [
    ("Ofast-compile", "Ofc", Value),
    (
        "allow-expensive-optimizations",
        "allow-expensive-optimizations",
        Value,
    ),
    ("compile-as-tools-patch", "astoolspatch", Nothing),
    ("compile-only", "c", Nothing),
    ("compiler-annotations", "annotate", Nothing),
    ("def-load-cache", "dlcm", Value),
    ("def-store-cache", "dscm", Value),
    ("device-debug", "g", Nothing),
    ("device-function-maxrregcount", "func-maxrregcount", Value),
    ("device-stack-protector", "device-stack-protector", Value),
    (
        "disable-optimizer-constants",
        "disable-optimizer-consts",
        Nothing,
    ),
    ("disable-warnings", "w", Nothing),
    ("dont-merge-basicblocks", "no-bb-merge", Nothing),
    ("entry", "e", Value),
    ("extensible-whole-program", "ewp", Nothing),
    ("fmad", "fmad", Value),
    ("force-load-cache", "flcm", Value),
    ("force-store-cache", "fscm", Value),
    (
        "g-tensor-memory-access-check",
        "g-tmem-access-check",
        Nothing,
    ),
    ("generate-line-info", "lineinfo", Nothing),
    (
        "gno-tensor-memory-access-check",
        "gno-tmem-access-check",
        Nothing,
    ),
    ("gpu-name", "arch", Value),
    ("help", "h", Nothing),
    ("input-as-string", "ias", Value),
    (
        "legacy-bar-warp-wide-behavior",
        "legacy-bar-warp-wide-behavior",
        Nothing,
    ),
    ("list-version", "version-ls", Nothing),
    ("machine", "m", Joined),
    (
        "make-errors-visible-at-exit",
        "make-errors-visible-at-exit",
        Nothing,
    ),
    ("maxntid", "maxntid", Value),
    ("maxrregcount", "maxrregcount", Value),
    ("minnctapersm", "minnctapersm", Value),
    ("opt-level", "O", Joined),
    ("optimize-float-atomics", "opt-fp-atomics", Nothing),
    ("output-file", "o", Value),
    (
        "override-directive-values",
        "override-directive-values",
        Nothing,
    ),
    ("position-independent-code", "pic", Value),
    ("preserve-relocs", "preserve-relocs", Nothing),
    ("regAllocOptLevel", "regAllocOptLevel", Value),
    ("register-usage-level", "regUsageLevel", Value),
    ("return-at-end", "ret-end", Nothing),
    ("sanitize", "sanitize", Value),
    ("sp-bounds-check", "sp-bounds-check", Nothing),
    ("split-compile", "split-compile", Value),
    (
        "suppress-async-bulk-multicast-advisory-warning",
        "suppress-async-bulk-multicast-advisory-warning",
        Nothing,
    ),
    ("suppress-debug-info", "suppress-debug-info", Nothing),
    (
        "suppress-double-demote-warning",
        "suppress-double-demote-warning",
        Nothing,
    ),
    (
        "suppress-sparse-mma-advisory-info",
        "suppress-sparse-mma-advisory-info",
        Nothing,
    ),
    (
        "suppress-stack-size-warning",
        "suppress-stack-size-warning",
        Nothing,
    ),
    ("verbose", "v", Nothing),
    ("version", "V", Nothing),
    ("warn-on-double-precision-use", "warn-double-usage", Nothing),
    ("warn-on-local-memory-usage", "warn-lmem-usage", Nothing),
    ("warn-on-spills", "warn-spills", Nothing),
    ("warning-as-error", "Werror", Nothing),
];

/// Options under which the input is passed on untouched, and why.
const UNTOUCHED: [(&str, &str); 15] = [
    ("compile-only", "-c asks for a relocatable object"),
    ("device-debug", "-g asks for code that can be debugged"),
    ("compile-as-tools-patch", "the code is a patch for tools"),
    (
        "extensible-whole-program",
        "-ewp leaves functions to be linked",
    ),
    ("input-as-string", "the input is part of the command line"),
    ("sanitize", "the code is instrumented behind the allocator"),
    (
        "device-stack-protector",
        "the frame is laid out for its protector",
    ),
    ("sp-bounds-check", "the frame is checked at run time"),
    ("Ofast-compile", "a fast compilation is asked for"),
    ("dont-merge-basicblocks", "the code is to be debugged"),
    ("return-at-end", "the code is to be debugged"),
    ("override-directive-values", "options override directives"),
    (
        "legacy-bar-warp-wide-behavior",
        "barriers of old machines are asked for",
    ),
    ("preserve-relocs", "relocations are to stay"),
    ("entry", "one entry is asked for"),
];

/// Options that say nothing of how candidates are to be assembled.
const NOT_OF_CODE: [&str; 15] = [
    "disable-warnings",
    "fmad",
    "generate-line-info",
    "gpu-name",
    "machine",
    "maxntid",
    "maxrregcount",
    "minnctapersm",
    "output-file",
    "suppress-debug-info",
    "verbose",
    "warn-on-double-precision-use",
    "warn-on-local-memory-usage",
    "warn-on-spills",
    "warning-as-error",
];

/// A call of ptxas that was understood.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Invocation {
    /// The inputs, by the position of their argument.
    pub inputs: Vec<(usize, PathBuf)>,
    /// The output, by the position of its word.
    pub output: Option<PathBuf>,
    /// Long names and values of all options.
    options: Vec<(&'static str, Option<String>)>,
}

/// The arguments with those of `-optf FILE` in its place, as ptxas reads them; `Err` says what was not
/// understood. How quotes are read in such a file is not known, so that there may be none.
pub fn expanded(args: &[OsString]) -> Result<Vec<String>, String> {
    let words = args.iter().map(|word| word.to_str().map(str::to_owned));
    let words: Option<Vec<String>> = words.collect();
    let mut words = words.ok_or("an argument that is not UTF-8")?.into_iter();
    let mut expanded = Vec::new();
    while let Some(word) = words.next() {
        let (name, joined) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (word.as_str(), None),
        };
        if !["-optf", "--options-file"].contains(&name) {
            expanded.push(word);
            continue;
        }
        let file = joined
            .or_else(|| words.next())
            .ok_or("an option without a file")?;
        let text = std::fs::read_to_string(&file).map_err(|error| format!("{file}: {error}"))?;
        if text.contains(['"', '\'', '\\', '#'])
            || text.contains("-optf")
            || text.contains("--options-file")
        {
            return Err(format!("what is in {file}"));
        }
        expanded.extend(text.split_whitespace().map(str::to_owned));
    }
    Ok(expanded)
}

impl Invocation {
    /// Reads arguments; `Err` says what was not understood.
    pub fn parse(args: &[String]) -> Result<Invocation, String> {
        let mut invocation = Invocation::default();
        let mut words = args.iter().enumerate();
        while let Some((position, word)) = words.next() {
            if word == "-" || !word.starts_with('-') {
                invocation.inputs.push((position, PathBuf::from(word)));
                continue;
            }
            let (name, mut value) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (word.as_str(), None),
            };
            let (long, takes, joined) = known(name).ok_or_else(|| format!("`{word}`"))?;
            value = value.or(joined);
            if takes == Nothing && value.is_some() {
                return Err(format!("`{word}`"));
            }
            let wants_next = takes == Value || takes == Joined && long != "opt-level";
            if value.is_none() && wants_next {
                let (_, next) = words.next().ok_or_else(|| format!("`{word}`"))?;
                value = Some(next.clone());
            }
            if long == "output-file" {
                invocation.output = value.clone().map(PathBuf::from);
            }
            invocation.options.push((long, value));
        }
        Ok(invocation)
    }

    /// Whether an option was given.
    pub fn has(&self, long: &str) -> bool {
        self.options.iter().any(|(name, _)| *name == long)
    }

    /// The last value of an option, which is the one that counts.
    pub fn value(&self, long: &str) -> Option<&str> {
        let mut options = self.options.iter().rev();
        let found = options.find(|(name, _)| *name == long);
        found.and_then(|(_, value)| value.as_deref())
    }

    /// Whether an option limits the registers of kernels.
    pub fn is_capped(&self) -> bool {
        ["maxrregcount", "maxntid", "minnctapersm"]
            .iter()
            .any(|name| self.has(name))
    }

    /// Where the result goes.
    pub fn output(&self) -> PathBuf {
        let default = || PathBuf::from("elf.o");
        self.output.clone().unwrap_or_else(default)
    }

    /// Why the input is to be passed on as it is.
    pub fn untouched(&self) -> Option<String> {
        if self.inputs.is_empty() {
            return Some("there is no input".to_owned());
        }
        if self.has("help") || self.has("version") || self.has("list-version") {
            return Some("information is asked for".to_owned());
        }
        if let Some((_, why)) = UNTOUCHED.iter().find(|(name, _)| self.has(name)) {
            return Some((*why).to_owned());
        }
        match self.value("opt-level") {
            None | Some("2" | "3" | "4") => {}
            Some(level) => return Some(format!("-O{level} asks for less optimisation")),
        }
        let arch = self.value("gpu-name");
        if arch.is_some_and(|arch| !arch.starts_with("sm_")) {
            return Some("no machine code is asked for".to_owned());
        }
        None
    }

    /// The options that change code beside those that stand for themselves in a request: machine,
    /// cap, fusion, files, messages.
    pub fn of_code(&self) -> Vec<String> {
        let is_of_code = |name: &str| !NOT_OF_CODE.contains(&name);
        let options = self.options.iter().filter(|(name, _)| is_of_code(name));
        let word = |(name, value): &(&str, Option<String>)| match value {
            Some(value) => format!("--{name}={value}"),
            None => format!("--{name}"),
        };
        options.map(word).collect()
    }

    /// Whether products and sums may be fused.
    pub fn fuses(&self) -> bool {
        self.value("fmad") != Some("false")
    }
}

/// The option of a word, what it takes, and a value that is joined to it.
fn known(word: &str) -> Option<(&'static str, Takes, Option<String>)> {
    if let Some(name) = word.strip_prefix("--") {
        let (long, _, takes) = OPTIONS.iter().find(|(long, ..)| *long == name)?;
        // Only the short form has its value in the same word.
        let takes = if *takes == Joined { Value } else { *takes };
        return Some((long, takes, None));
    }
    let name = word.strip_prefix('-')?;
    if let Some((long, _, takes)) = OPTIONS.iter().find(|(_, short, _)| *short == name) {
        return Some((long, *takes, None));
    }
    let joined = OPTIONS.iter().filter(|(.., takes)| *takes == Joined);
    joined.into_iter().find_map(|(long, short, takes)| {
        let value = name.strip_prefix(short)?;
        let is_number = value.bytes().all(|byte| byte.is_ascii_digit());
        (is_number && !value.is_empty()).then(|| (*long, *takes, Some(value.to_owned())))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Invocation, String> {
        let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Invocation::parse(&args)
    }

    #[test]
    fn all_spellings_are_read() {
        for line in [
            "-arch sm_90 -maxrregcount 64 -O3 -m64 -v a.ptx -o a.cubin",
            "--gpu-name=sm_90 --maxrregcount=64 --opt-level 3 --machine=64 --verbose a.ptx --output-file a.cubin",
            "-arch=sm_90 -maxrregcount=32 -maxrregcount=64 -O=3 -m 64 -v a.ptx -o=a.cubin",
        ] {
            let invocation = parse(line).unwrap();
            assert_eq!(invocation.value("gpu-name"), Some("sm_90"), "{line}");
            assert_eq!(invocation.value("maxrregcount"), Some("64"), "{line}");
            assert_eq!(invocation.value("opt-level"), Some("3"), "{line}");
            assert_eq!(invocation.value("machine"), Some("64"), "{line}");
            assert!(invocation.has("verbose"), "{line}");
            assert_eq!(invocation.output(), PathBuf::from("a.cubin"), "{line}");
            let inputs: Vec<_> = invocation.inputs.iter().map(|(_, path)| path).collect();
            assert_eq!(inputs, [&PathBuf::from("a.ptx")], "{line}");
            assert_eq!(invocation.untouched(), None, "{line}");
        }
    }

    #[test]
    fn what_ptxas_refuses_is_not_understood() {
        for line in [
            "-archsm_90 a.ptx",
            "--arch sm_90 a.ptx",
            "-gpu-name sm_90 a.ptx",
            "-oa.cubin a.ptx",
            "-v=1 a.ptx",
            "-bogus",
            "a.ptx -maxrregcount",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn what_asks_for_other_code_is_passed_on() {
        for line in [
            "",
            "--version",
            "-c a.ptx",
            "-g a.ptx",
            "-O0 a.ptx",
            "-O1 a.ptx",
            "-arch compute_90 a.ptx",
            "--entry k a.ptx",
            "--sanitize memcheck a.ptx",
        ] {
            assert!(parse(line).unwrap().untouched().is_some(), "{line}");
        }
    }

    #[test]
    fn options_of_a_file_stand_in_its_place() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let name = file.path().to_str().unwrap();
        let read = |text: &str, args: &[&str]| {
            std::fs::write(file.path(), text).unwrap();
            let args: Vec<OsString> = args.iter().map(OsString::from).collect();
            expanded(&args)
        };
        let words = ["-v", "-arch", "sm_90", "-O3", "a.ptx"].map(str::to_owned);
        let text = "-arch sm_90\n  -O3\n";
        assert_eq!(
            read(text, &["-v", "-optf", name, "a.ptx"]),
            Ok(words.to_vec())
        );
        let joined = format!("--options-file={name}");
        assert_eq!(read(text, &["-v", &joined, "a.ptx"]), Ok(words.to_vec()));
        for text in ["-o 'a b'", "-o \"a b\"", "-o a\\ b", "-optf other"] {
            assert!(read(text, &["-optf", name]).is_err(), "{text}");
        }
        assert!(read("", &["-optf", "no such file"]).is_err());
        assert!(read("", &["-optf"]).is_err());
    }

    /// Candidates are assembled as the result will be.
    #[test]
    fn options_of_code_are_passed_on() {
        let line = "-lineinfo -v --regAllocOptLevel=2 --gpu-name=sm_90 -maxrregcount 64 -O3 -dlcm=ca a.ptx -o b";
        let expected = [
            "--regAllocOptLevel=2",
            "--opt-level=3",
            "--def-load-cache=ca",
        ];
        assert_eq!(parse(line).unwrap().of_code(), expected);
        for name in NOT_OF_CODE {
            assert!(OPTIONS.iter().any(|(long, ..)| *long == name), "{name}");
        }
    }

    /// A word behind `-O` is an input, as ptxas has it.
    #[test]
    fn a_level_stands_in_the_same_word() {
        let invocation = parse("-O 3 a.ptx").unwrap();
        assert_eq!(invocation.inputs.len(), 2);
    }
}
