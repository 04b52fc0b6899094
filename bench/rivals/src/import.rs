//! Functions of PTX files as abstract functions.
//!
//! All classes become one; constraints, groups, ties and clobbers are dropped; values that
//! are written several times are put into SSA form; plain copies become other names of what
//! they copy; critical edges are split; dead code goes. What is left is the control flow and
//! the live ranges of real code in a form that every allocator takes.

use crate::function::{Block, Func, Inst, Kind, Val, without_dead_code};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use warpalloc::function::{Effect, Function, Kind as Sort};
use warpalloc::target::Target;

/// The functions of PTX files that have at least `least` instructions.
pub fn corpus(paths: &[PathBuf], least: usize) -> Result<Vec<Func>> {
    let target = Target::hardware(90)?;
    let mut all = Vec::new();
    for path in paths {
        let shown = path.display();
        let text = std::fs::read_to_string(path).with_context(|| format!("{shown}: not read"))?;
        let functions = warpalloc_ptx::module::lower_module(&text, &target)
            .with_context(|| format!("{shown}: not lowered"))?;
        for function in functions.iter().filter(|f| f.inst_count() >= least) {
            let mut f = import(function);
            let stem = path.file_stem().unwrap_or_default().to_string_lossy();
            f.name = format!("{stem}:{}", function.name());
            f.validate().with_context(|| f.name.clone())?;
            all.push(f);
        }
    }
    Ok(all)
}

/// The PTX files of `folder`, sorted by name.
pub fn ptx_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder)
        .with_context(|| format!("{}: no folder that can be read", folder.display()))?;
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "ptx") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// A block whose operands are still virtual registers.
#[derive(Clone, Default)]
struct Node {
    params: Vec<u32>,
    insts: Vec<Inst>,
    /// Which of them are plain copies; blocks made by splitting have fewer entries.
    copies: Vec<bool>,
    succs: Vec<usize>,
    /// Arguments along each edge.
    args: Vec<Vec<u32>>,
    is_edge: bool,
}

/// `function` as an abstract one.
fn import(function: &Function) -> Func {
    let nodes = order(split_edges(nodes(function)));
    let f = to_ssa(&nodes, function.vreg_count());
    without_dead_code(without_trivial_params(f))
}

fn nodes(function: &Function) -> Vec<Node> {
    let node = |block| {
        let info = function.block(block);
        let mut node = Node {
            params: info.params.iter().map(|v| v.as_u32()).collect(),
            ..Node::default()
        };
        for edge in function.succs(block) {
            node.succs.push(edge.block.as_u32() as usize);
            node.args
                .push(edge.args.iter().map(|v| v.as_u32()).collect());
        }
        for i in function.block_insts(block) {
            let info = function.inst(i);
            let (mut defs, mut uses) = (Vec::new(), Vec::new());
            for operand in function.operands(i) {
                let v = operand.vreg.as_u32();
                if operand.role.reads() && !uses.contains(&v) {
                    uses.push(v);
                }
                if operand.role.writes() {
                    defs.push(v);
                }
            }
            let kind = match (info.kind, info.effect) {
                (Sort::Branch, _) => Kind::Branch,
                (Sort::Return | Sort::Exit, _) => Kind::Ret,
                (_, Effect::Pure) => Kind::Op,
                (_, Effect::Read) => Kind::Load,
                (_, Effect::Write) => Kind::Store,
            };
            let is_copy = info.kind == Sort::Copy && defs.len() == 1 && uses.len() == 1;
            node.copies.push(is_copy);
            node.insts.push(Inst { kind, defs, uses });
        }
        node
    };
    function.blocks().map(node).collect()
}

/// Puts a block on every critical edge, and makes a jump of every other branch to a block with
/// several predecessors.
fn split_edges(mut nodes: Vec<Node>) -> Vec<Node> {
    let reachable = reachable(&nodes);
    let mut preds = vec![0; nodes.len()];
    for (node, _) in nodes.iter().zip(&reachable).filter(|(_, r)| **r) {
        node.succs.iter().for_each(|&s| preds[s] += 1);
    }
    for b in 0..nodes.len() {
        if !reachable[b] {
            continue;
        }
        if nodes[b].succs.len() > 1 {
            for e in 0..nodes[b].succs.len() {
                let to = nodes[b].succs[e];
                if preds[to] > 1 {
                    let jump = Inst {
                        kind: Kind::Jump,
                        defs: vec![],
                        uses: vec![],
                    };
                    let args = std::mem::take(&mut nodes[b].args[e]);
                    nodes[b].succs[e] = nodes.len();
                    nodes.push(Node {
                        insts: vec![jump],
                        succs: vec![to],
                        args: vec![args],
                        is_edge: true,
                        ..Node::default()
                    });
                }
            }
        } else if nodes[b].succs.len() == 1 && preds[nodes[b].succs[0]] > 1 {
            let last = nodes[b].insts.last_mut().expect("a terminator");
            let uses = std::mem::take(&mut last.uses);
            last.kind = Kind::Jump;
            if !uses.is_empty() {
                let at = nodes[b].insts.len() - 1;
                nodes[b].insts.insert(
                    at,
                    Inst {
                        kind: Kind::Store,
                        defs: vec![],
                        uses,
                    },
                );
            }
        }
    }
    nodes
}

