//! Liveness and what follows from it.

use crate::random::{FUNCTIONS, function};
use cranelift_entity::EntityRef;
use std::collections::{BTreeMap, BTreeSet};
use warpalloc::analysis::{
    Cfg, Code, LOOP_EXIT, LiveRanges, LiveSet, Liveness, Loops, Moment, NEVER, NextUses, Order,
    Position, Pressure, PressureWalk, Touch, Webs,
};
use warpalloc::function::{Block, Builder, Function, Inst, Role, VReg};
use warpalloc::target::{Class, File, Target};

/// A place between accesses: before instruction `index` of a block, whose parameters have
/// been written. The index one past the last is where edges read their arguments.
type Spot = (Block, usize);

/// Whether some path from `spot` reads `v` before writing it.
fn is_live(f: &Function, spot: Spot, v: VReg) -> bool {
    let mut seen = BTreeSet::new();
    let mut stack = vec![spot];
    while let Some((block, index)) = stack.pop() {
        if !seen.insert((block, index)) {
            continue;
        }
        match f.block_insts(block).nth(index) {
            Some(inst) => {
                let mut of_v = f.operands(inst).iter().filter(|o| o.vreg == v);
                if of_v.clone().any(|o| o.role.reads()) {
                    return true;
                }
                if !of_v.any(|o| o.role.writes()) {
                    stack.push((block, index + 1));
                }
            }
            None => {
                if f.arguments(block).any(|arg| arg == v) {
                    return true;
                }
                let through = |s: &Block| !f.block(*s).params.contains(&v);
                stack.extend(f.successors(block).filter(through).map(|s| (s, 0)));
            }
        }
    }
    false
}

#[test]
fn liveness_is_a_path_to_a_read() {
    for seed in 0..FUNCTIONS {
        let f = function(seed);
        let liveness = Liveness::compute(&f);
        for b in f.blocks() {
            let len = f.block_insts(b).len();
            let is_param = |v: &VReg| f.block(b).params.contains(v);
            let live_in: Vec<VReg> = f
                .vregs()
                .filter(|v| !is_param(v) && is_live(&f, (b, 0), *v))
                .collect();
            let live_out: Vec<VReg> = f.vregs().filter(|&v| is_live(&f, (b, len), v)).collect();
            assert!(
                liveness.live_in(b).eq(live_in.iter().copied()),
                "seed {seed}: into {b}"
            );
            assert!(
                liveness.live_out(b).eq(live_out.iter().copied()),
                "seed {seed}: out of {b}"
            );
            for v in f.vregs() {
                assert_eq!(liveness.is_live_in(b, v), live_in.contains(&v));
                assert_eq!(liveness.is_live_out(b, v), live_out.contains(&v));
            }
        }
    }
}

#[test]
fn walking_back_gives_the_live_set_of_every_point() {
    for seed in 0..FUNCTIONS / 4 {
        let f = function(seed);
        let liveness = Liveness::compute(&f);
        let mut live = LiveSet::new(f.vreg_count());
        for b in f.blocks() {
            live.start_at_end(&liveness, b);
            for (index, inst) in f.block_insts(b).enumerate().rev() {
                live.step_back(f.operands(inst));
                for v in f.vregs() {
                    assert_eq!(
                        live.contains(v),
                        is_live(&f, (b, index), v),
                        "seed {seed}: {inst} {v}"
                    );
                }
                assert_eq!(live.iter().collect::<BTreeSet<_>>().len(), live.len());
            }
        }
    }
}

/// Units of `file` that `vregs` take together.
fn units(f: &Function, t: &Target, file: File, vregs: &BTreeSet<VReg>) -> usize {
    let classes = vregs.iter().map(|&v| t.class(f.vreg(v).class));
    classes.filter(|c| c.file == file).map(|c| c.width).sum()
}

/// Pressure on `file` at a moment of instruction `index` of `b`, by definition.
fn pressure_at(f: &Function, t: &Target, file: File, b: Block, moment: Moment) -> usize {
    let live =
        |index| -> BTreeSet<VReg> { f.vregs().filter(|&v| is_live(f, (b, index), v)).collect() };
    let index = |inst: Inst| f.block_insts(b).position(|i| i == inst).unwrap();
    let written = |inst: Inst, which: fn(Role) -> bool| -> BTreeSet<VReg> {
        let operands = f.operands(inst).iter();
        operands.filter(|o| which(o.role)).map(|o| o.vreg).collect()
    };
    match moment {
        Moment::Entry(_) => {
            let mut all = live(0);
            all.extend(&f.block(b).params);
            units(f, t, file, &all)
        }
        Moment::Before(inst) => {
            let early = written(inst, |role| role == Role::EarlyDef);
            units(f, t, file, &live(index(inst))) + units(f, t, file, &early)
        }
        Moment::After(inst) => {
            let mut all = live(index(inst) + 1);
            all.extend(written(inst, Role::writes));
            units(f, t, file, &all)
        }
    }
}

