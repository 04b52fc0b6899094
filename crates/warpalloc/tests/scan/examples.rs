//! Small functions and what becomes of them.

use warpalloc::allocation::{Edit, Point};
use warpalloc::function::{Block, Builder, Effect, Inst};
use warpalloc::generate::Rng;
use warpalloc::target::{FileInfo, Target};
use warpalloc::{Allocation, Options, Strategy, allocate, text};

struct Outcome {
    case: text::Case,
    allocation: Allocation,
}

/// Allocates `blocks` on a machine with `registers` registers, in the order given and without
/// cleaning up, so that what the allocator itself decides is seen.
fn scan(registers: usize, blocks: &str) -> Outcome {
    let text = format!("target hardware sm_90 R={registers}\nkernel f {{\n{blocks}\n}}\n");
    let case = text::parse(&text).unwrap_or_else(|error| panic!("{error}"));
    let options = Options {
        schedule: false,
        cleanup: false,
        ..Options::with_strategy(Strategy::Scan)
    };
    let allocation = allocate(&case.function, &case.target, &options);
    let allocation = allocation.unwrap_or_else(|error| panic!("{error}"));
    assert!(!allocation.stats.fell_back);
    Outcome { case, allocation }
}

impl Outcome {
    fn count(&self, wanted: impl Fn(&Edit) -> bool) -> usize {
        self.allocation
            .edits
            .iter()
            .filter(|(_, e)| wanted(e))
            .count()
    }

    fn stores(&self) -> usize {
        self.count(|e| matches!(e, Edit::Store { .. }))
    }

    fn reloads(&self) -> usize {
        self.count(|e| matches!(e, Edit::Reload { .. }))
    }

    fn moves(&self) -> usize {
        self.count(|e| matches!(e, Edit::Move { .. } | Edit::Swap { .. }))
    }

    /// Names of the registers of an instruction's operands.
    fn registers(&self, inst: u32) -> Vec<String> {
        let regs = self
            .allocation
            .operands(&self.case.function, Inst::from_u32(inst));
        let name = |&reg| self.case.target.reg_name(reg).to_string();
        regs.iter().map(name).collect()
    }

    /// Edits that run whenever `block` does.
    fn edits_in(&self, block: u32) -> usize {
        let block = Block::from_u32(block);
        let inside = |point: Point| match point {
            Point::Before(inst) | Point::After(inst) => self.case.function.block_of(inst) == block,
            Point::Edge(from, _) => from == block,
        };
        self.allocation
            .edits
            .iter()
            .filter(|(p, _)| inside(*p))
            .count()
    }
}

#[test]
fn the_value_read_last_leaves_its_register() {
    let outcome = scan(
        4,
        "block0:
            v0:r32 = a : read
            v1:r32 = b : read
            v2:r32 = c : read
            v3:r32 = d : read
            v4:r32 = e : read
            use v4 : write
            use v3 : write
            use v2 : write
            use v0 : write
            use v1 : write
            exit : exit",
    );
    assert_eq!((outcome.stores(), outcome.reloads()), (1, 1));
    // v1 is reloaded right before its only reader.
    let at = outcome
        .allocation
        .edits
        .iter()
        .find(|(_, e)| matches!(e, Edit::Reload { .. }));
    assert_eq!(
        at.map(|(point, _)| point),
        Some(Point::Before(Inst::from_u32(9)))
    );
}

