use super::*;
use crate::allocation::{Edit, Edits, Frame, Point, SlotAddr, Space};
use crate::check;
use crate::frame::{merge_accesses, reorder_slots};
use crate::function::{Block, Builder, Effect, Inst, VReg};
use crate::generate::{self, Rng, Shape};
use crate::options::{Options, Strategy};
use crate::scratch::Scratch;
use crate::stats::Stats;
use crate::target::{Class, File, FileInfo, PReg, Target};
use cranelift_entity::{EntityRef, EntitySet};

fn targets() -> Vec<Target> {
    let hardware = || Target::hardware(90).unwrap();
    vec![
        hardware(),
        Target::cicc(),
        Target::hardware_packed(80).unwrap(),
        hardware().with_budget(File::R, 24),
        Target::cicc().with_budget(File::R, 8),
    ]
}

/// What the pipeline does, and how many accesses joined.
fn clean_up(
    function: &Function,
    target: &Target,
    allocation: &mut Allocation,
) -> (CleanupCounts, u32) {
    let scratch = Scratch::default();
    let mut code = Code::new(function, target, allocation, &scratch);
    let counts = run(&mut code, ROUNDS);
    reorder_slots::run(&mut code, allocation.frame);
    let merged = merge_accesses::run(&mut code, allocation.frame);
    code.write_to(allocation, &scratch);
    (counts, merged)
}

#[test]
fn finished_naive_allocations_are_proved_and_much_smaller() {
    let targets = targets();
    let mut rng = Rng::new(17);
    let mut total = CleanupCounts::default();
    let (mut before, mut after, mut merged) = (0, 0, 0);
    for number in 0..2_000 {
        let shape = Shape::random(80, &mut rng);
        let target = &targets[number % targets.len()];
        let function = generate::function(&shape, target, &mut rng);
        let options = Options {
            cleanup: false,
            ..Options::with_strategy(Strategy::Naive)
        };
        let mut allocation = crate::allocate(&function, target, &options).unwrap();
        before += allocation.edits.len();
        let (counts, joined) = clean_up(&function, target, &mut allocation);
        after += allocation.edits.len();
        if let Err(violation) = check::check(&function, target, &allocation) {
            panic!("function {number}: {violation}");
        }
        let limits = check::trace::Limits::default();
        check::trace::compare(&function, target, &allocation, limits, number as u64)
            .unwrap_or_else(|difference| panic!("function {number}: {difference}"));
        total.propagated += counts.propagated;
        total.redundant += counts.redundant;
        total.reloads_to_moves += counts.reloads_to_moves;
        total.dead_edits += counts.dead_edits;
        total.dead_insts += counts.dead_insts;
        merged += joined;
    }
    assert!(
        total.propagated > 1_000 && total.redundant > 1_000,
        "{total:?}"
    );
    assert!(
        total.reloads_to_moves > 1_000 && total.dead_edits > 1_000,
        "{total:?}"
    );
    assert!(total.dead_insts > 100 && merged > 100, "{total:?}");
    assert!(4 * after < 3 * before, "{before} edits became {after}");
}

fn r(number: usize) -> PReg {
    PReg::new(File::R, number)
}

fn slot(offset: i32) -> SlotAddr {
    SlotAddr {
        space: Space::Local,
        offset,
    }
}

fn store(offset: i32, reg: usize) -> Edit {
    Edit::Store {
        to: slot(offset),
        from: r(reg),
        width: 1,
    }
}

fn reload(reg: usize, offset: i32) -> Edit {
    Edit::Reload {
        to: r(reg),
        from: slot(offset),
        width: 1,
    }
}

fn move_(to: usize, from: usize) -> Edit {
    Edit::Move {
        to: r(to),
        from: r(from),
        width: 1,
    }
}

fn before(inst: usize) -> Point {
    Point::Before(Inst::new(inst))
}

/// `function` with operands in the registers of `seats`, in the row of all operands.
fn seated(
    function: &Function,
    seats: &[usize],
    edits: Vec<(Point, Edit)>,
    local: u32,
) -> Allocation {
    Allocation {
        registers: seats.iter().map(|&n| r(n)).collect(),
        memory: Vec::new(),
        edits: Edits::new(function, edits),
        deleted: EntitySet::new(),
        order: None,
        frame: Frame { local, shared: 0 },
        stats: Stats::default(),
    }
}