#[test]
fn pressure_adds_up_what_is_live_or_written() {
    let target = Target::cicc();
    for seed in 0..FUNCTIONS / 4 {
        let f = function(seed);
        let liveness = Liveness::compute(&f);
        let pressure = Pressure::compute(&f, &target, &liveness);
        let size = |v| {
            let class = target.class(f.vreg(v).class);
            (class.file, class.width)
        };
        let mut walk = PressureWalk::new(&f, &liveness, target.files().len(), size);
        let mut peaks = BTreeMap::new();
        for b in f.blocks() {
            let mut block_peaks = BTreeMap::new();
            let mut moments = 0;
            walk.block(b, |moment, found| {
                moments += 1;
                for (file, _) in target.files() {
                    let expected = pressure_at(&f, &target, file, b, moment);
                    assert_eq!(found[file.index()], expected, "seed {seed}: {b} {moment:?}");
                    let peak = block_peaks.entry(file).or_insert(0);
                    *peak = expected.max(*peak);
                }
            });
            assert_eq!(moments, 2 * f.block_insts(b).len() + 1);
            for (file, peak) in block_peaks {
                assert_eq!(pressure.block_max(b, file), peak, "seed {seed}: {b}");
                let whole = peaks.entry(file).or_insert(0);
                *whole = peak.max(*whole);
            }
        }
        for (file, peak) in peaks {
            assert_eq!(pressure.max(file), peak, "seed {seed}");
            let at = pressure.peak(file).at;
            assert_eq!(at.is_none(), peak == 0, "seed {seed}");
            if let Some(at) = at {
                let block = match at {
                    Moment::Entry(block) => block,
                    Moment::Before(inst) | Moment::After(inst) => f.block_of(inst),
                };
                assert_eq!(
                    pressure_at(&f, &target, file, block, at),
                    peak,
                    "seed {seed}"
                );
            }
        }
    }
}

/// Shortest way from `spot` to a read of `v`, or of a parameter that it is passed to, by
/// settling the nearest spot first.
fn distance(f: &Function, loops: &Loops, spot: Spot, v: VReg) -> u32 {
    let mut queue = BTreeSet::from([(0, spot, v)]);
    let mut settled = BTreeSet::new();
    let mut is_passed = false;
    while let Some((far, (block, index), v)) = queue.pop_first() {
        if !settled.insert((block, index, v)) {
            continue;
        }
        match f.block_insts(block).nth(index) {
            Some(inst) => {
                let mut of_v = f.operands(inst).iter().filter(|o| o.vreg == v);
                if of_v.clone().any(|o| o.role.reads()) {
                    return far;
                }
                if !of_v.any(|o| o.role.writes()) {
                    queue.insert((far + 1, (block, index + 1), v));
                }
            }
            None => {
                for edge in f.succs(block) {
                    let params = &f.block(edge.block).params;
                    let leaves = loops.around(block).any(|l| !loops.contains(l, edge.block));
                    let far = far + if leaves { LOOP_EXIT } else { 0 };
                    for (&param, _) in params.iter().zip(&edge.args).filter(|p| *p.1 == v) {
                        is_passed = true;
                        queue.insert((far, (edge.block, 0), param));
                    }
                    if !params.contains(&v) {
                        queue.insert((far, (edge.block, 0), v));
                    }
                }
            }
        }
    }
    match is_passed {
        true => NEVER - 1,
        false => NEVER,
    }
}

#[test]
fn next_uses_are_shortest_paths() {
    for seed in 0..FUNCTIONS / 2 {
        let f = function(seed);
        let order = Order::compute(&f);
        let loops = Loops::compute(&f, &order);
        let liveness = Liveness::compute(&f);
        let next = NextUses::compute(&f, &order, &loops, &liveness);
        let operands = next.operands(&f);
        assert_eq!(operands.len(), f.operand_count());
        for b in f.blocks() {
            let len = f.block_insts(b).len();
            for v in f.vregs() {
                let expected = match f.block(b).params.contains(&v) {
                    true => NEVER,
                    false => distance(&f, &loops, (b, 0), v),
                };
                assert_eq!(next.at_entry(b, v), expected, "seed {seed}: {v} into {b}");
                let expected = distance(&f, &loops, (b, len), v);
                assert_eq!(next.at_exit(b, v), expected, "seed {seed}: {v} out of {b}");
            }
            for (index, inst) in f.block_insts(b).enumerate() {
                let found = &operands[f.operand_range(inst)];
                for (o, &found) in f.operands(inst).iter().zip(found) {
                    let mut same = f.operands(inst).iter().filter(|p| p.vreg == o.vreg);
                    let dies = o.role == Role::Use && same.any(|p| p.role.writes());
                    let expected = match distance(&f, &loops, (b, index + 1), o.vreg) {
                        NEVER => NEVER,
                        _ if dies => NEVER,
                        far => far.saturating_add(1).min(NEVER - 1),
                    };
                    // What is passed on but never read is further than anything else.
                    let found = if found > NEVER / 2 {
                        found.max(expected)
                    } else {
                        found
                    };
                    assert_eq!(found, expected, "seed {seed}: {inst} {}", o.vreg);
                }
            }
        }
    }
}