/// Distances count from where a value leaves, not from the start of its block.
#[test]
fn what_is_spilled_does_not_depend_on_how_much_code_comes_before() {
    let mut spilled = 0;
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let (mut body, mut live) = (String::new(), Vec::new());
        for v in 1..40 {
            body += &match live.len() < 3 || rng.below(2) == 0 {
                true => format!("v{v}:r32 = ld : read\n"),
                false => {
                    let [a, b] = [rng.below(live.len()), rng.below(live.len())];
                    format!("v{v}:r32 = op v{}, v{}\n", live[a], live[b])
                }
            };
            live.push(v);
            if live.len() > 8 {
                let read = live.swap_remove(rng.below(8));
                body += &format!("use v{read} : write\n");
            }
        }
        for v in live {
            body += &format!("use v{v} : write\n");
        }
        let [first, behind] = [0, 100].map(|steps| {
            let before = "v0:r32 = a : read\nuse v0 : write\n".repeat(steps);
            let outcome = scan(5, &format!("block0:\n{before}{body}exit : exit"));
            (outcome.stores(), outcome.reloads())
        });
        assert_eq!(first, behind, "at {seed}");
        spilled += first.0;
    }
    assert!(spilled > 40, "{spilled}");
}

#[test]
fn a_value_that_leaves_twice_is_stored_once() {
    let crowd = |first: usize| -> String {
        let values = first..first + 4;
        let loads = values.clone().map(|v| format!("v{v}:r32 = ld : read\n"));
        loads
            .chain(values.rev().map(|v| format!("use v{v} : write\n")))
            .collect()
    };
    let text = format!(
        "block0:\nv0:r32 = a : read\n{}use v0 : write\n{}use v0 : write\nexit : exit",
        crowd(1),
        crowd(5)
    );
    let outcome = scan(4, &text);
    assert_eq!((outcome.stores(), outcome.reloads()), (1, 2));
}

#[test]
fn a_constant_is_computed_again_instead_of_stored() {
    let outcome = scan(
        4,
        "block0:
            v0:r32 = const : remat 1
            v1:r32 = a : read
            v2:r32 = b : read
            v3:r32 = c : read
            v4:r32 = d : read
            use v4, v1 : write
            use v2, v3 : write
            use v0 : write
            exit : exit",
    );
    assert_eq!((outcome.stores(), outcome.reloads()), (0, 0));
    assert_eq!(outcome.count(|e| matches!(e, Edit::Recompute { .. })), 1);
}

/// Four values live through the loop unread, and the loop wants all four registers.
#[test]
fn what_only_lives_through_a_loop_is_stored_before_it_and_reloaded_behind_it() {
    let outcome = scan(
        4,
        "block0:
            v0:r32 = a : read
            v1:r32 = b : read
            bra -> block1
        block1:
            v2:r32 = c : read
            v3:r32 = d : read
            v4:r32 = e : read
            v5:r32 = g v2, v3, v4
            use v5, v2, v3, v4 : write
            brp -> block1, block2
        block2:
            use v0, v1 : write
            exit : exit",
    );
    assert_eq!((outcome.stores(), outcome.reloads()), (2, 2));
    let in_loop = outcome.edits_in(1);
    // The reloads may stand on the edge that leaves the loop, but nothing runs in each round.
    let on_exit = outcome
        .allocation
        .edits
        .on_edge(Block::from_u32(1), 1)
        .count();
    assert_eq!(in_loop - on_exit, 0);
}

/// The accumulator's new contents take over the register of the old ones.
#[test]
fn a_loop_carried_value_stays_where_it_is() {
    let outcome = scan(
        8,
        "block0:
            v0:r32 = a : read
            bra -> block1(v0)
        block1(v1:r32):
            v2:r32 = ld : read
            v3:r32 = add v1, v2
            brp -> block1(v3), block2
        block2:
            use v3 : write
            exit : exit",
    );
    assert_eq!(outcome.allocation.edits.len(), 0);
    assert_eq!(outcome.registers(3)[0], outcome.registers(3)[1]);
}

/// Both paths define the argument after values of their own have come and gone.
#[test]
fn arguments_of_both_paths_meet_in_one_register() {
    let outcome = scan(
        8,
        "block0:
            v0:r32 = a : read
            brp v0 -> block1, block2
        block1:
            v1:r32 = b : read
            v2:r32 = neg v1
            bra -> block3(v2)
        block2:
            v3:r32 = c : read
            v4:r32 = d : read
            v5:r32 = add v3, v4
            bra -> block3(v5)
        block3(v6:r32):
            use v6, v0 : write
            exit : exit",
    );
    assert_eq!(outcome.allocation.edits.len(), 0);
}

