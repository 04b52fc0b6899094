//! Control flow, liveness, pressure and loops of small functions for sm_90.

use warpalloc_sass::cfg::Leave;
use warpalloc_sass::isa::File;
use warpalloc_sass::loops::Loops;
use warpalloc_sass::pressure::Pressure;
use warpalloc_sass::{Cfg, CfgError, Code, Links, Liveness};

/// `PT`, the guard of what always runs.
const PT: u8 = 7;

/// An instruction from its opcode and fields: value and lowest bit.
fn word(opcode: u128, guard: u8, fields: &[(u128, u8)]) -> u128 {
    let start = opcode | u128::from(guard) << 12;
    fields
        .iter()
        .fold(start, |word, (value, at)| word | value << at)
}

/// MOV Rd, imm
fn mov(d: u128, guard: u8) -> u128 {
    word(0x802, guard, &[(d, 16), (0x2a, 32)])
}

/// IADD3 Rd, Ra, Rb, RZ
fn add(d: u128, a: u128, b: u128) -> u128 {
    let unused = [(255, 64), (7, 81), (7, 84)];
    let used = [(d, 16), (a, 24), (b, 32)];
    word(0x210, PT, &[&used[..], &unused[..]].concat())
}

/// ISETP P0, PT, Ra, Rb, PT
fn compare(a: u128, b: u128) -> u128 {
    word(0x20c, PT, &[(a, 24), (b, 32), (0, 81), (7, 84), (7, 87)])
}

/// A branch or call by a number of instructions, from the next one.
fn jump(opcode: u128, guard: u8, distance: i128) -> u128 {
    let units = (distance * 4) as u128;
    let fields = [
        (units & 0xff, 16),
        (units >> 8 & 0xffff_ffff_ffff, 34),
        (7, 87),
    ];
    word(opcode, guard, &fields)
}

fn bra(guard: u8, distance: i128) -> u128 {
    jump(0x947, guard, distance)
}

fn call(distance: i128) -> u128 {
    jump(0x944, PT, distance)
}

/// RET.REL.NODEC R20
fn ret() -> u128 {
    word(0x950, PT, &[(20, 24), (7, 87)])
}

/// BRX R2
fn brx() -> u128 {
    word(0x949, PT, &[(2, 24), (7, 87)])
}

fn exit(guard: u8) -> u128 {
    word(0x94d, guard, &[(7, 87)])
}

fn code(words: &[u128]) -> Code {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    Code::decode(&bytes, 90).unwrap()
}

/// The registers of file R and P live before each instruction.
fn live_before(code: &Code, links: &Links) -> Vec<String> {
    let cfg = Cfg::build(code, links).unwrap();
    let rows = Liveness::compute(code, &cfg).all(code, &cfg);
    rows.iter()
        .map(|row| {
            let names: Vec<_> = row.before.iter().map(|reg| reg.to_string()).collect();
            names.join(" ")
        })
        .collect()
}

#[test]
fn a_loop_keeps_its_registers_live() {
    let code = code(&[
        mov(0, PT),    // 0
        add(0, 0, 3),  // 1: loop
        compare(0, 4), // 2
        bra(0, -3),    // 3: @P0 back to 1
        add(5, 0, 0),  // 4
        exit(PT),      // 5
    ]);
    let links = Links::default();
    assert_eq!(
        live_before(&code, &links),
        ["R3 R4", "R0 R3 R4", "R0 R3 R4", "R0 R3 R4 P0", "R0", ""]
    );
    let cfg = Cfg::build(&code, &links).unwrap();
    assert_eq!(cfg.blocks().len(), 3);
    assert_eq!(cfg.blocks()[1].succs.as_slice(), [1, 2]);
    let loops = Loops::compute(&cfg);
    assert_eq!(loops.headers(), [1]);
    assert_eq!([0, 1, 2].map(|block| loops.depth(block)), [0, 1, 0]);
    let liveness = Liveness::compute(&code, &cfg);
    let pressure = Pressure::compute(&code, &cfg, &liveness, File::R);
    assert_eq!(pressure.per_inst, [3, 3, 3, 3, 2, 0]);
    assert_eq!((pressure.peak, pressure.peak_inst), (3, Some(0)));
    assert_eq!(pressure.named, 6);
}

