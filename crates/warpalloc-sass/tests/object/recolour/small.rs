//! Code of a few instructions.

use super::reaching::assert_same;
use warpalloc::Strategy;
use warpalloc_sass::isa::{Control, Inst, Sm};
use warpalloc_sass::recolour::{Goal, RecolourError, RecolourOptions, Recoloured, recolour_code};
use warpalloc_sass::{Cfg, Code, Links, decode, hazard};

/// LDG.E R4, desc[UR4][R2.64]
const LOAD: u128 = 0x000f_e800_0c1e_1900_0000_0004_0204_7981;
/// STG.E desc[UR4][R2.64], R4
const STORE: u128 = 0x000f_e800_0c10_1904_0000_0004_0200_7986;
/// FADD R4, R4, R5
const SUM: u128 = 0x000f_e200_0000_0000_0000_0005_0404_7221;
/// MOV R2, 0x1
const MOVE: u128 = 0x000f_e200_0000_0f00_0000_0001_0002_7802;
/// EXIT
const EXIT: u128 = 0x000f_ea00_0380_0000_0000_0000_0000_794d;
/// RET.REL.NODEC R20 0x0
const RETURN: u128 = 0x000f_ea00_03c3_ffff_ffff_ffff_1400_7950;

/// An instruction with these first registers in its operands.
fn inst(word: u128, registers: &[u8]) -> Inst {
    let mut inst = decode(word, Sm::new(90).unwrap()).unwrap();
    let general: Vec<usize> = (0..inst.operands().len())
        .filter(|&number| inst.operands()[number].file == warpalloc_sass::isa::File::R)
        .collect();
    assert_eq!(general.len(), registers.len(), "{inst}");
    for (&operand, &register) in general.iter().zip(registers) {
        inst = inst.with_register(operand, register).unwrap();
    }
    inst
}

fn scheduled(inst: Inst, stall: u8, write: Option<u8>, read: Option<u8>, wait: u8) -> Inst {
    inst.with_control(Control {
        stall,
        write_scoreboard: write,
        read_scoreboard: read,
        wait_mask: wait,
        ..inst.control()
    })
}

fn code(insts: &[Inst]) -> (Code, Cfg) {
    let bytes: Vec<u8> = insts.iter().flat_map(|i| i.word().to_le_bytes()).collect();
    let code = Code::decode(&bytes, 90).unwrap();
    let cfg = Cfg::build(&code, &Links::default()).unwrap();
    (code, cfg)
}

fn recoloured(insts: &[Inst], stated: u32) -> Result<Recoloured, RecolourError> {
    let (old, cfg) = code(insts);
    let mut all = Vec::new();
    for strategy in [Strategy::Briggs, Strategy::Fatpoint] {
        let mut options = RecolourOptions::default();
        options.strategy = strategy;
        options.goal = Goal::Fewest;
        let done = recolour_code("f", &old, &cfg, stated, &options)?;
        if let Some(new) = &done.code {
            assert_eq!(hazard::check(new, &cfg), []);
            assert_same("f", &old, new, &cfg);
        }
        all.push(done);
    }
    assert_eq!(all[0].registers_after, all[1].registers_after);
    Ok(all.swap_remove(0))
}

fn exit() -> Inst {
    inst(EXIT, &[])
}

#[test]
fn a_value_comes_down_to_the_lowest_free_register() {
    // R100 = R4 + R5, beside the address in R2 and R3 and the stack pointer.
    let insts = [
        scheduled(inst(LOAD, &[4, 2]), 2, Some(0), None, 0),
        scheduled(inst(SUM, &[100, 4, 5]), 5, None, None, 1),
        scheduled(inst(STORE, &[2, 100]), 5, None, None, 0),
        exit(),
    ];
    let done = recoloured(&insts, 103).unwrap();
    let code = done.code.unwrap();
    // The sum is where one of its terms was.
    let sum = code.insts()[1].operands();
    assert!(sum[0].first == sum[1].first || sum[0].first == sum[2].first);
    // Five registers are live at most, R1 included; the pair leaves R0 for a term.
    assert_eq!(done.registers_after, 5 + 2);
}

#[test]
fn a_pair_that_two_instructions_write_stays_a_pair() {
    let insts = [
        scheduled(inst(MOVE, &[40]), 5, None, None, 0),
        scheduled(inst(MOVE, &[41]), 5, None, None, 0),
        scheduled(inst(LOAD, &[60, 40]), 2, Some(0), None, 0),
        scheduled(inst(STORE, &[40, 60]), 5, None, None, 1),
        exit(),
    ];
    let done = recoloured(&insts, 63).unwrap();
    let code = done.code.unwrap();
    let first = |at: usize, operand: usize| code.insts()[at].operands()[operand].first;
    assert_eq!(first(0, 0) % 2, 0);
    assert_eq!(first(1, 0), first(0, 0) + 1);
    assert_eq!(first(2, 1), first(0, 0));
    assert!(done.registers_after <= 4 + 2);
}