fn target() -> Target {
    Target::hardware(90).unwrap()
}

/// Finishes an allocation that is right before and must be right after.
fn finish(function: &Function, mut allocation: Allocation) -> (Allocation, CleanupCounts) {
    check::check(function, &target(), &allocation).unwrap();
    let (counts, _) = clean_up(function, &target(), &mut allocation);
    check::check(function, &target(), &allocation).unwrap();
    (allocation, counts)
}

fn edits(allocation: &Allocation) -> Vec<Edit> {
    allocation
        .edits
        .iter()
        .map(|(_, edit)| edit.clone())
        .collect()
}

/// `count` values are loaded, and each is then used.
fn straight(count: usize) -> (Function, Vec<VReg>) {
    let mut b = Builder::new("f");
    let block = b.block();
    let values: Vec<VReg> = (0..count).map(|_| b.vreg(Class::R32)).collect();
    for &v in &values {
        b.inst(block, "load").def(v).effect(Effect::Read);
    }
    for &v in &values {
        b.inst(block, "use").use_(v).effect(Effect::Write);
    }
    b.exit(block, "exit");
    (b.finish(), values)
}

/// A move goes only if its result is dead afterwards.
#[test]
fn a_reader_takes_the_original_and_the_move_goes_unless_the_original_is_overwritten() {
    let (f, _) = straight(1);
    let (done, counts) = finish(&f, seated(&f, &[0, 1], vec![(before(1), move_(1, 0))], 0));
    assert_eq!(done.registers[1], r(0));
    assert_eq!((counts.propagated, counts.dead_edits), (1, 1));
    assert!(done.edits.is_empty());

    // The second load overwrites R0: the first value must be read from R1.
    let (f, _) = straight(2);
    let (done, _) = finish(
        &f,
        seated(&f, &[0, 0, 1, 0], vec![(before(1), move_(1, 0))], 0),
    );
    assert_eq!(edits(&done), [move_(1, 0)]);
    assert_eq!(done.registers[2], r(1));
}

#[test]
fn a_reload_goes_while_the_register_holds_the_value_and_the_store_with_it() {
    let (f, _) = straight(1);
    let spill = vec![(before(1), store(-4, 0)), (before(1), reload(0, -4))];
    let (done, counts) = finish(&f, seated(&f, &[0, 0], spill, 4));
    assert!(done.edits.is_empty(), "{:?}", edits(&done));
    assert_eq!((counts.redundant, counts.dead_edits), (1, 1));
}

#[test]
fn a_reload_of_an_overwritten_register_stays() {
    let (f, _) = straight(2);
    let spill = vec![(before(1), store(-4, 0)), (before(2), reload(1, -4))];
    let (done, _) = finish(&f, seated(&f, &[0, 0, 1, 0], spill, 4));
    assert_eq!(edits(&done), [store(-4, 0), reload(1, -4)]);
}

/// A diamond; the value is in R0 at the join only if the left way was taken.
fn diamond() -> Function {
    let mut b = Builder::new("f");
    let blocks: Vec<Block> = (0..4).map(|_| b.block()).collect();
    let (x, y, c) = (b.vreg(Class::R32), b.vreg(Class::R32), b.vreg(Class::PRED));
    b.inst(blocks[0], "load").def(x).effect(Effect::Read);
    b.inst(blocks[0], "test").def(c).effect(Effect::Read);
    b.branch(blocks[0], "bra").use_(c);
    b.edge(blocks[0], blocks[1], &[]);
    b.edge(blocks[0], blocks[2], &[]);
    b.jump(blocks[1], blocks[3], &[]);
    b.inst(blocks[2], "load").def(y).effect(Effect::Read);
    b.inst(blocks[2], "use").use_(y).effect(Effect::Write);
    b.jump(blocks[2], blocks[3], &[]);
    b.inst(blocks[3], "use").use_(x).effect(Effect::Write);
    b.exit(blocks[3], "exit");
    b.finish()
}

