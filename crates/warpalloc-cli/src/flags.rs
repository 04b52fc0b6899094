//! The flags that steer an allocator, each by the name of the option it sets.
//!
//! What an option takes is known to [`Options::set`] alone: a flag is checked by setting it on
//! a set of options that is thrown away, so that what is refused is refused while the command
//! line is read, with the flag, the value and what would have been accepted.

use clap::Args;
use warpalloc::{Options, Strategy};

use crate::UsageError;

/// Flags of allocation as a whole.
#[derive(Args, Debug)]
#[command(next_help_heading = "Phases")]
pub struct PhaseFlags {
    /// Prove the result before writing it [default: true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = checked("verify"))]
    verify_regalloc: Option<String>,
    /// Do not prove the result: --verify-regalloc=false
    #[arg(long, conflicts_with = "verify_regalloc")]
    no_verify: bool,
    /// Do not reorder crowded blocks before allocation
    #[arg(long)]
    no_schedule: bool,
    /// Do not split long live ranges before allocation
    #[arg(long)]
    no_split: bool,
    /// Do not remove and join needless code after allocation
    #[arg(long)]
    no_cleanup: bool,
    /// Set any option or knob by its name (see `warpalloc options` and `warpalloc knobs`), after
    /// all other flags; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = setting)]
    option: Vec<(String, String)>,
}

/// Flags of the colouring allocator.
#[derive(Args, Debug)]
#[command(next_help_heading = "Colouring (--regalloc=briggs)")]
pub struct ColouringFlags {
    /// Refuse a function of which more than N values would be spilled [default: none]
    #[arg(long, value_name = "N", value_parser = checked("spill-limit"))]
    spill_limit: Option<String>,
    /// Registers count as scarce where more than this part of them is in use. What must spill
    /// also tries to spill down to here, and keeps that if it is cheaper (100: never tried);
    /// below it, copies are merged without a test [default: 70 before SM 90, 80 from SM 90 on]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=100))]
    pressure_limit: Option<u8>,
    /// Merge no copies: one goes away only where both its ends happen to get the same register
    #[arg(long)]
    disable_coalescing: bool,
    /// Merge the ends of at most N copies in each round [default: none]
    #[arg(long, value_name = "N", value_parser = checked("coalescing-limit"))]
    coalescing_limit: Option<String>,
    /// Where merges are tested (--optimistic-coalescing=false), a neighbour stands in the way
    /// once its degree times this reaches the number of its registers: the smaller, the bolder
    /// [default: 0.8]
    #[arg(long, value_name = "FACTOR", value_parser = checked("coalescing-factor"))]
    coalescing_factor: Option<String>,
    /// Merge first and undo what costs a colour, instead of merging only what is safe
    /// [default: true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = checked("optimistic-coalescing"))]
    optimistic_coalescing: Option<String>,
    /// Check the interference graph after each merge (slow)
    #[arg(long)]
    verify_coalescing: bool,
    /// Merge copies between values that stay within a block [default: true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = checked("join-liveintervals"))]
    join_liveintervals: Option<String>,
    /// Merge copies of values that are live where blocks meet [default: true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = checked("join-globalcopies"))]
    join_globalcopies: Option<String>,
    /// Merge with values in fixed registers: arguments, results, pinned operands
    /// [default: true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = checked("join-physregs"))]
    join_physregs: Option<String>,
}

/// An option and its value.
type Setting<'f> = (&'static str, Option<&'f str>);

impl PhaseFlags {
    /// Sets what these flags say, `--option` last.
    pub fn apply(&self, options: &mut Options) -> Result<(), UsageError> {
        let off = |flag: bool| flag.then_some("false");
        let verify = self.verify_regalloc.as_deref();
        let settings: [Setting; 4] = [
            ("verify", verify.or(off(self.no_verify))),
            ("schedule", off(self.no_schedule)),
            ("split", off(self.no_split)),
            ("cleanup", off(self.no_cleanup)),
        ];
        let settings = settings.into_iter().filter_map(given);
        let by_name = self.option.iter().map(|(n, v)| (n.as_str(), v.as_str()));
        for (name, value) in settings.chain(by_name) {
            let set = options.set(name, value);
            set.map_err(|error| UsageError(error.to_string()))?;
        }
        Ok(())
    }
}

impl ColouringFlags {
    /// Sets what these flags say; no other allocator knows them.
    pub fn apply(&self, options: &mut Options) -> Result<(), UsageError> {
        let on = |flag: bool| flag.then_some("true");
        let pressure = self
            .pressure_limit
            .map(|p| (f32::from(p) / 100.0).to_string());
        let settings: [Setting; 10] = [
            ("spill-limit", self.spill_limit.as_deref()),
            ("pressure-limit", pressure.as_deref()),
            ("disable-coalescing", on(self.disable_coalescing)),
            ("coalescing-limit", self.coalescing_limit.as_deref()),
            ("coalescing-factor", self.coalescing_factor.as_deref()),
            (
                "optimistic-coalescing",
                self.optimistic_coalescing.as_deref(),
            ),
            ("verify-coalescing", on(self.verify_coalescing)),
            ("join-liveintervals", self.join_liveintervals.as_deref()),
            ("join-globalcopies", self.join_globalcopies.as_deref()),
            ("join-physregs", self.join_physregs.as_deref()),
        ];
        for (name, value) in settings.into_iter().filter_map(given) {
            if options.strategy != Strategy::Briggs {
                let chosen = options.strategy.name();
                let message =
                    format!("--{name} steers --regalloc=briggs, and {chosen} was asked for");
                return Err(UsageError(message));
            }
            let set = options.set(name, value);
            set.map_err(|error| UsageError(error.to_string()))?;
        }
        Ok(())
    }
}

fn given<'f>((name, value): Setting<'f>) -> Option<(&'f str, &'f str)> {
    value.map(|value| (name, value))
}

/// Lets values pass that the option called `name` takes.
fn checked(name: &'static str) -> impl Fn(&str) -> Result<String, String> + Clone + Send + Sync {
    move |value| {
        let result = Options::default().set(name, value);
        result.map(|()| value.to_owned()).map_err(|e| e.to_string())
    }
}

/// Splits `NAME=VALUE` where there is such an option and it takes that value.
fn setting(text: &str) -> Result<(String, String), String> {
    let Some((name, value)) = text.split_once('=') else {
        return Err("an option is set by NAME=VALUE".to_owned());
    };
    if let Some((_, flag)) = WITH_A_FLAG_OF_THEIR_OWN.iter().find(|(n, _)| *n == name) {
        return Err(format!("`{name}` is set by {flag}"));
    }
    let result = Options::default().set(name, value);
    result.map_err(|error| error.to_string())?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Options that are more than a choice of the allocator.
const WITH_A_FLAG_OF_THEIR_OWN: [(&str, &str); 2] =
    [("strategy", "--regalloc"), ("spill", "--spill-space")];
