//! Hazards: code with enough waits and stalls passes, and each mutant of it is caught.

use warpalloc_sass::hazard::{Hazard, HazardKind, check};
use warpalloc_sass::isa::{Control, Sm};
use warpalloc_sass::{Cfg, Code, Links, decode};

/// LDG.E R4, desc[UR4][R2.64]
const LOAD: u128 = 0x000f_e800_0c1e_1900_0000_0004_0204_7981;
/// STG.E desc[UR4][R2.64], R4
const STORE: u128 = 0x000f_e800_0c10_1904_0000_0004_0200_7986;
/// LDS R6, [R8]
const SHARED: u128 = 0x000f_e800_0000_0800_0000_0000_0806_7984;
/// LDS R7, [R9]
const SHARED2: u128 = 0x000f_e800_0000_0800_0000_0000_0907_7984;
/// FADD R4, R4, R5
const SUM: u128 = 0x000f_e200_0000_0000_0000_0005_0404_7221;
/// FADD R10, R6, R7
const SUM_SHARED: u128 = 0x000f_e200_0000_0000_0000_0007_060a_7221;
/// BAR.SYNC.DEFER_BLOCKING 0x0
const BARRIER: u128 = 0x000f_ec00_0001_0000_0000_0000_0000_7b1d;
/// DEPBAR.LE SB0, 0x1
const DEPBAR: u128 = 0x000f_e200_0000_0000_0000_8040_0000_791a;
/// EXIT
const EXIT: u128 = 0x000f_ea00_0380_0000_0000_0000_0000_794d;
/// BRA to the instruction `n` before the next one
fn back(n: u128) -> u128 {
    ahead(n.wrapping_neg())
}

/// BRA over the next `n` instructions
fn ahead(n: u128) -> u128 {
    let units = n.wrapping_mul(4);
    let fields = (units & 0xff) << 16 | (units >> 8 & 0xffff_ffff_ffff) << 34;
    0x000f_ea00_0380_0000_0000_0000_0000_7947 | fields
}

/// Stall, write and read scoreboard, scoreboards waited for.
fn control(
    word: u128,
    stall: u8,
    write_scoreboard: Option<u8>,
    read_scoreboard: Option<u8>,
    wait_mask: u8,
) -> u128 {
    let inst = decode(word, Sm::new(90).unwrap()).unwrap();
    let control = Control {
        stall,
        write_scoreboard,
        read_scoreboard,
        wait_mask,
        ..inst.control()
    };
    inst.with_control(control).word()
}

fn hazards(words: &[u128]) -> Vec<Hazard> {
    hazards_on(90, words)
}

fn hazards_on(sm: u32, words: &[u128]) -> Vec<Hazard> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let code = Code::decode(&bytes, sm).unwrap();
    let cfg = Cfg::build(&code, &Links::default()).unwrap();
    check(&code, &cfg)
}

/// Kind, register, first and second instruction.
fn found(words: &[u128]) -> Vec<(HazardKind, String, usize, usize)> {
    let list = hazards(words);
    list.iter()
        .map(|hazard| {
            (
                hazard.kind,
                hazard.reg.to_string(),
                hazard.first,
                hazard.second,
            )
        })
        .collect()
}

fn raw(reg: &str, first: usize, second: usize) -> (HazardKind, String, usize, usize) {
    (HazardKind::ReadAfterWrite, reg.to_owned(), first, second)
}

fn war(reg: &str, first: usize, second: usize) -> (HazardKind, String, usize, usize) {
    (HazardKind::WriteAfterRead, reg.to_owned(), first, second)
}

#[test]
fn a_load_is_waited_for() {
    let load = control(LOAD, 2, Some(0), None, 0);
    assert_eq!(found(&[load, control(SUM, 5, None, None, 1), EXIT]), []);
    // The wait dropped, and for another scoreboard.
    for mask in [0, 2] {
        let mutant = [load, control(SUM, 5, None, None, mask), EXIT];
        let list = found(&mutant);
        assert!(list.contains(&raw("R4", 0, 1)), "{list:?}");
    }
    // The load signals nothing.
    let silent = control(LOAD, 2, None, None, 0);
    assert!(found(&[silent, control(SUM, 5, None, None, 1), EXIT]).contains(&raw("R4", 0, 1)));
}

#[test]
fn a_wrong_width_is_caught() {
    // With 64 bits the load also writes R5, whose old value the sum needs no wait for.
    let narrow = control(LOAD, 2, Some(0), None, 0);
    let other = control(SUM, 5, None, None, 0) & !(0xff << 24) | 11 << 24;
    assert_eq!(found(&[narrow, other & !(0xff << 16) | 12 << 16, EXIT]), []);
    let wide = narrow & !(7 << 73) | 5 << 73;
    assert_eq!(
        found(&[wide, other & !(0xff << 16) | 12 << 16, EXIT]),
        [raw("R5", 0, 1)]
    );
}