#[test]
fn a_guarded_definition_keeps_its_register() {
    let outcome = scan(
        8,
        "block0:
            v0:r32 = a : read
            v1:pred = p : read
            mov inout v0, v1
            use v0 : write
            exit : exit",
    );
    assert_eq!(outcome.registers(0), outcome.registers(3));
    assert_eq!(outcome.allocation.edits.len(), 0);
}

#[test]
fn the_lanes_of_a_store_are_loaded_side_by_side() {
    let outcome = scan(
        8,
        "block0:
            v0:r32 = a : read
            v1:r32 = b : read
            v2:r32 = c : read
            v3:r32 = d : read
            v4:r32 = e : read
            st.v4 v4, v0, v1, v2, v3 : write group 1..5 align 4
            exit : exit",
    );
    assert_eq!(outcome.moves(), 0);
    assert_eq!((outcome.stores(), outcome.reloads()), (0, 0));
}

/// Two singles stand in the only two pairs; a parallel copy brings them together.
#[test]
fn a_pair_finds_room_among_scattered_singles_without_spilling() {
    let outcome = scan(
        4,
        "block0:
            v0:r32 = a : read
            v1:r32 = b : read
            v2:r32 = c : read
            v3:r32 = d : read
            use v1, v3 : write
            v4:r64 = wide : read
            use v4, v0, v2 : write
            exit : exit",
    );
    assert_eq!((outcome.stores(), outcome.reloads()), (0, 0));
    assert_eq!(outcome.moves(), 1);
}

#[test]
fn what_lives_through_a_call_goes_where_the_call_leaves_it_alone() {
    let outcome = scan(
        32,
        "block0:
            v0:r32 = a : read
            v1:r32 @ R4 = call : call write clobbers abi
            use v0, v1 : write
            exit : exit",
    );
    assert_eq!((outcome.stores(), outcome.reloads()), (0, 0));
    let kept: u32 = outcome.registers(2)[0][1..].parse().unwrap();
    assert!(kept >= 24, "R{kept} is overwritten by calls");
}

/// A parameter in memory whose argument is in memory costs nothing: both have one slot.
#[test]
fn parameters_and_arguments_share_a_slot() {
    let outcome = scan(
        4,
        "block0:
            v0:r32 = a : read
            bra -> block1(v0)
        block1(v1:r32):
            v2:r32 = b : read
            v3:r32 = c : read
            v4:r32 = d : read
            v5:r32 = e : read
            use v2, v3, v4, v5 : write
            v6:r32 = neg v1
            v7:r32 = b : read
            v8:r32 = c : read
            v9:r32 = d : read
            v10:r32 = e : read
            use v7, v8, v9, v10 : write
            brp -> block1(v6), block2
        block2:
            use v6 : write
            exit : exit",
    );
    let slots: std::collections::BTreeSet<_> = outcome
        .allocation
        .edits
        .iter()
        .filter_map(|(_, e)| match e {
            Edit::Store { to, .. } => Some(*to),
            Edit::Reload { from, .. } => Some(*from),
            _ => None,
        })
        .collect();
    assert_eq!(slots.len(), 1, "{slots:?}");
}

/// `v3` finds the register of `v1` free, but is live where `v4` comes back to it.
#[test]
fn a_register_is_left_to_the_argument_of_a_back_edge() {
    let outcome = scan(
        8,
        "block0:
            v0:r32 = a : read
            bra -> block1(v0)
        block1(v1:r32):
            use v1 : write
            v3:r32 = ld : read
            v4:r32 = ld : read
            use v3 : write
            brp v4 -> block1(v4), block2
        block2:
            exit : exit",
    );
    assert_eq!(outcome.moves(), 0);
}