#[test]
fn an_address_is_overwritten_once_it_is_read_and_not_when_memory_answers() {
    // The second load takes the registers of the first one's address: its own is the same
    // value, and the sum behind it is the only other one.
    let insts = [
        scheduled(inst(LOAD, &[4, 2]), 2, Some(0), None, 0),
        scheduled(inst(SUM, &[30, 6, 7]), 5, None, None, 0),
        scheduled(inst(SUM, &[31, 30, 8]), 5, None, None, 0),
        scheduled(inst(SUM, &[30, 31, 31]), 5, None, None, 0),
        scheduled(inst(SUM, &[32, 4, 30]), 5, None, None, 1),
        scheduled(inst(STORE, &[10, 32]), 5, None, None, 0),
        exit(),
    ];
    let done = recoloured(&insts, 35).unwrap();
    let code = done.code.unwrap();
    let load = &code.insts()[0];
    let address = load.operands()[1];
    let overwrites = |inst: &&Inst| {
        let defs = inst.defs();
        address.registers().any(|reg| defs.contains(reg))
    };
    let second = code.insts()[1..].iter().find(overwrites).unwrap();
    if second.control().wait_mask & 1 == 0 {
        let board = load.control().read_scoreboard.unwrap();
        assert_ne!(Some(board), load.control().write_scoreboard);
        assert_eq!(second.control().wait_mask, 1 << board);
        assert_eq!((done.added.waits, done.added.scoreboards), (1, 1));
    }
}

#[test]
fn a_guarded_definition_keeps_the_old_value() {
    let guarded = |inst: Inst| decode(inst.word() & !(0xf << 12), Sm::new(90).unwrap()).unwrap();
    // R50 = 1; @P0 R50 = 1; R51 = R50 + R50
    let insts = [
        scheduled(inst(MOVE, &[50]), 5, None, None, 0),
        scheduled(guarded(inst(MOVE, &[50])), 5, None, None, 0),
        scheduled(inst(SUM, &[51, 50, 50]), 5, None, None, 0),
        scheduled(inst(STORE, &[2, 51]), 5, None, None, 0),
        exit(),
    ];
    let done = recoloured(&insts, 54).unwrap();
    let code = done.code.unwrap();
    let first = |at: usize| code.insts()[at].operands()[0].first;
    assert_eq!(first(0), first(1));
}

#[test]
fn a_reuse_flag_goes_where_the_kept_operand_is_overwritten() {
    // FADD R9, R4.reuse, R5; FADD R8, R4, R5: R8 comes down onto R4's register or not, but the
    // flag of the first stays while the second reads the same value.
    let mut first = scheduled(inst(SUM, &[90, 4, 5]), 5, None, None, 0);
    first = first.with_control(Control {
        reuse: 1,
        ..first.control()
    });
    let insts = [
        first,
        scheduled(inst(SUM, &[91, 4, 90]), 5, None, None, 0),
        scheduled(inst(STORE, &[2, 91]), 5, None, None, 0),
        exit(),
    ];
    let done = recoloured(&insts, 94).unwrap();
    assert_eq!(done.code.unwrap().insts()[0].control().reuse, 1);
    assert_eq!(done.added.reuses_dropped, 0);
    // Here nothing reads it again.
    let mut useless = insts.clone();
    useless[1] = scheduled(inst(SUM, &[91, 90, 90]), 5, None, None, 0);
    let done = recoloured(&useless, 94).unwrap();
    assert_eq!(done.code.unwrap().insts()[0].control().reuse, 0);
    assert_eq!(done.added.reuses_dropped, 1);
}

#[test]
fn what_returns_to_other_code_is_refused_by_name() {
    let insts = [inst(RETURN, &[20]), exit()];
    let error = recoloured(&insts, 24).unwrap_err();
    assert_eq!(
        error.to_string(),
        "at 0x0000: RET R20..22: it returns to code that is not here"
    );
}

#[test]
fn a_hazard_of_the_original_is_none_of_ours() {
    let insts = [
        scheduled(inst(LOAD, &[4, 2]), 2, Some(0), None, 0),
        scheduled(inst(SUM, &[100, 4, 5]), 5, None, None, 0),
        exit(),
    ];
    let error = recoloured(&insts, 103).unwrap_err();
    assert!(matches!(error, RecolourError::OriginalHazard(_)), "{error}");
}