#[test]
fn ranges_cover_what_is_live_or_written() {
    for seed in 0..FUNCTIONS / 4 {
        let f = function(seed);
        let liveness = Liveness::compute(&f);
        let ranges = LiveRanges::compute(&f, &liveness);
        let mut covered: BTreeMap<VReg, BTreeSet<Position>> = BTreeMap::new();
        for b in f.blocks() {
            for (index, inst) in f.block_insts(b).enumerate() {
                for v in f.vregs() {
                    let has = |which: fn(Role) -> bool| {
                        f.operands(inst)
                            .iter()
                            .any(|o| o.vreg == v && which(o.role))
                    };
                    let param = index == 0 && f.block(b).params.contains(&v);
                    let early = is_live(&f, (b, index), v) || has(|r| r == Role::EarlyDef);
                    let late = is_live(&f, (b, index + 1), v) || has(Role::writes);
                    let at = (Position::early(inst.index()), Position::late(inst.index()));
                    for (at, expected) in [(at.0, early || param), (at.1, late)] {
                        assert_eq!(ranges.covers(v, at), expected, "seed {seed}: {v} at {at:?}");
                        if expected {
                            covered.entry(v).or_default().insert(at);
                        }
                    }
                }
            }
        }
        let empty = BTreeSet::new();
        for a in f.vregs() {
            let of_a = covered.get(&a).unwrap_or(&empty);
            assert_eq!(ranges.length(a), of_a.len(), "seed {seed}: {a}");
            let apart = ranges.segments(a).windows(2).all(|w| w[0].end < w[1].start);
            assert!(apart, "seed {seed}: {a}");
            for b in f.vregs() {
                let of_b = covered.get(&b).unwrap_or(&empty);
                assert_eq!(ranges.overlap(a, b), !of_a.is_disjoint(of_b), "seed {seed}");
            }
        }
    }
}

#[test]
fn ranges_list_all_occurrences_in_order() {
    for seed in 0..FUNCTIONS / 4 {
        let f = function(seed);
        let ranges = LiveRanges::compute(&f, &Liveness::compute(&f));
        let mut operands = 0;
        let mut passed = 0;
        for v in f.vregs() {
            let list = ranges.occurrences(v);
            assert!(
                list.windows(2).all(|w| w[0].at <= w[1].at),
                "seed {seed}: {v}"
            );
            for o in list {
                let inst = Inst::new(o.at.inst());
                let block = f.block_of(inst);
                match o.touch {
                    Touch::Operand(number, role) => {
                        let range = f.operand_range(inst);
                        assert!(range.contains(&(number as usize)), "seed {seed}");
                        let operand = f.operands(inst)[number as usize - range.start];
                        assert_eq!((operand.vreg, operand.role), (v, role), "seed {seed}");
                        assert_eq!(o.at.is_late(), role == Role::Def);
                        operands += 1;
                    }
                    Touch::Parameter => {
                        assert!(f.block(block).params.contains(&v), "seed {seed}");
                        assert_eq!(f.block_insts(block).next(), Some(inst));
                    }
                    Touch::Argument => {
                        assert!(f.arguments(block).any(|arg| arg == v), "seed {seed}");
                        assert_eq!(f.block_insts(block).last(), Some(inst));
                        passed += 1;
                    }
                }
            }
        }
        assert_eq!(operands, f.operand_count(), "seed {seed}");
        let args: usize = f.blocks().map(|b| f.arguments(b).count()).sum();
        assert_eq!(passed, args, "seed {seed}");
    }
}

/// A write or a read, by what the code says there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Mention {
    Operand(usize),
    Param(Block),
    Arg(Block, usize),
    /// What the register holds when this block is entered, for the sake of unreachable
    /// cycles and other code in which nothing was written before.
    Arriving(Block, VReg),
}