#[test]
fn a_reload_available_on_one_path_only_stays() {
    let f = diamond();
    let last = f.block_insts(Block::new(3)).next().unwrap();
    let spill = vec![
        (before(1), store(-4, 0)),
        (Point::Before(last), reload(0, -4)),
    ];
    let mut allocation = seated(&f, &[0, 0, 0, 0, 0, 0], spill, 4);
    for (register, operand) in allocation.registers.iter_mut().zip([0, 1, 1, 0, 0, 0]) {
        if operand == 1 {
            *register = PReg::new(File::P, 0);
        }
    }
    let (done, _) = finish(&f, allocation);
    assert_eq!(edits(&done), [store(-4, 0), reload(0, -4)]);
}

#[test]
fn a_store_that_nobody_reloads_goes() {
    let (f, _) = straight(1);
    let (done, counts) = finish(&f, seated(&f, &[0, 0], vec![(before(1), store(-4, 0))], 4));
    assert!(done.edits.is_empty());
    assert_eq!(counts.dead_edits, 1);
}

/// Of a pair in memory already only the first half is.
#[test]
fn a_store_of_a_pair_stays_where_one_half_is_new() {
    let (f, _) = straight(4);
    let pair = Edit::Store {
        to: slot(-8),
        from: r(0),
        width: 2,
    };
    let spill = vec![
        (before(2), store(-8, 0)),
        (before(2), pair.clone()),
        (before(4), reload(2, -8)),
        (before(4), reload(3, -4)),
    ];
    let (done, _) = finish(&f, seated(&f, &[0, 1, 0, 1, 2, 3, 0, 1], spill, 8));
    assert!(edits(&done).contains(&pair), "{:?}", edits(&done));
}

#[test]
fn a_loop_counter_that_nobody_looks_at_goes_but_effects_stay() {
    let mut b = Builder::new("f");
    let (entry, body) = (b.block(), b.block());
    let (n, t, c) = (b.vreg(Class::R32), b.vreg(Class::R32), b.vreg(Class::PRED));
    b.inst(entry, "zero").def(n);
    b.jump(entry, body, &[]);
    b.inst(body, "add").def(t).use_(n);
    b.inst(body, "add").def(n).use_(t);
    b.inst(body, "volatile").def(t).effect(Effect::Write);
    b.inst(body, "test").def(c).effect(Effect::Read);
    b.branch(body, "bra").use_(c);
    b.edge(body, body, &[]);
    let exit = b.block();
    b.edge(body, exit, &[]);
    b.exit(exit, "exit");
    let f = b.finish();
    let mut allocation = seated(&f, &[0, 1, 0, 0, 1, 1, 0, 0], vec![], 0);
    for register in &mut allocation.registers[6..] {
        *register = PReg::new(File::P, 0);
    }
    let (done, counts) = finish(&f, allocation);
    assert_eq!(counts.dead_insts, 3);
    let deleted: Vec<usize> = f
        .insts()
        .filter(|&i| done.deleted.contains(i))
        .map(|i| i.index())
        .collect();
    assert_eq!(deleted, [0, 2, 3]);
}

#[test]
fn an_exchange_of_which_one_side_is_needed_is_a_move() {
    let (f, _) = straight(2);
    let swap = Edit::Swap {
        a: r(0),
        b: r(1),
        width: 1,
    };
    // Between the uses: only the second value is still needed.
    let (done, _) = finish(&f, seated(&f, &[0, 1, 0, 0], vec![(before(3), swap)], 0));
    // The move then loses its reader to the original.
    assert!(done.edits.is_empty());
    assert_eq!(done.registers[3], r(1));
}

/// `count` values are loaded, then as many others that are used before them.
fn overwritten(count: usize) -> Function {
    let mut b = Builder::new("f");
    let block = b.block();
    let values: Vec<VReg> = (0..2 * count).map(|_| b.vreg(Class::R32)).collect();
    for &v in &values {
        b.inst(block, "load").def(v).effect(Effect::Read);
    }
    for used in [&values[count..], &values[..count]] {
        let mut inst = b.inst(block, "use").effect(Effect::Write);
        for &v in used {
            inst = inst.use_(v);
        }
    }
    b.exit(block, "exit");
    b.finish()
}

/// Values in R`first`.. are stored at one point and reloaded, in reverse, at another.
fn spilled_together(count: usize, first: usize, offset: impl Fn(usize) -> i32) -> usize {
    let f = overwritten(count);
    let seats: Vec<usize> = (0..4 * count).map(|i| first + i % count).collect();
    let stores = (0..count).map(|i| (before(count), store(offset(i), first + i)));
    let reloads = (0..count)
        .rev()
        .map(|i| (before(2 * count + 1), reload(first + i, offset(i))));
    let frame = 4 * count as u32;
    let (done, _) = finish(
        &f,
        seated(&f, &seats, stores.chain(reloads).collect(), frame),
    );
    done.edits.len()
}

