//! Order, dominators, loops and frequencies.

use crate::random::{FUNCTIONS, function};
use cranelift_entity::EntityRef;
use std::collections::BTreeSet;
use warpalloc::analysis::{Cfg, Dominators, Frequencies, Loops, Order};
use warpalloc::function::{Block, Builder, Function};

/// Blocks on paths from `start` that pass through no block of `without`.
fn reached(f: &Function, start: Block, without: Option<Block>) -> BTreeSet<Block> {
    let mut seen = BTreeSet::new();
    let mut stack = vec![start];
    while let Some(block) = stack.pop() {
        if Some(block) != without && seen.insert(block) {
            stack.extend(f.successors(block));
        }
    }
    seen
}

/// Every path from the entry to `b` passes through `a`: without `a`, none is left.
fn dominates(f: &Function, a: Block, b: Block) -> bool {
    a == b
        || (reached(f, f.entry(), None).contains(&b)
            && !reached(f, f.entry(), Some(a)).contains(&b))
}

#[test]
fn order_is_topological_up_to_back_edges() {
    for seed in 0..FUNCTIONS {
        let f = function(seed);
        let order = Order::compute(&f);
        let reachable = reached(&f, f.entry(), None);
        let rpo = order.reverse_postorder();
        assert_eq!(
            BTreeSet::from_iter(rpo.iter().copied()),
            reachable,
            "seed {seed}"
        );
        assert_eq!(rpo.len(), reachable.len(), "seed {seed}");
        let all: BTreeSet<Block> = order.all().iter().copied().collect();
        assert_eq!(all.len(), f.block_count(), "seed {seed}");
        for b in f.blocks() {
            assert_eq!(order.all()[order.position(b)], b);
            assert_eq!(order.is_reachable(b), reachable.contains(&b));
        }
        // An edge against the order closes a cycle.
        for &b in rpo {
            for s in f
                .successors(b)
                .filter(|&s| order.position(s) <= order.position(b))
            {
                assert!(reached(&f, s, None).contains(&b), "seed {seed}: {b} to {s}");
            }
        }
    }
}

#[test]
fn dominators_are_what_no_path_avoids() {
    for seed in 0..FUNCTIONS {
        let f = function(seed);
        let order = Order::compute(&f);
        let doms = Dominators::compute(&f, &order);
        for b in f.blocks() {
            let strict: Vec<Block> = f
                .blocks()
                .filter(|&a| a != b && dominates(&f, a, b))
                .collect();
            for a in f.blocks() {
                let expected = a == b || strict.contains(&a);
                assert_eq!(doms.dominates(a, b), expected, "seed {seed}: {a}, {b}");
            }
            // The closest is the one all others dominate.
            let closest = strict
                .iter()
                .copied()
                .find(|&c| strict.iter().all(|&a| dominates(&f, a, c)));
            assert_eq!(doms.idom(b), closest, "seed {seed}: {b}");
            for &child in doms.children(b) {
                assert_eq!(doms.idom(child), Some(b), "seed {seed}");
            }
        }
        let children: usize = f.blocks().map(|b| doms.children(b).len()).sum();
        assert_eq!(
            children,
            f.blocks().filter(|&b| doms.idom(b).is_some()).count()
        );
    }
}

/// The natural loop of each header of a reducible graph, or nothing if it is irreducible.
fn natural_loops(f: &Function, order: &Order) -> Option<Vec<(Block, BTreeSet<Block>)>> {
    let mut loops = Vec::new();
    for h in f.blocks().filter(|&h| order.is_reachable(h)) {
        let mut body = BTreeSet::from([h]);
        let mut stack = Vec::new();
        let mut found = false;
        for p in f.predecessors(h).filter(|&p| order.is_reachable(p)) {
            if dominates(f, h, p) {
                found = true;
                stack.push(p);
            } else if order.position(p) >= order.position(h) {
                return None;
            }
        }
        while let Some(b) = stack.pop() {
            if body.insert(b) {
                stack.extend(f.predecessors(b).filter(|&p| order.is_reachable(p)));
            }
        }
        if found {
            loops.push((h, body));
        }
    }
    Some(loops)
}