fn reachable(nodes: &[Node]) -> Vec<bool> {
    let mut seen = vec![false; nodes.len()];
    let mut stack = vec![0];
    while let Some(b) = stack.pop() {
        if !std::mem::replace(&mut seen[b], true) {
            stack.extend(&nodes[b].succs);
        }
    }
    seen
}

/// Reachable blocks in reverse post-order. The successor with the least `first` is visited
/// first, and so comes last.
fn reverse_post_order(nodes: &[Node], first: impl Fn(usize) -> u32) -> Vec<usize> {
    let mut seen = vec![false; nodes.len()];
    let mut post = Vec::new();
    let sorted = |b: usize| {
        let mut succs = nodes[b].succs.clone();
        succs.sort_by_key(|&s| first(s));
        succs
    };
    let mut stack = vec![(0, sorted(0), 0)];
    seen[0] = true;
    while let Some((b, succs, next)) = stack.last_mut() {
        if let Some(&s) = succs.get(*next) {
            *next += 1;
            if !std::mem::replace(&mut seen[s], true) {
                stack.push((s, sorted(s), 0));
            }
        } else {
            post.push(*b);
            stack.pop();
        }
    }
    post.reverse();
    post
}

/// Numbers the blocks in reverse post-order, loops contiguous, and finds their loop depths.
fn order(nodes: Vec<Node>) -> Vec<(Node, u32)> {
    let depth = loop_depths(&nodes, &reverse_post_order(&nodes, |_| 0));
    let rpo = reverse_post_order(&nodes, |b| depth[b]);
    let mut number = vec![usize::MAX; nodes.len()];
    rpo.iter()
        .enumerate()
        .for_each(|(new, &old)| number[old] = new);
    let renumbered = rpo.iter().map(|&old| {
        let mut node = nodes[old].clone();
        node.succs.iter_mut().for_each(|s| *s = number[*s]);
        (node, depth[old])
    });
    renumbered.collect()
}

/// How many natural loops each block is in.
fn loop_depths(nodes: &[Node], rpo: &[usize]) -> Vec<u32> {
    let mut position = vec![usize::MAX; nodes.len()];
    rpo.iter().enumerate().for_each(|(at, &b)| position[b] = at);
    let mut preds = vec![Vec::new(); rpo.len()];
    for (at, &b) in rpo.iter().enumerate() {
        nodes[b]
            .succs
            .iter()
            .for_each(|&s| preds[position[s]].push(at));
    }
    let mut idom = vec![usize::MAX; rpo.len()];
    idom[0] = 0;
    let mut again = true;
    while again {
        again = false;
        for at in 1..rpo.len() {
            let known = preds[at].iter().copied().filter(|&p| idom[p] != usize::MAX);
            let meet = known.reduce(|mut x, mut y| {
                while x != y {
                    if x > y { x = idom[x] } else { y = idom[y] }
                }
                x
            });
            let meet = meet.unwrap_or(0);
            if idom[at] != meet {
                idom[at] = meet;
                again = true;
            }
        }
    }
    let dominates = |a: usize, mut b: usize| {
        while b > a {
            b = idom[b];
        }
        a == b
    };
    let mut depth = vec![0; nodes.len()];
    for header in 0..rpo.len() {
        let back: Vec<usize> = preds[header]
            .iter()
            .copied()
            .filter(|&p| dominates(header, p))
            .collect();
        if back.is_empty() {
            continue;
        }
        let mut inside = vec![false; rpo.len()];
        inside[header] = true;
        let mut stack = back;
        while let Some(b) = stack.pop() {
            if !std::mem::replace(&mut inside[b], true) {
                stack.extend(&preds[b]);
            }
        }
        for (at, _) in inside.iter().enumerate().filter(|(_, inside)| **inside) {
            depth[rpo[at]] += 1;
        }
    }
    depth
}