/// `v2` dies before `v4` comes back to the register of `v1`, but the inner loop that `v2`
/// enters goes on.
#[test]
fn loops_inside_each_other_carry_their_values_in_different_registers() {
    let outcome = scan(
        8,
        "block0:
            v0:r32 = a : read
            bra -> block1(v0)
        block1(v1:r32):
            use v1 : write
            v2:r32 = ld : read
            bra -> block2(v2)
        block2(v3:r32):
            v4:r32 = ld : read
            v5:r32 = add v3, v4
            brp v5 -> block2(v5), block3
        block3:
            brp v4 -> block1(v4), block4
        block4:
            exit : exit",
    );
    assert_eq!(outcome.moves(), 0);
}

/// `v1` dies on one path and lives on on the other, where its register is not free for the
/// argument that meets `v2`.
#[test]
fn arguments_keep_away_from_values_of_other_paths() {
    let outcome = scan(
        8,
        "block0:
            v0:r32 = a : read
            v1:r32 = b : read
            brp v0 -> block1, block2
        block1:
            use v1 : write
            v2:r32 = c : read
            bra -> block3(v2)
        block2:
            v3:r32 = d : read
            use v1 : write
            bra -> block3(v3)
        block3(v4:r32):
            use v4, v0 : write
            exit : exit",
    );
    assert_eq!(outcome.moves(), 0);
}

/// Two of six values are spilled, eight bytes.
#[test]
fn a_frame_may_be_as_large_as_its_limit() {
    let frame = |limit: u32, strategy: Strategy| {
        let mut machine = Target::builder("small");
        let file = machine.file(FileInfo::new("R", 4));
        let class = machine.class("word", file, 1, 1);
        machine.frame_limit(limit);
        let target = machine.finish().unwrap();
        let mut b = Builder::new("crowd");
        let block = b.block();
        let values: Vec<_> = (0..6).map(|_| b.vreg(class)).collect();
        for &v in &values {
            b.inst(block, "produce").def(v).effect(Effect::Write);
        }
        for &v in &values {
            b.inst(block, "consume").use_(v).effect(Effect::Write);
        }
        b.exit(block, "exit");
        let allocation = allocate(&b.finish(), &target, &Options::with_strategy(strategy));
        allocation.map(|allocation| allocation.frame.local)
    };
    for strategy in [Strategy::Briggs, Strategy::Fatpoint, Strategy::Scan] {
        assert_eq!(frame(8, strategy).ok(), Some(8), "{strategy}");
        assert!(frame(4, strategy).is_err(), "{strategy}");
    }
}

/// `v0` leaves its register in each round of the loop. Where the loop is left it is in a
/// register, but in the slot that it shares with `v1` as well.
#[test]
fn what_is_stored_where_it_is_defined_is_not_stored_where_it_is_passed() {
    let outcome = scan(
        4,
        "block0:
            v0:r32 = a : read
            bra -> block1
        block1:
            brp -> block2, block3(v0)
        block2:
            v2:r32, v3:r32, v4:r32, v5:r32 = b : read
            use v2, v3, v4, v5 : write
            use v0 : write
            bra -> block1
        block3(v1:r32):
            v6:r32, v7:r32, v8:r32, v9:r32 = c : read
            use v6, v7, v8, v9 : write
            use v1 : write
            exit : exit",
    );
    assert_eq!(outcome.stores(), 1);
}

/// `v1` is written before it is read, so that nothing has to be passed to it.
#[test]
fn a_parameter_that_is_overwritten_unread_takes_no_argument() {
    let outcome = scan(
        8,
        "block0:
            v0:r32 = a : read
            bra -> block1(v0)
        block1(v1:r32):
            use v0 : write
            v1 = b : read
            use v0, v1 : write
            exit : exit",
    );
    assert_eq!(outcome.moves(), 0);
}