#[test]
fn a_stall_is_long_enough() {
    let sum = |stall| control(SUM, stall, None, None, 0);
    assert_eq!(found(&[sum(4), sum(4), EXIT]), []);
    let list = hazards(&[sum(3), sum(4), EXIT]);
    assert_eq!(
        list[0].to_string(),
        "0x0010 reads R4 that 0x0000 writes after 3 cycles, not 4"
    );
    // Stalls of what is in between count.
    assert_eq!(
        found(&[sum(1), control(SUM_SHARED, 3, None, None, 0), sum(4), EXIT]),
        []
    );
}

#[test]
fn a_store_has_read_its_data_before_they_are_overwritten() {
    // A read scoreboard, or the write scoreboard of something later in the queue.
    let store = control(STORE, 2, None, Some(1), 0);
    let sum = |mask| control(SUM, 5, None, None, mask);
    assert_eq!(found(&[store, sum(2), EXIT]), []);
    assert_eq!(found(&[store, sum(0), EXIT]), [war("R4", 0, 1)]);
    let silent = control(STORE, 2, None, None, 0);
    let later = control(SHARED, 2, Some(0), None, 0);
    assert_eq!(found(&[silent, later, sum(1), EXIT]), []);
}

#[test]
fn a_barrier_waits_for_reads_on_sm_75_alone() {
    let code = |wait| {
        [
            control(SHARED, 2, None, Some(1), 0),
            BARRIER,
            sum_into(8) | u128::from(wait) << 117,
            EXIT,
        ]
    };
    assert_eq!(hazards_on(75, &code(false)), []);
    for sm in [80, 86, 87, 89, 90] {
        let list = hazards_on(sm, &code(false));
        assert_eq!(list.len(), 1, "{sm} {list:?}");
        let told = "0x0020 writes R8 that 0x0000 reads, and waits for no scoreboard of it";
        assert_eq!(list[0].to_string(), told);
        assert_eq!(hazards_on(sm, &code(true)), [], "{sm}");
    }
}

/// S2R R6, SR_TID.X
const THREAD: u128 = 0x000f_e200_0000_2100_0000_0000_0006_7919;
/// S2R R7, SR_CTAID.X
const BLOCK: u128 = 0x000f_e200_0000_2500_0000_0000_0007_7919;

#[test]
fn special_registers_come_in_any_order() {
    let silent = control(THREAD, 2, None, None, 0);
    let signalled = control(BLOCK, 2, Some(0), None, 0);
    let sum = control(SUM_SHARED, 5, None, None, 1);
    assert_eq!(found(&[silent, signalled, sum, EXIT]), [raw("R6", 0, 2)]);
    let first = control(THREAD, 2, Some(0), None, 0);
    assert_eq!(found(&[first, signalled, sum, EXIT]), []);
}

#[test]
fn shared_loads_finish_in_order() {
    let silent = control(SHARED, 2, None, None, 0);
    let signalled = control(SHARED2, 2, Some(0), None, 0);
    let sum = control(SUM_SHARED, 5, None, None, 1);
    assert_eq!(found(&[silent, signalled, sum, EXIT]), []);
    // The other way round nothing covers the second.
    let first = control(SHARED, 2, Some(0), None, 0);
    let second = control(SHARED2, 2, None, None, 0);
    assert_eq!(found(&[first, second, sum, EXIT]), [raw("R7", 1, 2)]);
}

#[test]
fn a_counted_wait_leaves_the_last_ones_out() {
    let first = control(SHARED, 2, Some(0), None, 0);
    let second = control(SHARED2, 2, Some(0), None, 0);
    let sum = control(SUM_SHARED, 5, None, None, 0);
    // One may remain: R6 is there, R7 is not.
    assert_eq!(
        found(&[first, second, DEPBAR, sum, EXIT]),
        [raw("R7", 1, 3)]
    );
    assert_eq!(
        found(&[first, second, sum, EXIT]),
        [raw("R6", 0, 2), raw("R7", 1, 2)]
    );
}

#[test]
fn hazards_go_round_loops() {
    // The load at the end of the loop is read at its start.
    let sum = |mask| control(SUM, 5, None, None, mask);
    let load = control(LOAD, 2, Some(0), None, 0);
    assert_eq!(found(&[sum(1), load, back(3)]), []);
    let list = found(&[sum(0), load, back(3)]);
    assert!(list.contains(&raw("R4", 1, 0)), "{list:?}");
}