/// Every read with each write it may see, by following paths backwards one by one.
fn reaching(f: &Function, spot: Spot, v: VReg) -> BTreeSet<Mention> {
    let mut found = BTreeSet::new();
    let mut seen = BTreeSet::new();
    let mut stack = vec![spot];
    while let Some((block, index)) = stack.pop() {
        if !seen.insert((block, index)) {
            continue;
        }
        if index > 0 {
            let inst = f.block_insts(block).nth(index - 1).unwrap();
            let mut operands = f.operand_range(inst).zip(f.operands(inst));
            match operands.find(|(_, o)| o.vreg == v && o.role.writes()) {
                Some((number, _)) => {
                    found.insert(Mention::Operand(number));
                }
                None => stack.push((block, index - 1)),
            }
        } else if f.block(block).params.contains(&v) {
            found.insert(Mention::Param(block));
        } else {
            found.insert(Mention::Arriving(block, v));
            stack.extend(f.predecessors(block).map(|p| (p, f.block_insts(p).len())));
        }
    }
    found
}

/// The webs as sets of mentions: reads joined with all writes they may see, until no two
/// sets share a member.
fn webs_by_definition(f: &Function) -> Vec<BTreeSet<Mention>> {
    let mut sets: Vec<BTreeSet<Mention>> = Vec::new();
    let mut add = |mut set: BTreeSet<Mention>| {
        let (touching, apart) = std::mem::take(&mut sets)
            .into_iter()
            .partition(|other: &BTreeSet<_>| !other.is_disjoint(&set));
        sets = apart;
        for other in touching {
            set.extend(other);
        }
        sets.push(set);
    };
    for b in f.blocks() {
        for _ in &f.block(b).params {
            add(BTreeSet::from([Mention::Param(b)]));
        }
        for (index, inst) in f.block_insts(b).enumerate() {
            for (number, o) in f.operand_range(inst).zip(f.operands(inst)) {
                let mut set = BTreeSet::from([Mention::Operand(number)]);
                if o.role.reads() {
                    set.extend(reaching(f, (b, index), o.vreg));
                }
                add(set);
            }
        }
        let end = (b, f.block_insts(b).len());
        for (number, arg) in f.arguments(b).enumerate() {
            let mut set = reaching(f, end, arg);
            set.insert(Mention::Arg(b, number));
            add(set);
        }
    }
    sets
}

#[test]
fn webs_join_writes_that_one_read_may_see() {
    let mut split = 0;
    for seed in 0..FUNCTIONS / 2 {
        let f = function(seed);
        let webs = Webs::compute(&f, &Liveness::compute(&f));
        let mut names = BTreeMap::new();
        let mut params = webs.names.params.iter();
        let mut args = webs.names.args.iter();
        for b in f.blocks() {
            for (_, &name) in f.parameters(b).zip(&mut params) {
                names.insert(Mention::Param(b), name);
            }
            for (number, (_, &name)) in f.arguments(b).zip(&mut args).enumerate() {
                names.insert(Mention::Arg(b, number), name);
            }
        }
        for (number, &name) in webs.names.operands.iter().enumerate() {
            names.insert(Mention::Operand(number), name);
        }
        let mut taken = BTreeSet::new();
        for set in webs_by_definition(&f) {
            let of_set: BTreeSet<VReg> = set.iter().filter_map(|m| names.get(m).copied()).collect();
            assert_eq!(of_set.len(), 1, "seed {seed}: {set:?}");
            assert!(taken.insert(of_set), "seed {seed}: {set:?}");
        }
        split += (webs.original.len() > f.vreg_count()) as usize;
        let renamed = webs.split(&f);
        assert_eq!(renamed.vreg_count(), webs.original.len());
        for inst in f.insts() {
            let pairs = f.operands(inst).iter().zip(renamed.operands(inst));
            for ((old, new), &name) in pairs.zip(webs.operands(&f, inst)) {
                assert_eq!(new.vreg, name);
                assert_eq!(webs.original[new.vreg], old.vreg);
                assert_eq!((new.role, new.constraint), (old.role, old.constraint));
                assert_eq!(renamed.vreg(new.vreg), f.vreg(old.vreg));
            }
        }
        // Splitting once is enough, and what cannot split stays as it is.
        let again = Webs::compute(&renamed, &Liveness::compute(&renamed));
        assert_eq!(again.split(&renamed), renamed, "seed {seed}");
    }
    assert!(split > 500, "{split} split");
}

#[test]
fn a_name_used_twice_becomes_two() {
    let mut b = Builder::new("reuse");
    let entry = b.block();
    let x = b.vreg(Class::R32);
    b.inst(entry, "load").def(x);
    b.inst(entry, "add").use_def(x);
    b.inst(entry, "mul").use_(x).def(x);
    b.inst(entry, "store").use_(x);
    b.exit(entry, "exit");
    let f = b.finish();
    let webs = Webs::compute(&f, &Liveness::compute(&f));
    let y = VReg::new(1);
    assert_eq!(webs.names.operands, [x, x, x, y, y]);
    assert_eq!(webs.original.values().copied().collect::<Vec<_>>(), [x, x]);
}