#[test]
fn a_loop_has_the_instructions_of_those_inside_it() {
    let code = code(&[
        mov(0, PT),    // 0
        mov(1, PT),    // 1: outer loop
        add(0, 0, 3),  // 2: inner loop
        compare(0, 4), // 3
        bra(0, -3),    // 4: @P0 back to 2
        bra(0, -5),    // 5: @P0 back to 1
        exit(PT),      // 6
    ]);
    let loops = Loops::compute(&Cfg::build(&code, &Links::default()).unwrap());
    let lengths = [0, 1, 2, 3, 4].map(|block| loops.innermost_length(block));
    assert_eq!(lengths, [0, 5, 3, 5, 0]);
    assert_eq!(loops.longest(), 5);
}

#[test]
fn a_guarded_definition_keeps_the_old_value_live() {
    let guarded = code(&[mov(0, 1), add(5, 0, 0), exit(PT)]);
    assert_eq!(
        live_before(&guarded, &Links::default()),
        ["R0 P1", "R0", ""]
    );
    let unguarded = code(&[mov(0, PT), add(5, 0, 0), exit(PT)]);
    assert_eq!(live_before(&unguarded, &Links::default()), ["", "R0", ""]);
}

#[test]
fn an_instruction_that_never_runs_defines_and_branches_nowhere() {
    // @!PT MOV and @!PT EXIT
    let never = code(&[mov(0, PT | 8), add(5, 0, 0), exit(PT | 8), exit(PT)]);
    assert_eq!(live_before(&never, &Links::default()), ["R0", "R0", "", ""]);
    let cfg = Cfg::build(&never, &Links::default()).unwrap();
    assert_eq!(cfg.blocks().len(), 1);
}

#[test]
fn a_call_inside_the_code_returns_behind_itself() {
    let code = code(&[
        mov(4, PT),   // 0
        call(3),      // 1: to 5
        add(0, 5, 7), // 2
        call(1),      // 3: to 5
        exit(PT),     // 4
        add(5, 4, 6), // 5: the function
        ret(),        // 6
    ]);
    let links = Links::default();
    let cfg = Cfg::build(&code, &links).unwrap();
    let function = cfg.block_of(5);
    // It returns behind both calls, and nowhere else.
    assert_eq!(
        cfg.blocks()[function].succs.as_slice(),
        [cfg.block_of(2), cfg.block_of(4)]
    );
    assert_eq!(cfg.blocks()[function].leaves, Leave::No);
    let live = live_before(&code, &links);
    // R7 is read behind the first call, so that it is live through the function.
    assert_eq!(live[5], "R4 R6 R7 R20 R21");
    assert_eq!(live[2], "R4 R5 R6 R7 R20 R21");
}

#[test]
fn a_call_outside_reads_what_can_be_passed_and_kills_nothing() {
    // CALL.ABS.NOINC R2
    let outside = word(0x343, PT, &[(2, 24), (7, 87)]);
    let code = code(&[outside, add(0, 40, 41), exit(PT)]);
    let live = live_before(&code, &Links::default());
    assert!(live[0].starts_with("R0 R1 R2 ") && live[0].ends_with("R15 R20 R21 R40 R41"));
    assert_eq!(live[1], "R40 R41");
}