#[test]
fn neighbours_are_stored_and_reloaded_together() {
    let ascending = |i: usize| 4 * i as i32 - 16;
    assert_eq!(spilled_together(4, 0, ascending), 2);
    // Slots are handed out downwards; they change places so that accesses can be joined.
    assert_eq!(spilled_together(4, 4, |i| -4 - 4 * i as i32), 2);
    // From an odd register on: one, then a pair, then one.
    assert_eq!(spilled_together(4, 1, ascending), 6);
    assert_eq!(spilled_together(2, 1, |i| -4 - 4 * i as i32), 4);
}

/// The second store is of what the exchange brings.
#[test]
fn a_store_stays_behind_the_exchange_that_fills_its_register() {
    let f = overwritten(3);
    let swap = Edit::Swap {
        a: r(5),
        b: r(1),
        width: 1,
    };
    let stores = [store(-8, 0), swap, store(-4, 1)];
    let reloads = [reload(0, -8), reload(1, -4)];
    let at = |point| move |edit: &Edit| (point, edit.clone());
    let spill = stores.iter().map(at(before(3)));
    let spill = spill.chain(reloads.iter().map(at(before(7)))).collect();
    let seats = [0, 5, 1, 0, 1, 2, 0, 1, 2, 0, 1, 5];
    let (done, _) = finish(&f, seated(&f, &seats, spill, 8));
    let pair = Edit::Reload {
        to: r(0),
        from: slot(-8),
        width: 2,
    };
    assert_eq!(edits(&done), [&stores[..], &[pair]].concat());
}

/// R4 and R5 are reloaded together, but what R4 gets was stored as half of a pair.
#[test]
fn a_slot_that_is_also_accessed_as_half_of_a_pair_keeps_its_place() {
    let f = overwritten(4);
    let pair = Edit::Store {
        to: slot(-8),
        from: r(0),
        width: 2,
    };
    let stores = [pair, store(-12, 2), store(-16, 9)];
    let reloads = [reload(4, -4), reload(5, -12), reload(6, -8), reload(8, -16)];
    let at = |point| move |edit: &Edit| (point, edit.clone());
    let spill = stores.iter().map(at(before(4)));
    let spill = spill.chain(reloads.iter().map(at(before(9)))).collect();
    let seats = [0, 1, 2, 9, 0, 1, 2, 9, 0, 1, 2, 9, 6, 4, 5, 8];
    let (done, _) = finish(&f, seated(&f, &seats, spill, 16));
    assert_eq!(edits(&done), [&stores[..], &reloads[..]].concat());
}

/// Two values are in local memory the wrong way round, two others in shared memory the right way.
#[test]
fn slots_of_one_memory_change_places_without_those_of_the_other() {
    let f = overwritten(4);
    let homes = [
        (Space::Local, -4),
        (Space::Local, -8),
        (Space::Shared, -8),
        (Space::Shared, -4),
    ];
    let homes = homes.map(|(space, offset)| SlotAddr { space, offset });
    let stores = homes.iter().zip(0..).map(|(&to, n)| Edit::Store {
        to,
        from: r(n),
        width: 1,
    });
    let reloads = homes.iter().zip(0..).map(|(&from, n)| Edit::Reload {
        to: r(n),
        from,
        width: 1,
    });
    let spill = stores.map(|edit| (before(4), edit));
    let spill = spill.chain(reloads.map(|edit| (before(9), edit)));
    let seats: Vec<usize> = (0..16).map(|i| i % 4).collect();
    let mut allocation = seated(&f, &seats, spill.collect(), 8);
    allocation.frame.shared = 8;
    let (done, _) = finish(&f, allocation);
    assert_eq!(done.edits.len(), 4, "{:?}", edits(&done));
}

