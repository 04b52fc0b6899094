use super::*;
use crate::analysis::{Cfg, Code};
use crate::function::{
    Alias, AliasClass, Base, Builder, Clobbers, Constraint, Effect, Extent, Operand, Role,
};
use crate::generate::{self, Rng, Shape};
use crate::target::{Class, File};

thread_local! {
    /// Steps of work counted so far.
    pub(super) static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// A function whose instructions run in another order.
struct Reordered<'a>(&'a Function, &'a [Inst]);

impl Cfg for Reordered<'_> {
    fn block_count(&self) -> usize {
        self.0.block_count()
    }

    fn successors(&self, block: Block) -> impl Iterator<Item = Block> + '_ {
        Cfg::successors(self.0, block)
    }

    fn predecessors(&self, block: Block) -> impl Iterator<Item = Block> + '_ {
        Cfg::predecessors(self.0, block)
    }
}

impl Code for Reordered<'_> {
    type Value = VReg;
    type Point = Inst;

    fn value_count(&self) -> usize {
        self.0.vreg_count()
    }

    fn points(&self, block: Block) -> impl DoubleEndedIterator<Item = Inst> + '_ {
        self.0.block_insts(block).map(|inst| self.1[inst.index()])
    }

    fn accesses(&self, inst: Inst) -> impl Iterator<Item = (VReg, Role)> + '_ {
        Code::accesses(self.0, inst)
    }

    fn parameters(&self, block: Block) -> impl Iterator<Item = VReg> + '_ {
        Code::parameters(self.0, block)
    }

    fn arguments(&self, block: Block) -> impl Iterator<Item = VReg> + '_ {
        Code::arguments(self.0, block)
    }
}

/// Greatest sum, over all files, of units lacking at one moment of `block`.
fn scheduled(function: &Function, target: &Target) -> Option<Vec<Inst>> {
    schedule(function, target, &Liveness::compute(function))
}

fn excess(function: &Function, target: &Target, order: &[Inst], block: Block) -> usize {
    let code = Reordered(function, order);
    let liveness = Liveness::compute(function);
    let size = |vreg: VReg| {
        let class = target.class(function.vreg(vreg).class);
        (class.file, class.width)
    };
    let files = target.files().len();
    let mut walk = crate::analysis::PressureWalk::new(&code, &liveness, files, size);
    let mut worst = 0;
    walk.block(block, |_, units| {
        let over = |(file, info): (File, &crate::target::FileInfo)| {
            units[file.index()].saturating_sub(info.units)
        };
        worst = worst.max(target.files().map(over).sum());
    });
    worst
}

/// Whether two instructions must keep their order, told from the instructions alone.
fn conflict(function: &Function, a: Inst, b: Inst) -> bool {
    let (info_a, info_b) = (function.inst(a), function.inst(b));
    let wall = |inst: Inst| {
        let info = function.inst(inst);
        let mut operands = function.operands(inst).iter();
        info.clobbers != Clobbers::None
            || info.kind.is_terminator()
            || operands.any(|o| matches!(o.constraint, Constraint::Fixed(_)))
    };
    let effects = match (info_a.effect, info_b.effect) {
        (Effect::Write, e) | (e, Effect::Write) => {
            e != Effect::Pure && function.may_alias(function.alias(a), function.alias(b))
        }
        _ => false,
    };
    let values = function.operands(a).iter().any(|x| {
        let mut others = function.operands(b).iter();
        others.any(|y| x.vreg == y.vreg && (x.role.writes() || y.role.writes()))
    });
    wall(a) || wall(b) || effects || values
}

fn keeps_conflicts(function: &Function, order: &[Inst]) -> bool {
    let mut place = vec![0; order.len()];
    order
        .iter()
        .enumerate()
        .for_each(|(at, inst)| place[inst.index()] = at);
    function.blocks().all(|block| {
        let insts: Vec<Inst> = function.block_insts(block).collect();
        let kept = |i: usize, j: usize| {
            !conflict(function, insts[i], insts[j])
                || place[insts[i].index()] < place[insts[j].index()]
        };
        (0..insts.len()).all(|j| (0..j).all(|i| kept(i, j)))
    })
}

