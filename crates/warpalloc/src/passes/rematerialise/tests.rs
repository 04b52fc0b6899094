use super::*;
use crate::target::File;
use crate::text;

/// The functions' values computed at their readers, by the names of their virtual registers, and
/// the program afterwards, one line for each operation.
fn rematerialised(registers: usize, body: &str) -> (Vec<String>, Vec<String>) {
    let source = format!("target hardware sm_90\nkernel f {{\nblock0:\n{body}\n}}\n");
    let case = text::parse(&source).unwrap_or_else(|e| panic!("{e}"));
    let target = case.target.with_budget(File::R, registers);
    case.function.validate(&target).unwrap();
    let mut program = Program::new(&case.function, &target, None).unwrap();
    let facts = Facts::of(&program);
    rematerialise(&mut program, &target, &facts);
    let function = &case.function;
    let name = |inst: Inst| function.opcode_name(function.inst(inst).opcode).to_owned();
    let deleted = function.insts().filter(|&i| program.deleted.contains(i));
    let deleted = deleted.map(name).collect();
    let ops = program.blocks.values().flat_map(|block| &block.ops);
    let line = |op: &Op| match op {
        Op::Inst { inst, .. } => name(*inst),
        Op::Recompute { inst, .. } => format!("again {}", name(*inst)),
        other => format!("{other:?}"),
    };
    let lines = ops.map(line).collect();
    (deleted, lines)
}

/// `count` loads into v100 on, and stores of all of them.
fn crowd(count: usize, between: &str) -> String {
    let all = 100..100 + count;
    let loads = all.clone().map(|v| format!("v{v}:r32 = ld : read\n"));
    let stores = all.map(|v| format!("st v{v} : write\n"));
    format!(
        "{}{between}{}",
        loads.collect::<String>(),
        stores.collect::<String>()
    )
}

/// A pointer out of a parameter is computed again at its reader, both steps of it, and both
/// definitions go.
#[test]
fn a_chain_without_leaves_is_computed_again() {
    let crowd = crowd(8, "bar : write\n");
    let body = format!(
        "v0:r64 = param : remat 0\nv1:r64 = cvta v0 : remat 1\n{crowd}use v1 : write\nexit : exit write"
    );
    let (deleted, lines) = rematerialised(9, &body);
    assert_eq!(deleted, ["param", "cvta"]);
    let at = lines.iter().position(|line| line == "use").unwrap();
    assert_eq!(lines[at - 2..at], ["again param", "again cvta"]);
    let (deleted, _) = rematerialised(10, &body);
    assert_eq!(deleted, [""; 0], "everything fits");
}

/// Once the last step is computed at its reader nothing reads the second, and then nothing
/// reads the first.
#[test]
fn a_chain_goes_whole_where_nothing_else_reads_its_steps() {
    let crowd = crowd(8, "bar : write\n");
    let body = format!(
        "v0:r64 = param : remat 0\nv1:r64 = cvta v0 : remat 1\nv2:r64 = add v1 : remat 1\n\
         {crowd}use v2 : write\nexit : exit write"
    );
    let (deleted, lines) = rematerialised(9, &body);
    assert_eq!(deleted, ["param", "cvta", "add"]);
    let at = lines.iter().position(|line| line == "use").unwrap();
    assert_eq!(
        lines[at - 3..at],
        ["again param", "again cvta", "again add"]
    );
}

/// What two read is computed again for each of them; a third reader makes it a value to keep.
#[test]
fn a_dear_part_with_more_than_two_readers_is_no_part() {
    let with = |more: &str| {
        let crowd = crowd(8, "bar : write\n");
        let head = "v0:r32 = param : remat 2\nv1:r32 = cvta v0 : remat 1\n";
        rematerialised(
            8,
            &format!("{head}{more}{crowd}use v1 : write\nexit : exit write"),
        )
    };
    let (deleted, lines) = with("use v0 : write\n");
    assert_eq!(deleted, ["cvta"]);
    let at = lines.iter().rposition(|line| line == "use").unwrap();
    assert_eq!(lines[at - 2..at], ["again param", "again cvta"]);
    let (deleted, _) = with("use v0 : write\nuse v0 : write\n");
    assert_eq!(deleted, [""; 0]);
}

/// One sum would only exchange itself for its base; two of them free a register.
#[test]
fn sums_of_one_base_are_weighed_together() {
    let sums = |count: usize| {
        let define = (0..count).map(|i| format!("v{}:r32 = add v0, #{i} : remat 1\n", i + 1));
        let read = (0..count).map(|i| format!("use v{} : write\n", i + 1));
        let crowd = crowd(4, "bar : write\n");
        format!(
            "v0:r32 = ld : read\n{}{crowd}{}exit : exit write",
            define.collect::<String>(),
            read.collect::<String>()
        )
    };
    let (deleted, _) = rematerialised(4, &sums(1));
    assert_eq!(deleted, [""; 0]);
    let (deleted, lines) = rematerialised(8, &sums(5));
    assert_eq!(deleted, ["add"; 4]);
    assert_eq!(lines.iter().filter(|line| *line == "again add").count(), 4);
}

/// Three sums of two values free a register together, and none alone.
#[test]
fn sums_of_the_same_values_are_weighed_together_in_whichever_order() {
    let crowd = crowd(6, "bar : write\n");
    let body = format!(
        "v0:r32 = ld : read\nv1:r32 = ld : read\n\
         v2:r32 = sum v0, v1, #1 : remat 1\nv3:r32 = sum v1, v0, #2 : remat 1\n\
         v4:r32 = sum v0, v1, #3 : remat 1\n\
         {crowd}use v2, v3, v4 : write\nexit : exit write"
    );
    assert_eq!(rematerialised(8, &body).0, ["sum"; 3]);
}