#[test]
fn loops_of_reducible_graphs_are_the_natural_ones() {
    let (mut nested, mut reducible) = (0, 0);
    for seed in 0..FUNCTIONS {
        let f = function(seed);
        let order = Order::compute(&f);
        let loops = Loops::compute(&f, &order);
        let Some(natural) = natural_loops(&f, &order) else {
            assert!(
                loops.loops().any(|(_, info)| info.irreducible),
                "seed {seed}"
            );
            continue;
        };
        reducible += 1;
        assert_eq!(loops.loop_count(), natural.len(), "seed {seed}");
        assert!(
            loops.loops().all(|(_, info)| !info.irreducible),
            "seed {seed}"
        );
        for b in f.blocks() {
            let mut around: Vec<_> = natural
                .iter()
                .filter(|(_, body)| body.contains(&b))
                .collect();
            around.sort_by_key(|(_, body)| body.len());
            let headers: Vec<Block> = around.iter().map(|(h, _)| *h).collect();
            let found: Vec<Block> = loops.around(b).map(|l| loops.info(l).header).collect();
            assert_eq!(found, headers, "seed {seed}: {b}");
            assert_eq!(loops.depth(b) as usize, headers.len(), "seed {seed}: {b}");
            assert_eq!(loops.is_header(b), headers.first() == Some(&b));
            nested = nested.max(headers.len());
        }
    }
    assert!(
        reducible > 500 && nested >= 3,
        "{reducible} reducible, nested {nested}"
    );
}

#[test]
fn loops_of_any_graph_keep_what_defines_them() {
    let mut irreducible = 0;
    for seed in 0..FUNCTIONS {
        let f = function(seed);
        let order = Order::compute(&f);
        let loops = Loops::compute(&f, &order);
        let on_cycle = |b: Block| f.successors(b).any(|s| reached(&f, s, None).contains(&b));
        for b in f.blocks() {
            let cyclic = order.is_reachable(b) && on_cycle(b);
            assert_eq!(loops.innermost(b).is_some(), cyclic, "seed {seed}: {b}");
        }
        for (l, info) in loops.loops() {
            let inside = |b: &Block| loops.contains(l, *b);
            let body: Vec<Block> = f.blocks().filter(inside).collect();
            for &b in &body {
                let within = reached(&f, b, None);
                assert!(
                    within.contains(&info.header),
                    "seed {seed}: {b} reaches {}",
                    info.header
                );
                assert!(info.parent.is_none_or(|p| loops.contains(p, b)));
            }
            let entered_beside = body.iter().filter(|&&b| b != info.header).any(|&b| {
                f.predecessors(b)
                    .any(|p| order.is_reachable(p) && !body.contains(&p))
            });
            assert_eq!(info.irreducible, entered_beside, "seed {seed}: {l}");
            assert_eq!(loops.is_irreducible(l), info.irreducible);
            irreducible += info.irreducible as usize;
        }
    }
    assert!(irreducible > 100, "{irreducible} irreducible loops");
}

#[test]
fn flow_into_a_block_is_its_frequency() {
    let mut with_loops = 0;
    for seed in 0..FUNCTIONS {
        let f = function(seed);
        let order = Order::compute(&f);
        let loops = Loops::compute(&f, &order);
        let freqs = Frequencies::compute(&f, &order, &loops);
        let ends = |b: Block| reached(&f, b, None).iter().any(|&e| f.succs(e).is_empty());
        let endless = order.reverse_postorder().iter().any(|&b| !ends(b));
        let irreducible = loops.loops().any(|(_, info)| info.irreducible);
        for b in f.blocks() {
            let frequency = freqs.block(b);
            assert!(frequency.is_finite() && (0.0..=1e9).contains(&frequency));
            assert_eq!(frequency > 0.0, order.is_reachable(b), "seed {seed}: {b}");
            let out: f64 = (0..f.succs(b).len()).map(|i| freqs.probability(b, i)).sum();
            assert!(
                f.succs(b).is_empty() || (out - 1.0).abs() < 1e-9,
                "seed {seed}: {b}"
            );
        }
        if endless || irreducible {
            continue;
        }
        with_loops += (loops.loop_count() > 0) as usize;
        for b in f.blocks().filter(|&b| order.is_reachable(b)) {
            let mut flow = if b == f.entry() { 1.0 } else { 0.0 };
            for p in f.blocks() {
                let edges = f.succs(p).iter().enumerate().filter(|(_, e)| e.block == b);
                flow += edges.map(|(i, _)| freqs.edge(p, i)).sum::<f64>();
            }
            let off = (flow - freqs.block(b)).abs() / freqs.block(b);
            assert!(
                off < 1e-9,
                "seed {seed}: {b} gets {flow}, has {}",
                freqs.block(b)
            );
        }
    }
    assert!(with_loops > 200, "{with_loops} with loops");
}