/// An exchange moves whole registers, so what stands in a half that is dead afterwards stays.
#[test]
fn an_exchange_of_pairs_keeps_halves_that_are_dead_afterwards() {
    let mut b = Builder::new("exchange");
    let block = b.block();
    let values: Vec<VReg> = (0..4).map(|_| b.vreg(Class::R32)).collect();
    for (number, &v) in values.iter().enumerate() {
        b.inst(block, "make").def(v).imm(number as u64);
    }
    b.inst(block, "store").use_(values[0]).effect(Effect::Write);
    b.inst(block, "store").use_(values[2]).effect(Effect::Write);
    b.exit(block, "exit");
    let function = b.finish();
    let swap = Edit::Swap {
        a: r(0),
        b: r(2),
        width: 2,
    };
    let exchanged = seated(&function, &[0, 1, 2, 3, 2, 0], vec![(before(4), swap)], 0);
    let (cleaned, _) = finish(&function, exchanged);
    check::check(&function, &target(), &cleaned).unwrap();
}

/// Values of these classes are loaded, and those at `together` are then used in one instruction
/// and the others one after the other.
fn loaded(classes: &[Class], together: std::ops::Range<usize>) -> Function {
    let mut b = Builder::new("f");
    let block = b.block();
    let values: Vec<VReg> = classes.iter().map(|&class| b.vreg(class)).collect();
    for &v in &values {
        b.inst(block, "load").def(v).effect(Effect::Read);
    }
    let mut inst = b.inst(block, "use").effect(Effect::Write);
    for &v in &values[together.clone()] {
        inst = inst.use_(v);
    }
    for (number, &v) in values.iter().enumerate() {
        if !together.contains(&number) {
            b.inst(block, "use").use_(v).effect(Effect::Write);
        }
    }
    b.exit(block, "exit");
    b.finish()
}

/// A machine that accesses three words at most, and the class of a word.
fn triples() -> (Target, Class) {
    let mut machine = Target::builder("triples");
    let file = machine.file(FileInfo::new("r", 16));
    let word = machine.class("word", file, 1, 1);
    machine.class("triple", file, 3, 1);
    (machine.finish().unwrap(), word)
}

/// How wide the reloads are where every value is in memory.
fn reloaded_widths(function: &Function, target: &Target) -> Vec<u8> {
    let options = Options::with_strategy(Strategy::Naive);
    let allocation = crate::allocate(function, target, &options).unwrap();
    let widths = edits(&allocation)
        .into_iter()
        .filter_map(|edit| match edit {
            Edit::Reload { width, .. } => Some(width),
            _ => None,
        });
    widths.collect()
}

/// Two words are joined, but not three or four.
#[test]
fn slots_stay_apart_where_the_widest_access_is_no_power_of_two() {
    let (target, word) = triples();
    let function = loaded(&[word; 5], 1..5);
    assert_eq!(reloaded_widths(&function, &target), [2, 2, 1]);
}

/// Two pairs of words lie side by side, as their registers do.
#[test]
fn pairs_stay_apart_where_the_widest_access_is_less_than_both() {
    let (target, word) = triples();
    let mut b = Builder::new("f");
    let block = b.block();
    let values: Vec<VReg> = (0..5).map(|_| b.vreg(word)).collect();
    for &v in &values {
        b.inst(block, "load").def(v).effect(Effect::Read);
    }
    for used in [&values[..4], &values[4..]] {
        let mut inst = b.inst(block, "use").effect(Effect::Write);
        for &v in used.iter().rev() {
            inst = inst.use_(v);
        }
    }
    b.exit(block, "exit");
    assert_eq!(reloaded_widths(&b.finish(), &target), [2, 2, 1]);
}

/// Pairs of which only some are aligned to their size.
#[test]
fn slots_stay_apart_where_none_is_aligned_to_its_size() {
    let mut machine = Target::builder("loose");
    let file = machine.file(FileInfo::new("r", 16));
    let word = machine.class("word", file, 1, 1);
    let pair = machine.class("pair", file, 2, 1);
    machine.slot_align(4);
    let target = machine.finish().unwrap();
    let function = loaded(&[pair, word, pair, word], 0..4);
    let options = Options::with_strategy(Strategy::Naive);
    let allocation = crate::allocate(&function, &target, &options).unwrap();
    let reloaded = edits(&allocation)
        .into_iter()
        .filter_map(|edit| match edit {
            Edit::Reload { from, .. } => Some(from.offset),
            _ => None,
        });
    assert_eq!(reloaded.collect::<Vec<i32>>(), [-8, -12, -20, -24]);
}
