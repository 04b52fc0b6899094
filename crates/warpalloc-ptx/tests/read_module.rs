//! A module that is read once for several allocations.

use warpalloc::Strategy;
use warpalloc_ptx::module::{
    LocalFrame, ModuleOptions, Outcome, PtxError, SpillSpace, allocate_module, with_module,
};

fn corpus(name: &str) -> String {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../corpus/ptx/");
    std::fs::read_to_string(format!("{root}{name}.sm_90.ptx")).unwrap()
}

fn options(entry: &str, cap: u32, strategy: Strategy) -> ModuleOptions {
    let mut options = ModuleOptions {
        maxnreg: Some(cap),
        block: Some(128),
        entries: vec![entry.to_owned()],
        ..ModuleOptions::default()
    };
    options.options.strategy = strategy;
    options
}

fn frame(source: &str, entry: &str, options: &ModuleOptions) -> Result<LocalFrame, String> {
    let frame = with_module(source, options, |module| module.local_frame(entry, options));
    let frame: Result<Result<LocalFrame, String>, PtxError> = frame.unwrap();
    frame.unwrap()
}

#[test]
fn a_frame_is_that_of_the_text() {
    let source = corpus("wide");
    for (cap, strategy) in [
        (24, Strategy::Scan),
        (24, Strategy::Briggs),
        (32, Strategy::Scan),
        (64, Strategy::Scan),
    ] {
        let options = options("limbs", cap, strategy);
        let frame = frame(&source, "limbs", &options).unwrap();
        let made = allocate_module(&source, &options, None).unwrap();
        let own = made.functions.iter().find(|f| f.name == "limbs").unwrap();
        let Outcome::Allocated(allocated) = &own.outcome else {
            panic!("{:?}", own.outcome)
        };
        assert_eq!(frame.bytes, allocated.frame.local, "{strategy:?} at {cap}");
        assert_eq!(frame.bytes > 0, cap < 64, "{strategy:?} at {cap}");
        assert_eq!(frame.cap, Some(cap));
    }
}

#[test]
fn why_there_is_no_frame_is_told() {
    let source = corpus("wide");
    let reason = |entry: &str, cap: u32| {
        let options = options("limbs", cap, Strategy::Scan);
        frame(&source, entry, &options).unwrap_err()
    };
    assert!(reason("limbs", 8).starts_with("ptxas raises a cap of 8 registers"));
    assert_eq!(reason("quads", 24), "it was not read");
}

/// Space and budget may be others than those that it was read with.
#[test]
fn texts_are_those_of_a_module_that_is_read_again() {
    let (source, name) = (corpus("locals"), "xorshift");
    let texts = [false, true].map(|promote_local| {
        let read = ModuleOptions {
            promote_local,
            ..options(name, 64, Strategy::Scan)
        };
        let options = ModuleOptions {
            spill_space: SpillSpace::SharedOnly,
            margin: -8,
            promote_local,
            ..options(name, 32, Strategy::Briggs)
        };
        let text = with_module(&source, &read, |module| module.allocate_with(&options));
        let text = text.unwrap().unwrap().text;
        let again = allocate_module(&source, &options, None).unwrap();
        assert!(text == again.text, "promoted: {promote_local}");
        text
    });
    assert!(texts[0] != texts[1], "local variables become registers");
}