fn to_ssa(nodes: &[(Node, u32)], vregs: usize) -> Func {
    let mut preds = vec![Vec::new(); nodes.len()];
    for (b, (node, _)) in nodes.iter().enumerate() {
        node.succs
            .iter()
            .enumerate()
            .for_each(|(e, &s)| preds[s].push((b, e)));
    }
    let mut writes = vec![0; vregs];
    for (node, _) in nodes {
        let defs = node.insts.iter().flat_map(|i| &i.defs);
        defs.chain(&node.params)
            .for_each(|&v| writes[v as usize] += 1);
    }
    let live_in = live_vregs(nodes, vregs);
    let mut f = Func::default();
    let mut fresh = || {
        f.vals += 1;
        f.vals - 1
    };
    // The value of each vreg that is written once; the others are followed block by block.
    let mut once: Vec<Option<Val>> = vec![None; vregs];
    let mut out: Vec<Vec<(u32, Val)>> = Vec::new();
    let mut blocks = Vec::new();
    let mut joined: Vec<Vec<u32>> = Vec::new();
    let mut insts = Vec::new();
    for (b, (node, depth)) in nodes.iter().enumerate() {
        let mut now: Vec<(u32, Val)> = Vec::new();
        let mut block = Block {
            depth: *depth,
            is_edge: node.is_edge,
            ..Block::default()
        };
        let mut joins = Vec::new();
        if preds[b].len() > 1 {
            for &p in &node.params {
                let v = fresh();
                block.params.push(v);
                set(&mut now, &mut once, &writes, p, v);
            }
            for v in 0..vregs as u32 {
                let alive = live_in[b][v as usize / 64] >> (v % 64) & 1 == 1;
                if alive && writes[v as usize] > 1 && !node.params.contains(&v) {
                    let value = fresh();
                    block.params.push(value);
                    joins.push(v);
                    now.push((v, value));
                }
            }
        } else if let [(p, e)] = preds[b][..] {
            now = out[p].clone();
            let args = nodes[p].0.args[e].iter().map(|&a| get(&now, &once, a));
            let args: Vec<Val> = args.collect();
            for (&p, v) in node.params.iter().zip(args) {
                set(&mut now, &mut once, &writes, p, v);
            }
        }
        joined.push(joins);
        let start = insts.len() as u32;
        for (at, inst) in node.insts.iter().enumerate() {
            let uses = inst.uses.iter().map(|&v| get(&now, &once, v));
            let mut uses: Vec<Val> = uses.collect();
            if node.copies.get(at) == Some(&true) {
                set(&mut now, &mut once, &writes, inst.defs[0], uses[0]);
                continue;
            }
            let mut n = 0;
            while n < uses.len() {
                match uses[..n].contains(&uses[n]) {
                    true => _ = uses.remove(n),
                    false => n += 1,
                }
            }
            let mut defs = Vec::new();
            for &v in &inst.defs {
                let value = fresh();
                defs.push(value);
                set(&mut now, &mut once, &writes, v, value);
            }
            insts.push(Inst {
                kind: inst.kind,
                defs,
                uses,
            });
        }
        block.insts = start..insts.len() as u32;
        block.succs = node.succs.iter().map(|&s| s as u32).collect();
        blocks.push(block);
        out.push(now);
    }
    for (b, (node, _)) in nodes.iter().enumerate() {
        if let [to] = node.succs[..]
            && preds[to].len() > 1
        {
            let given = node.args[0].iter().chain(&joined[to]);
            blocks[b].args = given.map(|&v| get(&out[b], &once, v)).collect();
        }
    }
    f.blocks = blocks;
    f.insts = insts;
    f
}

fn set(now: &mut Vec<(u32, Val)>, once: &mut [Option<Val>], writes: &[u32], v: u32, to: Val) {
    if writes[v as usize] == 1 {
        once[v as usize] = Some(to);
        return;
    }
    match now.iter_mut().find(|(of, _)| *of == v) {
        Some((_, value)) => *value = to,
        None => now.push((v, to)),
    }
}

fn get(now: &[(u32, Val)], once: &[Option<Val>], v: u32) -> Val {
    let changing = now.iter().find(|(of, _)| *of == v).map(|&(_, value)| value);
    changing
        .or(once[v as usize])
        .expect("lowering defines every register before it is read")
}

fn live_vregs(nodes: &[(Node, u32)], vregs: usize) -> Vec<Vec<u64>> {
    let mut live = vec![vec![0u64; vregs.div_ceil(64)]; nodes.len()];
    let mut again = true;
    while again {
        again = false;
        for b in (0..nodes.len()).rev() {
            let node = &nodes[b].0;
            let mut set = vec![0u64; vregs.div_ceil(64)];
            for (&s, args) in node.succs.iter().zip(&node.args) {
                set.iter_mut()
                    .zip(&live[s])
                    .for_each(|(to, from)| *to |= from);
                args.iter()
                    .for_each(|&v| set[v as usize / 64] |= 1 << (v % 64));
            }
            for inst in node.insts.iter().rev() {
                inst.defs
                    .iter()
                    .for_each(|&v| set[v as usize / 64] &= !(1 << (v % 64)));
                inst.uses
                    .iter()
                    .for_each(|&v| set[v as usize / 64] |= 1 << (v % 64));
            }
            node.params
                .iter()
                .for_each(|&v| set[v as usize / 64] &= !(1 << (v % 64)));
            if set != live[b] {
                live[b] = set;
                again = true;
            }
        }
    }
    live
}