#[test]
fn code_that_is_never_reached_has_registers_too() {
    let outcome = scan(
        8,
        "block0:
            exit : exit
        block1:
            use v0:r32, v1:r32 : write
            exit : exit",
    );
    assert_eq!(outcome.registers(1), ["R0", "R1"]);
}

/// `R2` waits for the last lane of the store, and the pair would take it with `R3`.
#[test]
fn a_seat_keeps_away_from_registers_half_of_which_wait_for_others() {
    let outcome = scan(
        8,
        "block0:
            v0:r32 = a : read
            v1:r64 not {R7} = b : read
            v2:r32 = c : read
            v3:r32 = d : read
            use v1 : write
            st.v3 v0, v2, v3 : write group 0..3 align 4
            exit : exit",
    );
    assert_eq!(outcome.registers(1), ["R4"]);
    assert_eq!(outcome.moves(), 0);
}

/// `v0` and the pair `v2` leave to make room for the pair `v5`, which takes the registers of
/// `v2` and leaves that of `v0` alone.
#[test]
fn a_register_that_still_holds_what_left_it_is_not_reloaded() {
    let outcome = scan(
        6,
        "block0:
            v0:r32 = a : read
            v1:r32 = b : read
            v2:r64 = c : read
            v3:r32 = d : read
            v4:r32 = e : read
            v5:r64 = f : read
            use v5 : write
            use v1 : write
            use v3 : write
            use v4 : write
            use v2 : write
            use v0 : write
            exit : exit",
    );
    assert_eq!(outcome.registers(0), outcome.registers(11));
    assert_eq!((outcome.stores(), outcome.reloads()), (2, 1));
}

/// `v1` could stay in `R1`, which is the only register for `v0`.
#[test]
fn a_seat_leaves_the_only_register_of_another() {
    let outcome = scan(
        4,
        "block0:
            v0:r32 = a : read
            v1:r32 = b : read
            use v1 not {R3}, v0 not {R0, R2, R3} : write
            exit : exit",
    );
    assert_eq!(outcome.registers(2), ["R0", "R1"]);
}

/// `v6` and `v7` change places, and `v8` takes a copy of what `v6` had, while the loop has
/// registers for what it reads only.
#[test]
fn parameters_change_places_in_memory_through_two_registers() {
    let outcome = scan(
        4,
        "block0:
            v0:r32 = a : read
            v1:r32 = b : read
            v2:r32 = c : read
            v3:r32 = d : read
            v4:r32 = e : read
            v5:r32 = f : read
            v9:r32 = g : read
            bra -> block1(v4, v5, v9)
        block1(v6:r32, v7:r32, v8:r32):
            use v0, v1, v2, v3 : write
            v10:r32 = h : read
            use v10 : write
            brp -> block1(v7, v6, v6), block2
        block2:
            use v6, v7, v8 : write
            exit : exit",
    );
    // A register is freed for the time; then v6 and v7 are read, three slots are filled, and what
    // was in registers comes back.
    assert_eq!(outcome.edits_in(1), 9);
}

/// The back edge moves all parameters by one: the search for a way to open the cycle is bounded.
#[test]
fn a_rotation_of_many_parameters_is_one_cycle() {
    const COUNT: usize = 120;
    let names = |first: usize| {
        let names = (0..COUNT).map(move |n| format!("v{}", first + n));
        names.collect::<Vec<_>>()
    };
    let (first, mut params) = (names(0), names(COUNT));
    let typed = |names: &[String]| names.join(":r32, ") + ":r32";
    let (definitions, header, passed) = (typed(&first), typed(&params), first.join(", "));
    let used = params.join(", ");
    params.rotate_left(1);
    let rotated = params.join(", ");
    let outcome = scan(
        128,
        &format!(
            "block0:
                {definitions} = a : read
                bra -> block1({passed})
            block1({header}):
                brp -> block1({rotated}), block2
            block2:
                use {used} : write
                exit : exit"
        ),
    );
    // One move more than there are parameters.
    assert_eq!(outcome.edits_in(1), COUNT + 1);
}