/// A chain of blocks with these edges, ended by exits where there are none.
fn graph(count: usize, edges: &[(usize, usize)]) -> Builder {
    let mut builder = Builder::new("graph");
    for _ in 0..count {
        builder.block();
    }
    for &(from, to) in edges {
        builder.edge(Block::new(from), Block::new(to), &[]);
    }
    for index in 0..count {
        match edges.iter().any(|&(from, _)| from == index) {
            true => builder.branch(Block::new(index), "bra"),
            false => builder.exit(Block::new(index), "exit"),
        };
    }
    builder
}

fn frequencies(f: &Function) -> Vec<f64> {
    let order = Order::compute(f);
    let freqs = Frequencies::compute(f, &order, &Loops::compute(f, &order));
    f.blocks().map(|b| freqs.block(b)).collect()
}

fn assert_close(found: &[f64], expected: &[f64]) {
    let close = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-6 * b.abs();
    let all = found.len() == expected.len() && found.iter().zip(expected).all(close);
    assert!(all, "{found:?} instead of {expected:?}");
}

#[test]
fn a_loop_runs_ten_times_wherever_its_exit_is() {
    let bottom = graph(4, &[(0, 1), (1, 2), (2, 1), (2, 3)]).finish();
    assert_close(&frequencies(&bottom), &[1.0, 10.0, 10.0, 1.0]);
    let top = graph(4, &[(0, 1), (1, 2), (1, 3), (2, 1)]).finish();
    assert_close(&frequencies(&top), &[1.0, 10.0, 9.0, 1.0]);
    let nest = graph(4, &[(0, 1), (1, 2), (2, 2), (2, 3), (3, 1)]).finish();
    assert_close(&frequencies(&nest), &[1.0, 10.0, 100.0, 10.0]);
}

#[test]
fn early_returns_are_rare_and_other_branches_even() {
    let guard = graph(4, &[(0, 1), (0, 2), (1, 3)]).finish();
    assert_close(&frequencies(&guard), &[1.0, 0.99, 0.01, 0.99]);
    let diamond = graph(5, &[(0, 1), (0, 2), (1, 3), (2, 3), (3, 4)]).finish();
    assert_close(&frequencies(&diamond), &[1.0, 0.5, 0.5, 1.0, 1.0]);
}

#[test]
fn supplied_frequencies_win_block_by_block() {
    let mut builder = graph(4, &[(0, 1), (1, 2), (2, 1), (2, 3)]);
    builder.frequency(Block::new(2), 1000.0);
    assert_close(&frequencies(&builder.finish()), &[1.0, 10.0, 1000.0, 1.0]);
}

#[test]
fn deep_nests_stop_at_the_cap() {
    let depth = 200;
    let mut edges = vec![(0, 1)];
    for level in 1..=depth {
        edges.push((level, level + 1));
    }
    for level in (1..=depth).rev() {
        let latch = 2 * depth + 1 - level;
        edges.extend([(latch, level), (latch, latch + 1)]);
    }
    let f = graph(2 * depth + 2, &edges).finish();
    let freqs = frequencies(&f);
    assert_eq!(freqs.iter().copied().fold(0.0, f64::max), 1e9);
    assert!(freqs.iter().all(|x| x.is_finite()));
}

#[test]
fn a_chain_of_a_million_blocks_needs_no_stack_and_little_time() {
    let count = 1_000_000;
    let mut builder = Builder::new("chain");
    let blocks: Vec<Block> = (0..count).map(|_| builder.block()).collect();
    let last = *blocks.last().unwrap();
    for pair in blocks.windows(2) {
        builder.edge(pair[0], pair[1], &[]);
        // Every tenth block may give up: the last block gets 100,000 predecessors.
        if pair[0].index() % 10 == 0 && pair[1] != last {
            builder.edge(pair[0], last, &[]);
        }
        builder.branch(pair[0], "bra");
    }
    builder.exit(last, "exit");
    let f = builder.finish();
    let order = Order::compute(&f);
    let doms = Dominators::compute(&f, &order);
    let loops = Loops::compute(&f, &order);
    assert_eq!(order.reverse_postorder(), blocks);
    assert_eq!(doms.idom(last), Some(blocks[0]));
    assert!(doms.dominates(blocks[5], blocks[count - 2]));
    assert_eq!(loops.loop_count(), 0);
}