/// The three sums of `v0` keep it alive, so that of the leaves of the other two only `v1`
/// takes a register.
#[test]
fn a_leaf_of_two_groups_takes_one_register() {
    let crowd = crowd(4, "bar : write\n");
    let body = format!(
        "v0:r32 = ld : read\nv1:r32 = ld : read\n\
         v2:r32 = add v0, #1 : remat 1\nv3:r32 = add v0, #2 : remat 1\n\
         v4:r32 = add v0, #3 : remat 1\n\
         v5:r32 = sum v0, v1, #1 : remat 1\nv6:r32 = sum v0, v1, #2 : remat 1\n\
         {crowd}use v2, v3, v4, v5, v6 : write\nexit : exit write"
    );
    let expected = ["add", "add", "add", "sum", "sum"];
    assert_eq!(rematerialised(8, &body).0, expected);
}

/// The sums are the cheapest to compute again, and they read the base: it stays, though it could
/// be computed again itself and free one register more.
#[test]
fn a_leaf_of_chosen_values_is_kept() {
    let crowd = crowd(6, "bar : write\n");
    let body = format!(
        "v0:r32 = base : remat 2\nv1:r32 = add v0, #1 : remat 1\nv2:r32 = add v0, #2 : remat 1\n\
         {crowd}use v0, v1, v2 : write\nexit : exit write"
    );
    assert_eq!(rematerialised(8, &body).0, ["add", "add"]);
}

/// The sums give way to the second crowd. Their base then lives through the first crowd too,
/// where it is one too many.
#[test]
fn a_leaf_takes_a_register_wherever_its_values_were_live() {
    let first = crowd(7, "bar : write\n");
    let second = crowd(6, "bar : write\n");
    let body = |sums: &str, read: &str| {
        format!(
            "v0:r32 = ld : read\n{sums}v4:r32 = param : remat 1\n\
             {first}use v4 : write\n{second}{read}exit : exit write"
        )
    };
    let sums = "v1:r32 = add v0, #1 : remat 1\nv2:r32 = add v0, #2 : remat 1\n\
                v3:r32 = add v0, #3 : remat 1\n";
    let with = body(sums, "use v1, v2, v3 : write\n");
    assert_eq!(rematerialised(8, &with).0, ["add", "add", "add", "param"]);
    let without = body("use v0 : write\n", "");
    assert_eq!(rematerialised(8, &without).0, [""; 0]);
}

/// All inputs of `mad` are live right before it, the one that it changes in place too. To
/// compute `cheap` there makes no room, so `dear` has to go.
#[test]
fn what_an_instruction_reads_makes_no_room_for_it() {
    let mad =
        "v2:r32 = ld : read\nv3:r32 = ld : read\nmad inout v2, v1, v3 : write\nst v2 : write\n";
    let crowd = crowd(5, mad);
    let body = format!(
        "v0:r32 = dear : remat 3\nv1:r32 = cheap : remat 1\n{crowd}use v0 : write\nexit : exit write"
    );
    assert_eq!(rematerialised(8, &body).0, ["dear"]);
}

/// The narrow value lives on in place of the wide one.
#[test]
fn a_wide_value_gives_way_to_the_narrow_one_it_is_made_of() {
    let crowd = crowd(6, "bar : write\n");
    let body = format!(
        "v0:r32 = ld : read\nv1:r64 = extend v0 : remat 1\n{crowd}use v1 : write\nexit : exit write"
    );
    assert_eq!(rematerialised(7, &body).0, ["extend"]);
    let square = body.replace("extend v0", "square v0, v0");
    assert_eq!(rematerialised(7, &square).0, ["square"]);
}

#[test]
fn a_value_that_is_written_twice_stays() {
    let crowd = crowd(8, "bar : write\n");
    let body = format!(
        "v0:r64 = param #1 : remat 0\nuse v0 : write\nv0 = param #2 : remat 0\n{crowd}use v0 : write\n\
         exit : exit write"
    );
    assert_eq!(rematerialised(9, &body).0, [""; 0]);
}

/// Eight masks are one too many for seven predicates.
#[test]
fn masks_beyond_the_predicates_are_compared_again() {
    let define = (0..8).map(|i| format!("v{}:pred = setp v0, v1, #{i} : remat 1\n", i + 2));
    let read = (0..8).map(|i| format!("use v{}, v0, v1 : write\n", i + 2));
    let body = format!(
        "v0:r32 = ld : read\nv1:r32 = ld : read\n{}bar : write\n{}exit : exit write",
        define.collect::<String>(),
        read.collect::<String>()
    );
    assert_eq!(rematerialised(16, &body).0, ["setp"]);
}

/// Ten units are live where v100 is read for the last time, by both operands of a store.
#[test]
fn a_value_that_is_read_by_two_operands_takes_its_units_once() {
    let crowd = crowd(8, "bar : write\n").replacen("st v100", "st v100, v100", 1);
    let body = format!("v0:r64 = param : remat 0\n{crowd}use v0 : write\nexit : exit write");
    let (deleted, _) = rematerialised(10, &body);
    assert_eq!(deleted, [""; 0], "everything fits");
}

/// One of two values is enough, and the one that is read by two operands takes two cycles.
#[test]
fn a_value_that_is_read_by_two_operands_is_computed_once_for_both() {
    let crowd = crowd(8, "bar : write\n");
    let body = format!(
        "v0:r128 = twice : remat 2\nv1:r128 = once : remat 3\n{crowd}\
         use v0, v0 : write\nuse v1 : write\nexit : exit write"
    );
    let (deleted, lines) = rematerialised(15, &body);
    assert_eq!(deleted, ["twice"]);
    assert_eq!(lines.iter().filter(|l| *l == "again twice").count(), 1);
}