fn is_permutation(function: &Function, order: &[Inst]) -> bool {
    function.blocks().all(|block| {
        let mut new: Vec<Inst> = function
            .block_insts(block)
            .map(|i| order[i.index()])
            .collect();
        let last = new.last().copied();
        new.sort_unstable();
        new.into_iter().eq(function.block_insts(block)) && last == Some(function.terminator(block))
    })
}

/// The least excess of any permutation of the only block.
fn least_excess(function: &Function, target: &Target) -> usize {
    let count = function.inst_count() - 1;
    let mut order: Vec<Inst> = function.insts().collect();
    let mut best = usize::MAX;
    permute(&mut order, count, 0, function, &mut |order| {
        best = best.min(excess(function, target, order, function.entry()));
    });
    best
}

fn permute(
    order: &mut Vec<Inst>,
    count: usize,
    at: usize,
    function: &Function,
    visit: &mut dyn FnMut(&[Inst]),
) {
    if at == count {
        visit(order);
        return;
    }
    for next in at..count {
        order[at..=next].rotate_right(1);
        // It now runs before everything in the rest that it used to follow.
        let chosen = order[at];
        let free = order[at + 1..count]
            .iter()
            .all(|&other| other > chosen || !conflict(function, other, chosen));
        if free {
            permute(order, count, at + 1, function, visit);
        }
        order[at..=next].rotate_left(1);
    }
}

/// A block of random instructions on few values, some written again.
fn tiny(rng: &mut Rng, insts: usize) -> Function {
    let mut b = Builder::new("tiny");
    let block = b.block();
    let mut written = Vec::new();
    for _ in 0..insts {
        let class = [Class::R32, Class::R32, Class::R64][rng.below(3)];
        let result = b.vreg(class);
        let inputs: Vec<VReg> = (0..rng.below(3))
            .filter_map(|_| rng.pick(&written).copied())
            .collect();
        let again = rng.pick(&written).copied().filter(|v| !inputs.contains(v));
        let effect = [Effect::Pure, Effect::Pure, Effect::Read, Effect::Write][rng.below(4)];
        let mut operands: Vec<Operand> = inputs.iter().map(|&v| Operand::reads(v)).collect();
        match (rng.below(6), again) {
            (0, Some(old)) => operands.push(Operand::with_role(old, Role::UseDef)),
            (1, Some(old)) => operands.push(Operand::writes(old)),
            (3, _) if !inputs.is_empty() => {}
            (kind, _) => {
                let role = if kind == 2 { Role::EarlyDef } else { Role::Def };
                operands.push(Operand::with_role(result, role));
                written.push(result);
            }
        }
        let mut inst = b.inst(block, "op").effect(effect);
        for operand in operands {
            inst = inst.operand(operand);
        }
    }
    let mut exit = b.exit(block, "exit");
    for _ in 0..rng.below(3) {
        if let Some(&value) = rng.pick(&written) {
            exit = exit.use_(value);
        }
    }
    b.finish()
}

#[test]
fn every_small_block_reaches_the_least_excess_of_all_permutations() {
    let mut rng = Rng::new(16);
    let (mut crowded, mut improved, mut cured) = (0, 0, 0);
    for _ in 0..3_000 {
        let insts = rng.within(2..=7);
        let function = tiny(&mut rng, insts);
        let target = Target::hardware(90)
            .unwrap()
            .with_budget(File::R, rng.within(1..=4));
        let source: Vec<Inst> = function.insts().collect();
        let entry = function.entry();
        let before = excess(&function, &target, &source, entry);
        let new = scheduled(&function, &target);
        let order = new.clone().unwrap_or(source);
        let after = excess(&function, &target, &order, entry);
        assert!(is_permutation(&function, &order) && keeps_conflicts(&function, &order));
        assert_eq!(after, least_excess(&function, &target), "{order:?}");
        assert_eq!(new.is_some(), after < before);
        crowded += (before > 0) as u32;
        improved += (after < before) as u32;
        cured += (before > 0 && after == 0) as u32;
    }
    assert!(
        crowded > 800 && improved > 200 && cured > 100,
        "{crowded} {improved} {cured}"
    );
}