/// The instruction under a guard: 0 for P0, 8 for !P0.
fn guarded(word: u128, guard: u128) -> u128 {
    word & !(0xf << 12) | guard << 12
}

#[test]
fn a_read_is_remembered_until_the_last_write_of_its_block() {
    let store = control(STORE, 2, None, Some(1), 0);
    let written = control(sum_into(4), 5, None, None, 0);
    // The write before the store is another one.
    let code = [written, store, written, EXIT];
    assert_eq!(found(&code), [war("R4", 1, 2)]);
    // A write under a guard is one.
    let code = [store, guarded(written, 0), EXIT];
    assert_eq!(found(&code), [war("R4", 0, 1)]);
}

#[test]
fn a_read_is_remembered_across_blocks_that_do_not_write() {
    let store = control(STORE, 2, None, Some(1), 0);
    let other = control(SUM_SHARED, 5, None, None, 0);
    let write = |mask| control(sum_into(4), 5, None, None, mask);
    let code = |mask| {
        [
            store,
            guarded(ahead(3), 0),
            other,
            guarded(ahead(0), 0),
            write(mask),
            EXIT,
        ]
    };
    assert_eq!(found(&code(0)), [war("R4", 0, 4)]);
    assert_eq!(found(&code(2)), []);
}

#[test]
fn a_read_is_remembered_round_a_loop() {
    let store = control(STORE, 2, None, Some(1), 0);
    let other = control(SUM_SHARED, 5, None, None, 0);
    let write = |mask| control(sum_into(4), 5, None, None, mask);
    // The block that the branch goes back to writes nothing of the store's, the next one does.
    let code = |mask| {
        [
            other,
            guarded(ahead(4), 0),
            write(mask),
            guarded(ahead(2), 0),
            store,
            back(6),
            EXIT,
        ]
    };
    assert_eq!(found(&code(0)), [war("R4", 4, 2)]);
    assert_eq!(found(&code(2)), []);
}

#[test]
fn opposite_guards_do_not_meet() {
    let load = guarded(control(LOAD, 2, Some(0), None, 0), 0);
    let sum = control(SUM, 5, None, None, 0);
    assert_eq!(found(&[load, guarded(sum, 8), EXIT]), []);
    assert!(!found(&[load, guarded(sum, 0), EXIT]).is_empty());
}

/// DADD R6, R4, R6
const DOUBLE: u128 = 0x000f_d000_0000_0006_0000_0000_0406_7229;
/// HMMA.16816.F32.BF16 R48, R132, R154, R48
const PRODUCT: u128 = 0x000f_ec00_0004_1830_0000_009a_8430_723c;

/// FADD of `register` from R20 and R21.
fn sum_into(register: u128) -> u128 {
    SUM & !(0xff << 16 | 0xff << 24 | 0xff << 32) | register << 16 | 20 << 24 | 21 << 32
}

#[test]
fn a_slow_write_is_not_overtaken_by_a_quick_one() {
    let double = |stall| control(DOUBLE, stall, None, None, 0);
    assert_eq!(found(&[double(6), sum_into(6), EXIT]), []);
    let list = hazards(&[double(5), sum_into(6), EXIT]);
    assert_eq!(list.len(), 1);
    assert_eq!(
        list[0].to_string(),
        "0x0010 writes R6 that 0x0000 writes after 5 cycles, not 6"
    );
    // Another one of the same unit comes behind it.
    assert_eq!(found(&[sum_into(6), sum_into(6), EXIT]), []);
}

#[test]
fn a_matrix_product_reads_for_some_cycles() {
    let product = |stall| control(PRODUCT, stall, None, None, 0);
    for (register, name) in [(132, "R132"), (135, "R135"), (155, "R155")] {
        assert_eq!(found(&[product(7), sum_into(register), EXIT]), []);
        assert_eq!(
            found(&[product(6), sum_into(register), EXIT]),
            [war(name, 0, 1)]
        );
    }
}

#[test]
fn a_wait_right_behind_does_not_see_the_signal() {
    let load = |stall| control(LOAD, stall, Some(0), None, 0);
    let sum = control(SUM, 5, None, None, 1);
    assert_eq!(found(&[load(2), sum, EXIT]), []);
    assert!(found(&[load(1), sum, EXIT]).contains(&raw("R4", 0, 1)));
    // What is in between takes a cycle at least.
    assert_eq!(
        found(&[load(1), control(SUM_SHARED, 1, None, None, 0), sum, EXIT]),
        []
    );
}