#[test]
fn a_call_by_address_goes_to_every_function_that_may_be_called_so() {
    let code = code(&[
        // CALL.REL.NOINC R2, counted from the beginning of the code
        jump(0x344, PT, -1) | 2 << 24, // 0
        add(0, 5, 7),                  // 1
        exit(PT),                      // 2
        add(5, 4, 4),                  // 3: one function
        ret(),                         // 4
        add(5, 6, 6),                  // 5: the other
        ret(),                         // 6
    ]);
    let mut links = Links::default();
    let cfg = Cfg::build(&code, &links).unwrap();
    assert!(cfg.blocks()[0].calls_outside);
    links.by_address.insert(0, vec![48, 80]);
    let cfg = Cfg::build(&code, &links).unwrap();
    let calls = &cfg.blocks()[0];
    assert!(calls.calls && !calls.calls_outside);
    assert_eq!(
        calls.succs.as_slice(),
        [cfg.block_of(3), cfg.block_of(5)],
        "and not behind itself"
    );
    for function in [3, 5] {
        let function = &cfg.blocks()[cfg.block_of(function)];
        assert_eq!(function.succs.as_slice(), [cfg.block_of(1)]);
        assert_eq!(function.leaves, Leave::No);
    }
    assert_eq!(live_before(&code, &links)[0], "R2 R3 R4 R6 R7 R20 R21");
}

#[test]
fn control_does_not_run_into_another_section() {
    let code = code(&[call(1), exit(0), mov(0, PT), ret()]);
    let mut links = Links::default();
    Cfg::build(&code, &links).unwrap();
    links.sections.push(32);
    // The guarded EXIT may fall through.
    let error = Cfg::build(&code, &links).unwrap_err();
    assert_eq!(error, CfgError::End { offset: 32 });
}

#[test]
fn a_return_to_unknown_code_reads_every_register() {
    let code = code(&[add(5, 4, 6), mov(9, PT), ret()]);
    let cfg = Cfg::build(&code, &Links::default()).unwrap();
    assert_eq!(cfg.blocks()[0].leaves, Leave::Return);
    assert_eq!(
        live_before(&code, &Links::default())[2],
        "R4 R5 R6 R9 R20 R21"
    );
}

#[test]
fn an_indirect_branch_needs_its_table() {
    let code = code(&[brx(), mov(0, PT), exit(PT), add(5, 6, 6), exit(PT)]);
    let error = Cfg::build(&code, &Links::default()).unwrap_err();
    assert_eq!(
        error,
        CfgError::Indirect {
            offset: 0,
            mnemonic: "BRX"
        }
    );
    let mut links = Links::default();
    links.tables.insert(0, vec![16, 48]);
    let cfg = Cfg::build(&code, &links).unwrap();
    assert_eq!(cfg.blocks()[0].succs.as_slice(), [1, 2]);
    assert_eq!(live_before(&code, &links)[0], "R2 R3 R6");
    links.tables.insert(0, vec![160]);
    let error = Cfg::build(&code, &links).unwrap_err();
    assert_eq!(
        error.to_string(),
        "at 0x0000: BRX goes to 0xa0, where no instruction begins"
    );
}

#[test]
fn control_does_not_run_past_the_end() {
    let code = code(&[exit(0), mov(0, PT)]);
    let error = Cfg::build(&code, &Links::default()).unwrap_err();
    assert_eq!(error, CfgError::End { offset: 32 });
}

#[test]
fn a_cycle_with_two_entries_is_no_loop() {
    let code = code(&[
        bra(0, 2),  // 0: @P0 to 3
        mov(0, PT), // 1
        mov(1, PT), // 2
        mov(2, PT), // 3
        bra(1, -3), // 4: @P1 to 2
        exit(PT),   // 5
    ]);
    let cfg = Cfg::build(&code, &Links::default()).unwrap();
    assert!(Loops::compute(&cfg).headers().is_empty());
}

#[test]
fn empty_code_has_no_blocks() {
    let code = code(&[]);
    let cfg = Cfg::build(&code, &Links::default()).unwrap();
    assert!(cfg.blocks().is_empty());
    assert!(Liveness::compute(&code, &cfg).all(&code, &cfg).is_empty());
}