#[test]
fn random_functions_keep_every_dependence() {
    let mut rng = Rng::new(3);
    let mut changed = 0;
    for _ in 0..400 {
        let shape = Shape::random(200, &mut rng);
        let target = Target::cicc().with_budget(File::R, rng.within(4..=12));
        let function = generate::function(&shape, &target, &mut rng);
        let Some(order) = scheduled(&function, &target) else {
            continue;
        };
        changed += 1;
        assert!(is_permutation(&function, &order));
        assert!(keeps_conflicts(&function, &order));
        let source: Vec<Inst> = function.insts().collect();
        for block in function.blocks() {
            let before = excess(&function, &target, &source, block);
            assert!(excess(&function, &target, &order, block) <= before);
        }
    }
    assert!(changed > 50, "{changed}");
}

/// Eight loads at once, then eight stores: one register is enough if they alternate.
fn loads_then_stores(store: Effect) -> Function {
    let mut b = Builder::new("f");
    let block = b.block();
    let values: Vec<VReg> = (0..8).map(|_| b.vreg(Class::R32)).collect();
    for &v in &values {
        b.inst(block, "load").def(v).effect(Effect::Read);
    }
    for &v in &values {
        b.inst(block, "use").use_(v).effect(store);
    }
    b.exit(block, "exit");
    b.finish()
}

#[test]
fn loads_sink_to_their_uses_unless_a_store_is_between() {
    let target = Target::hardware(90).unwrap().with_budget(File::R, 2);
    let pure = loads_then_stores(Effect::Pure);
    let order = scheduled(&pure, &target).unwrap();
    assert_eq!(excess(&pure, &target, &order, pure.entry()), 0);
    // A load may not pass a store: the memory may be the same.
    assert_eq!(scheduled(&loads_then_stores(Effect::Write), &target), None);
}

#[test]
fn nothing_moves_where_everything_fits() {
    let target = Target::hardware(90).unwrap().with_budget(File::R, 8);
    assert_eq!(scheduled(&loads_then_stores(Effect::Pure), &target), None);
}

#[test]
fn nothing_crosses_an_instruction_that_clobbers() {
    let target = Target::hardware(90).unwrap().with_budget(File::R, 4);
    let mut b = Builder::new("f");
    let block = b.block();
    let values: Vec<VReg> = (0..8).map(|_| b.vreg(Class::R32)).collect();
    for &v in &values {
        b.inst(block, "const").def(v);
    }
    b.inst(block, "call")
        .effect(Effect::Write)
        .clobbers(Clobbers::Abi);
    for &v in &values {
        b.inst(block, "use").use_(v);
    }
    b.exit(block, "exit");
    assert_eq!(scheduled(&b.finish(), &target), None);
}

#[test]
fn users_of_pinned_values_stay_behind_the_wait() {
    let target = Target::hardware(90).unwrap().with_budget(File::R, 2);
    let mut b = Builder::new("f");
    let block = b.block();
    let values: Vec<VReg> = (0..4).map(|_| b.vreg(Class::R32)).collect();
    for &v in &values {
        b.pin(v);
        b.inst(block, "start").def(v).effect(Effect::Write);
    }
    b.inst(block, "wait").effect(Effect::Write);
    for &v in &values {
        b.inst(block, "use").use_(v);
    }
    b.exit(block, "exit");
    assert_eq!(scheduled(&b.finish(), &target), None);
}

/// Four loads, then a store of each result: two registers suffice where a store may come before
/// the loads behind it.
fn loads_and_stores(load: impl Fn(i32) -> Alias, store: impl Fn(i32) -> Alias) -> Function {
    let mut b = Builder::new("f");
    let block = b.block();
    let values: Vec<VReg> = (0..4).map(|_| b.vreg(Class::R32)).collect();
    for (&v, i) in values.iter().zip(0..) {
        let inst = b.inst(block, "ld").def(v).effect(Effect::Read);
        inst.alias(load(i));
    }
    for (&v, i) in values.iter().zip(0..) {
        let inst = b.inst(block, "st").use_(v).effect(Effect::Write);
        inst.alias(store(i));
    }
    b.exit(block, "exit");
    b.finish()
}

fn at(base: Base, start: i32) -> Alias {
    let extent = Extent {
        base,
        start,
        len: 4,
    };
    Alias {
        spaces: 1,
        extent: Some(extent),
    }
}