/// Replaces parameters whose arguments are all one value or the parameter itself.
fn without_trivial_params(mut f: Func) -> Func {
    f.link();
    let mut same: Vec<Val> = (0..f.vals).collect();
    fn find(same: &[Val], mut v: Val) -> Val {
        while same[v as usize] != v {
            v = same[v as usize];
        }
        v
    }
    let mut again = true;
    while again {
        again = false;
        for block in &f.blocks {
            for (n, &param) in block.params.iter().enumerate() {
                if find(&same, param) != param {
                    continue;
                }
                let given = block
                    .preds
                    .iter()
                    .map(|&p| find(&same, f.blocks[p as usize].args[n]));
                let mut given: Vec<Val> = given.filter(|&v| v != param).collect();
                given.sort_unstable();
                given.dedup();
                if let [one] = given[..] {
                    same[param as usize] = one;
                    again = true;
                }
            }
        }
    }
    for b in 0..f.blocks.len() {
        let keep: Vec<bool> = f.blocks[b]
            .params
            .iter()
            .map(|&p| same[p as usize] == p)
            .collect();
        for p in f.blocks[b].preds.clone() {
            let mut kept = keep.iter();
            f.blocks[p as usize]
                .args
                .retain(|_| *kept.next().expect("one each"));
        }
        let mut kept = keep.iter();
        f.blocks[b]
            .params
            .retain(|_| *kept.next().expect("one each"));
    }
    for block in &mut f.blocks {
        block.args.iter_mut().for_each(|v| *v = find(&same, *v));
    }
    for inst in &mut f.insts {
        inst.uses.iter_mut().for_each(|v| *v = find(&same, *v));
        let mut n = 0;
        while n < inst.uses.len() {
            match inst.uses[..n].contains(&inst.uses[n]) {
                true => _ = inst.uses.remove(n),
                false => n += 1,
            }
        }
    }
    f
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::liveness::Liveness;

    /// The loop carries two registers and has a guarded exit from its middle.
    #[test]
    fn a_loop_of_ptx_becomes_ssa_with_parameters() {
        let text = "
            .version 8.0
            .target sm_90
            .address_size 64
            .visible .entry sum(.param .u32 n, .param .u64 out) {
                .reg .pred %p<3>;
                .reg .b32 %r<6>;
                .reg .b64 %rd<3>;
                ld.param.u32 %r1, [n];
                ld.param.u64 %rd1, [out];
                mov.u32 %r2, 0;
                mov.u32 %r3, 0;
            L:
                add.s32 %r3, %r3, %r2;
                setp.gt.s32 %p1, %r3, 1000;
                @%p1 bra E;
                add.s32 %r2, %r2, 1;
                setp.lt.s32 %p2, %r2, %r1;
                @%p2 bra L;
            E:
                st.global.u32 [%rd1], %r3;
                ret;
            }";
        let target = Target::hardware(90).expect("sm_90 is in the table");
        let functions = warpalloc_ptx::module::lower_module(text, &target).expect("valid PTX");
        let f = import(&functions[0]);
        f.validate().expect("a valid function");
        let header = f.blocks.iter().find(|b| b.params.len() == 2);
        assert_eq!(header.map(|b| b.depth), Some(1), "{f:?}");
        // %r1, %rd1 and the two carried registers, with a predicate beside them.
        assert_eq!(Liveness::of(&f).max_live(&f), 5, "{f:?}");
    }

    /// `%r2` is never written. SSA form relies on a definition of it.
    #[test]
    fn lowering_defines_what_is_read_before_it_is_written() {
        let text = "
            .version 8.0
            .target sm_90
            .address_size 64
            .visible .entry undefined(.param .u64 out) {
                .reg .b32 %r<3>;
                .reg .b64 %rd<2>;
                ld.param.u64 %rd1, [out];
                add.s32 %r1, %r2, 1;
                st.global.u32 [%rd1], %r1;
                ret;
            }";
        let target = Target::hardware(90).expect("sm_90 is in the table");
        let functions = warpalloc_ptx::module::lower_module(text, &target).expect("valid PTX");
        let f = import(&functions[0]);
        f.validate().expect("a valid function");
        assert_eq!(f.insts[0].kind, Kind::Op);
        assert_eq!(f.insts[0].uses.len(), 0);
    }
}
