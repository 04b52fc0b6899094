//! Webs: independent live ranges of one name.
//!
//! Compilers and people reuse a name for unrelated values. Two writes of a virtual
//! register belong together only if some read may see either, for then both must be in the
//! same place; the classes of that relation are its *webs* (G. Chaitin et al., "Register
//! Allocation via Coloring", 1981), and each can have a register, or a spill, of its own.
//! An operand that is read and written in place ties the old value to the new one.
//!
//! Sets of reaching definitions per block would be quadratic. Instead every write gets a
//! node, and so does every value live into a block, standing for the writes that reach it;
//! an edge joins what leaves its source with what its target expects. One forward pass
//! over the code with a union-find does it, linear in the operands plus the live-in sets.
//! Only live values have such nodes, so writes that merely meet, unread, stay apart.
//!
//! The first web of a register keeps its number, further ones get new numbers at the end;
//! a function in which nothing splits is renamed to itself.

use super::{Code, Liveness};
use crate::function::{Block, Function, Inst, Renaming, Role, VReg};
use cranelift_entity::packed_option::PackedOption;
use cranelift_entity::{EntityRef, PrimaryMap, SecondaryMap, entity_impl};

/// The webs of a function.
#[derive(Clone, Debug)]
pub struct Webs {
    /// The web of every operand, parameter and argument.
    pub names: Renaming,
    /// The virtual register each web is part of.
    pub original: PrimaryMap<VReg, VReg>,
}

impl Webs {
    /// Finds the webs of `function`.
    pub fn compute(function: &Function, liveness: &Liveness) -> Webs {
        let mut tracer = Tracer::new(function, liveness);
        for block in function.blocks() {
            tracer.trace(block);
        }
        tracer.finish()
    }

    /// The web of each operand of `inst`.
    pub fn operands(&self, function: &Function, inst: Inst) -> &[VReg] {
        &self.names.operands[function.operand_range(inst)]
    }

    /// The function with every web as a virtual register of its own.
    ///
    /// Instructions and operands keep their numbers, so that an allocation of the result
    /// is an allocation of `function`.
    pub fn split(&self, function: &Function) -> Function {
        function.renamed(&self.names, &self.original)
    }
}

/// A write, or what arrives at a block: one member of a web.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Node(u32);
entity_impl!(Node);

/// Follows values through the code, joining the nodes that must be one web.
struct Tracer<'a> {
    function: &'a Function,
    liveness: &'a Liveness,
    /// The node of the first value live into each block.
    arriving: Vec<usize>,
    /// Union-find over the nodes; the first ones stand for the live-in sets.
    parents: PrimaryMap<Node, Node>,
    /// The node each virtual register holds at the point at hand.
    current: SecondaryMap<VReg, PackedOption<Node>>,
    operands: Vec<Node>,
    params: Vec<Node>,
    args: Vec<Node>,
}