#[test]
fn loads_move_past_stores_that_touch_other_state() {
    let target = Target::hardware(90).unwrap().with_budget(File::R, 2);
    let (p, q) = (Base::Address(0), Base::Address(1));
    let (s, t) = (Base::Variable(0), Base::Variable(1));
    let apart = [
        loads_and_stores(|_| Alias::of(1), |_| Alias::of(2)),
        loads_and_stores(|i| at(p, 4 * i), |i| at(p, 4 * i)),
        loads_and_stores(|i| at(s, 4 * i), |i| at(t, 4 * i)),
        loads_and_stores(|_| Alias::of(1), |_| Alias::of(0)),
    ];
    for function in apart {
        let order = scheduled(&function, &target).unwrap();
        assert_eq!(excess(&function, &target, &order, function.entry()), 0);
        assert!(keeps_conflicts(&function, &order));
    }
    let near = [
        loads_and_stores(|_| Alias::of(3), |_| Alias::of(6)),
        loads_and_stores(|_| at(p, 0), |_| at(p, 2)),
        loads_and_stores(|i| at(p, 4 * i), |i| at(q, 4 * i)),
        loads_and_stores(|i| at(s, 4 * i), |i| at(q, 4 * i)),
        loads_and_stores(|i| at(s, 4 * i), |_| Alias::ANY),
    ];
    for function in near {
        assert_eq!(scheduled(&function, &target), None);
    }
}

/// Many reads and many writes make few edges: what a read precedes, a write behind it does.
#[test]
fn reads_before_many_writes_are_followed_once() {
    let target = Target::hardware(90).unwrap().with_budget(File::R, 2);
    let mut b = Builder::new("f");
    let block = b.block();
    let values: Vec<VReg> = (0..400).map(|_| b.vreg(Class::R32)).collect();
    for &v in &values {
        let inst = b.inst(block, "ld").def(v).effect(Effect::Read);
        inst.alias(at(Base::Address(0), 0));
    }
    for (i, &v) in values.iter().enumerate() {
        let inst = b.inst(block, "st").use_(v).effect(Effect::Write);
        inst.alias(at(Base::Address(1), 4 * (i as i32 % 8)));
    }
    b.exit(block, "exit");
    let function = b.finish();
    let mut scratch = Scratch::new(&function);
    let live = LiveSet::new(function.vreg_count());
    let insts = function.block_insts(block);
    let region = Region::new(&function, &target, insts, (&live, &[]), &mut scratch);
    let edges: usize = region.nodes.values().map(|node| node.succs.len()).sum();
    assert!(edges < 400 * 16, "{edges}");
}

/// The nodes that come before each access, in a block of reads and writes of these addresses.
fn before_each(accesses: &[(Effect, Alias)]) -> Vec<Vec<u32>> {
    let target = Target::hardware(90).unwrap();
    let mut b = Builder::new("f");
    let block = b.block();
    for &(effect, alias) in accesses {
        b.inst(block, "access").effect(effect).alias(alias);
    }
    b.exit(block, "exit");
    let function = b.finish();
    let mut scratch = Scratch::new(&function);
    let live = LiveSet::new(function.vreg_count());
    let insts = function.block_insts(block).take(accesses.len());
    let region = Region::new(&function, &target, insts, (&live, &[]), &mut scratch);
    let nodes = region.nodes.values();
    let before = nodes.map(|node| node.preds.iter().map(|n| n.as_u32()).collect());
    before.collect()
}

/// Two writes of other state than each other, behind reads that may be of either.
#[test]
fn a_write_stands_for_the_reads_before_it_where_these_are_more_than_thirty_two() {
    let (p, q) = (Base::Address(0), Base::Address(1));
    let before_second = |reads: usize| {
        let mut accesses = vec![(Effect::Read, at(p, 0)); reads];
        accesses.extend([0, 4].map(|start| (Effect::Write, at(q, start))));
        before_each(&accesses).pop().unwrap()
    };
    assert_eq!(before_second(32), Vec::from_iter(0..32));
    assert_eq!(before_second(33), [33]);
}

#[test]
fn a_read_comes_before_the_first_write_behind_it_and_through_that_before_others() {
    let state = at(Base::Address(0), 0);
    let accesses = [Effect::Read, Effect::Write, Effect::Write].map(|effect| (effect, state));
    assert_eq!(before_each(&accesses), [vec![], vec![0], vec![1]]);
}

#[test]
fn a_balanced_tree_of_sums_is_computed_depth_first() {
    // 64 leaves first, level by level: 64 alive. Depth first: log2(64) + 1 = 7.
    let target = Target::hardware(90).unwrap().with_budget(File::R, 7);
    let mut b = Builder::new("f");
    let block = b.block();
    let mut level: Vec<VReg> = (0..64).map(|_| b.vreg(Class::R32)).collect();
    for &leaf in &level {
        b.inst(block, "load").def(leaf).effect(Effect::Read);
    }
    while level.len() > 1 {
        let sums = level.chunks(2).map(|pair| {
            let sum = b.vreg(Class::R32);
            b.inst(block, "add").def(sum).use_(pair[0]).use_(pair[1]);
            sum
        });
        level = sums.collect();
    }
    b.exit(block, "exit").use_(level[0]);
    let function = b.finish();
    let order = scheduled(&function, &target).unwrap();
    assert_eq!(excess(&function, &target, &order, function.entry()), 0);
}

/// With one register, each value would be computed right before its use.
#[test]
fn nothing_changes_sides_with_an_anchored_instruction() {
    let order = |attribute: &str| {
        let case = crate::text::parse(&format!(
            "target hardware sm_90 R=1
             kernel f {{
             block0:
                 v0:r32 = mov #1
                 v1:r32 = mov #2{attribute}
                 use v0 : write
                 use v1 : write
                 exit : exit write
             }}"
        ))
        .unwrap();
        let order = scheduled(&case.function, &case.target)?;
        Some(order.iter().map(|inst| inst.index()).collect::<Vec<_>>())
    };
    assert_eq!(order(""), Some(vec![0, 2, 1, 3, 4]));
    assert_eq!(order(" : anchored"), None);
}

/// Edges, entries of the heaps and sets visited, all of which time follows.
#[test]
fn work_grows_with_the_length_of_a_block_and_not_with_its_square() {
    let target = Target::hardware(90).unwrap().with_budget(File::R, 16);
    let mut rng = Rng::new(5);
    let mut steps = |insts: usize| {
        let shape = Shape {
            pressure: 64,
            ..Shape::straight(insts)
        };
        let function = generate::function(&shape, &target, &mut rng);
        STEPS.set(0);
        let order = scheduled(&function, &target);
        assert!(order.is_none_or(|order| keeps_effects(&function, &order)));
        STEPS.get()
    };
    let (small, large) = (steps(2_000), steps(40_000));
    assert!(small > 2_000 && large < 40 * small, "{small}, then {large}");
}

/// Three values leave a region that has two registers.
#[test]
fn no_order_is_searched_for_where_none_can_be_better() {
    let target = Target::hardware(90).unwrap().with_budget(File::R, 2);
    let mut b = Builder::new("f");
    let block = b.block();
    let values: Vec<VReg> = (0..3).map(|_| b.vreg(Class::R32)).collect();
    for &v in &values {
        b.inst(block, "load").def(v).effect(Effect::Read);
    }
    let mut exit = b.exit(block, "exit");
    for &v in &values {
        exit = exit.use_(v);
    }
    let function = b.finish();
    let mut scheduler = Scheduler::new(&function, &target);
    scheduler.block(block, &Liveness::compute(&function));
    assert_eq!(scheduler.allowance, search::ALLOWANCE);
}

/// Eight values are alive at once in the source, and one where each is used at once.
#[test]
fn what_a_search_visits_comes_off_the_allowance() {
    let target = Target::hardware(90).unwrap().with_budget(File::R, 2);
    let function = loads_then_stores(Effect::Pure);
    let mut scratch = Scratch::new(&function);
    let live = LiveSet::new(function.vreg_count());
    let insts = function.block_insts(function.entry()).take(16);
    let region = Region::new(&function, &target, insts, (&live, &[]), &mut scratch);
    let mut allowance = 100;
    let seen = &mut FxHashSet::default();
    let order = search::best_order(&region, 0..6, &mut allowance, seen).unwrap();
    assert_eq!(order.len(), 16);
    // One for each node: every second one can only be the use of what was loaded.
    assert_eq!(allowance, 100 - 16);
}

fn keeps_effects(function: &Function, order: &[Inst]) -> bool {
    let writes = |insts: &mut dyn Iterator<Item = Inst>| -> Vec<Inst> {
        insts
            .filter(|&i| function.inst(i).effect == Effect::Write)
            .filter(|&i| function.alias(i) == AliasClass::ANY)
            .collect()
    };
    writes(&mut order.iter().copied()) == writes(&mut function.insts())
}