impl<'a> Tracer<'a> {
    fn new(function: &'a Function, liveness: &'a Liveness) -> Tracer<'a> {
        let mut current = SecondaryMap::new();
        current.resize(function.vreg_count());
        let mut nodes = 0;
        let arriving = function.blocks().map(|block| {
            let first = nodes;
            nodes += liveness.live_in(block).len();
            first
        });
        Tracer {
            function,
            liveness,
            arriving: arriving.collect(),
            parents: (0..nodes).map(Node::new).collect(),
            current,
            operands: Vec::with_capacity(function.operand_count()),
            params: Vec::new(),
            args: Vec::new(),
        }
    }

    /// Follows the values through `block` and into its successors.
    fn trace(&mut self, block: Block) {
        for (vreg, arriving) in self.arriving(block) {
            self.current[vreg] = arriving.into();
        }
        for param in self.function.parameters(block) {
            let node = self.write(param);
            self.params.push(node);
        }
        for inst in self.function.block_insts(block) {
            self.trace_inst(inst);
        }
        for arg in self.function.arguments(block) {
            let node = self.read(arg);
            self.args.push(node);
        }
        for succ in self.function.succs(block) {
            for (vreg, arriving) in self.arriving(succ.block) {
                let leaving = self.read(vreg);
                self.join(arriving, leaving);
            }
        }
    }

    fn trace_inst(&mut self, inst: Inst) {
        // All reads come before all writes, whatever the order of the operands.
        let first = self.operands.len();
        for operand in self.function.operands(inst) {
            let node = match operand.role.reads() {
                true => self.read(operand.vreg),
                false => self.fresh(),
            };
            self.operands.push(node);
        }
        let written = self.function.operands(inst).iter().enumerate();
        for (index, operand) in written.filter(|(_, o)| o.role != Role::Use) {
            self.current[operand.vreg] = self.operands[first + index].into();
        }
    }

    /// The values live into `block` with the nodes that stand for them there.
    fn arriving(&self, block: Block) -> impl Iterator<Item = (VReg, Node)> + use<'a> {
        let nodes = (self.arriving[block.index()]..).map(Node::new);
        self.liveness.live_in(block).zip(nodes)
    }

    /// The node `vreg` holds. It holds one wherever it is read: either it was written
    /// before in the same block, or it is live in.
    fn read(&mut self, vreg: VReg) -> Node {
        match self.current[vreg].expand() {
            Some(node) => node,
            None => self.write(vreg),
        }
    }

    fn write(&mut self, vreg: VReg) -> Node {
        let node = self.fresh();
        self.current[vreg] = node.into();
        node
    }

    fn fresh(&mut self) -> Node {
        self.parents.push(self.parents.next_key())
    }

    /// Climbs to the representative, halving the path on the way.
    fn find(&mut self, mut node: Node) -> Node {
        while self.parents[node] != node {
            let up = self.parents[node];
            self.parents[node] = self.parents[up];
            node = up;
        }
        node
    }

    fn join(&mut self, a: Node, b: Node) {
        let (a, b) = (self.find(a), self.find(b));
        // The lower number leads: which of the two is arbitrary, but always the same.
        self.parents[a.max(b)] = a.min(b);
    }

    /// Numbers the webs in code order.
    fn finish(mut self) -> Webs {
        let function = self.function;
        let mut namer = Namer {
            names: SecondaryMap::new(),
            original: function.vregs().collect(),
            kept: SecondaryMap::new(),
        };
        let mut names = Renaming::default();
        let (operands, params, args) = (
            std::mem::take(&mut self.operands),
            std::mem::take(&mut self.params),
            std::mem::take(&mut self.args),
        );
        let (mut params, mut args) = (params.into_iter(), args.into_iter());
        for block in function.blocks() {
            for (vreg, node) in function.parameters(block).zip(&mut params) {
                names.params.push(namer.name(vreg, self.find(node)));
            }
            for inst in function.block_insts(block) {
                let nodes = &operands[function.operand_range(inst)];
                for (operand, &node) in function.operands(inst).iter().zip(nodes) {
                    let name = namer.name(operand.vreg, self.find(node));
                    names.operands.push(name);
                }
            }
            for (vreg, node) in function.arguments(block).zip(&mut args) {
                names.args.push(namer.name(vreg, self.find(node)));
            }
        }
        let original = namer.original;
        Webs { names, original }
    }
}

/// Gives each web a virtual register.
struct Namer {
    names: SecondaryMap<Node, PackedOption<VReg>>,
    original: PrimaryMap<VReg, VReg>,
    /// Registers whose number some web has kept.
    kept: SecondaryMap<VReg, bool>,
}

impl Namer {
    fn name(&mut self, vreg: VReg, web: Node) -> VReg {
        if let Some(name) = self.names[web].expand() {
            return name;
        }
        let name = match std::mem::replace(&mut self.kept[vreg], true) {
            true => self.original.push(vreg),
            false => vreg,
        };
        self.names[web] = name.into();
        name
    }
}
