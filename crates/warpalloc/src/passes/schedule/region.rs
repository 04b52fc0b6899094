//! A region: instructions of one block that may change places, as a graph.
//!
//! Each definition of a virtual register makes a *version* of it. Readers of a version
//! stay after its definition and before the next one, so versions of one virtual register
//! never overlap, and which of them are live depends only on the *set* of instructions
//! that have run, not on their order. That is what makes searching over sets possible.

use crate::analysis::LiveSet;
use crate::function::{AliasClass, Effect, Function, Inst, Role, VReg};
use crate::target::{MAX_FILES, Target};
use cranelift_entity::{EntityRef, PrimaryMap, SecondaryMap, entity_impl};
use smallvec::SmallVec;

/// An instruction of a region, numbered in source order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Node(u32);
entity_impl!(Node, "node");

/// What one definition, or the start of the region, gives a virtual register.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Version(u32);
entity_impl!(Version, "version");

/// One number per register file; none are in use of files that the target lacks.
pub(super) type Units = [i32; MAX_FILES];

/// How many units `units` lacks of `budget`, over all files.
pub(super) fn excess(units: &Units, budget: &Units) -> i32 {
    let over = |file: usize| (units[file] - budget[file]).max(0);
    (0..MAX_FILES).map(over).sum()
}

/// Units each file of `target` has.
pub(super) fn budget(target: &Target) -> Units {
    let mut budget = Units::default();
    for (file, info) in target.files() {
        budget[file.index()] = info.capacity as i32;
    }
    budget
}

/// A version.
#[derive(Clone, Debug)]
pub(super) struct VersionInfo {
    /// Position of its file.
    pub file: usize,
    pub width: i32,
    /// What defines it, unless it is live into the region.
    pub writer: Option<Node>,
    /// Its readers, once each.
    pub readers: SmallVec<[Node; 4]>,
    /// It is read after the region.
    pub leaves: bool,
}

/// An instruction.
#[derive(Clone, Debug)]
pub(super) struct NodeInfo {
    pub inst: Inst,
    pub reads: SmallVec<[Version; 4]>,
    pub writes: SmallVec<[Version; 2]>,
    /// Units per file that results take while inputs are still read.
    pub early: Option<Units>,
    /// What must run before it; may name a node twice.
    pub preds: SmallVec<[Node; 4]>,
    pub succs: SmallVec<[Node; 4]>,
}

/// Reads of one class that each of several writes is put behind. Where there are more, the first
/// of the writes stands for them, so that the number of edges stays linear, and the other
/// writes follow it even if they touch other state.
const MOST_READS: usize = 32;

/// The readers that a version which leaves the region counts behind it.
const LEAVES: u32 = 1 << 31;

/// Instructions that may change places.
pub(super) struct Region {
    pub nodes: PrimaryMap<Node, NodeInfo>,
    pub versions: PrimaryMap<Version, VersionInfo>,
    /// Readers of each version, with those behind the region: where none is left, it is dead.
    pub unread: PrimaryMap<Version, u32>,
    /// Units in use before the first instruction.
    pub start: Units,
    /// Units each file has.
    pub budget: Units,
}

/// The version of each virtual register that an instruction reads, for one region after
/// the other.
pub(super) struct Scratch {
    current: SecondaryMap<VReg, Option<Version>>,
    touched: Vec<VReg>,
}

impl Scratch {
    pub fn new(function: &Function) -> Scratch {
        let mut current = SecondaryMap::new();
        current.resize(function.vreg_count());
        Scratch {
            current,
            touched: Vec::new(),
        }
    }
}

impl Region {
    /// The region of `insts`, before which the values of `live` are live. `changes` tells of
    /// those that begin or end within, from the last instruction to the first, whether they
    /// were live until then. No unit is taken yet by values that are live through it.
    pub fn new(
        function: &Function,
        target: &Target,
        insts: impl ExactSizeIterator<Item = Inst>,
        (live, changes): (&LiveSet, &[(VReg, bool)]),
        scratch: &mut Scratch,
    ) -> Region {
        let region = Region {
            nodes: PrimaryMap::with_capacity(insts.len()),
            versions: PrimaryMap::with_capacity(2 * insts.len()),
            unread: PrimaryMap::new(),
            start: Units::default(),
            budget: budget(target),
        };
        let mut build = Build {
            function,
            target,
            region,
            scratch,
            accesses: SmallVec::new(),
        };
        insts.for_each(|inst| build.instruction(inst));
        build.finish(live, changes)
    }

    /// How many units `units` lacks, over all files.
    pub fn excess(&self, units: &Units) -> i32 {
        excess(units, &self.budget)
    }
}

struct Build<'a> {
    function: &'a Function,
    target: &'a Target,
    region: Region,
    scratch: &'a mut Scratch,
    /// By alias class.
    accesses: SmallVec<[(AliasClass, Accesses); 2]>,
}

/// The accesses to the state of one alias class that later ones may have to follow.
#[derive(Default)]
struct Accesses {
    last_write: Option<Node>,
    reads_since: Vec<Node>,
}

impl Build<'_> {
    fn instruction(&mut self, inst: Inst) {
        let function = self.function;
        let node = self.region.nodes.push(NodeInfo {
            inst,
            reads: SmallVec::new(),
            writes: SmallVec::new(),
            early: None,
            preds: SmallVec::new(),
            succs: SmallVec::new(),
        });
        for operand in function.operands(inst).iter().filter(|o| o.role.reads()) {
            self.read(node, operand.vreg);
        }
        for operand in function.operands(inst).iter().filter(|o| o.role.writes()) {
            self.write(node, operand.vreg, operand.role);
        }
        self.order_effect(node, inst);
    }

    fn read(&mut self, node: Node, vreg: VReg) {
        let version = match self.scratch.current[vreg] {
            Some(version) => version,
            None => self.new_version(vreg, None),
        };
        let info = &mut self.region.versions[version];
        if info.readers.last() == Some(&node) {
            return;
        }
        info.readers.push(node);
        let writer = info.writer;
        self.region.nodes[node].reads.push(version);
        if let Some(writer) = writer {
            self.precede(writer, node);
        }
    }

    fn write(&mut self, node: Node, vreg: VReg, role: Role) {
        if let Some(old) = self.scratch.current[vreg] {
            let VersionInfo {
                readers, writer, ..
            } = self.region.versions[old].clone();
            for first in readers.into_iter().chain(writer) {
                self.precede(first, node);
            }
        }
        let version = self.new_version(vreg, Some(node));
        let VersionInfo { file, width, .. } = self.region.versions[version];
        let info = &mut self.region.nodes[node];
        info.writes.push(version);
        if role == Role::EarlyDef {
            info.early.get_or_insert_default()[file] += width;
        }
    }

    fn new_version(&mut self, vreg: VReg, writer: Option<Node>) -> Version {
        let class = self.target.class(self.function.vreg(vreg).class);
        let version = self.region.versions.push(VersionInfo {
            file: class.file.index(),
            width: class.width as i32,
            writer,
            readers: SmallVec::new(),
            leaves: false,
        });
        if self.scratch.current[vreg].replace(version).is_none() {
            self.scratch.touched.push(vreg);
        }
        version
    }

    /// A write stays where it is among reads and writes of state that it may alias. Every
    /// access to a value that the hardware fills in the background reads any state: the
    /// instruction that waits for it need not name it.
    fn order_effect(&mut self, node: Node, inst: Inst) {
        let effect = self.function.ordering_effect(inst);
        if effect == Effect::Pure {
            return;
        }
        let own = self.function.alias(inst);
        let writes = effect == Effect::Write;
        let mut before: SmallVec<[Node; 8]> = SmallVec::new();
        for (class, accesses) in &mut self.accesses {
            if self.function.may_alias(own, *class) {
                before.extend(accesses.last_write);
                if writes {
                    before.extend_from_slice(&accesses.reads_since);
                    if accesses.reads_since.len() > MOST_READS {
                        accesses.reads_since.clear();
                        accesses.reads_since.push(node);
                    }
                }
            }
        }
        before.sort_unstable();
        for first in before {
            self.precede(first, node);
        }
        // A write of any state is before all that comes after it, and behind all before it.
        if writes && own == AliasClass::ANY {
            self.accesses.clear();
        }
        let place = match self.accesses.iter().position(|&(class, _)| class == own) {
            Some(place) => place,
            None => {
                self.accesses.push((own, Accesses::default()));
                self.accesses.len() - 1
            }
        };
        let accesses = &mut self.accesses[place].1;
        if writes {
            accesses.last_write = Some(node);
            accesses.reads_since.clear();
        } else {
            accesses.reads_since.push(node);
        }
    }

    fn precede(&mut self, first: Node, second: Node) {
        super::count_step();
        if first != second {
            self.region.nodes[first].succs.push(second);
            self.region.nodes[second].preds.push(first);
        }
    }

    fn finish(self, live: &LiveSet, changes: &[(VReg, bool)]) -> Region {
        let mut region = self.region;
        let current = &mut self.scratch.current;
        let before = self.scratch.touched.iter().map(|&v| (v, live.contains(v)));
        // The change furthest down says what is live after the region.
        for (vreg, leaves) in before.chain(changes.iter().rev().copied()) {
            if let Some(version) = current[vreg] {
                region.versions[version].leaves = leaves;
            }
        }
        for vreg in self.scratch.touched.drain(..) {
            current[vreg] = None;
        }
        let readers = |v: &VersionInfo| v.readers.len() as u32 + if v.leaves { LEAVES } else { 0 };
        region.unread = region.versions.values().map(readers).collect();
        region
    }
}

/// Runs instructions and watches the pressure.
pub(super) struct Meter<'a> {
    region: &'a Region,
    pub units: Units,
    /// Readers of each version that have not run.
    unread: PrimaryMap<Version, u32>,
}

impl<'a> Meter<'a> {
    /// A meter at the start of `region`.
    pub fn new(region: &'a Region) -> Meter<'a> {
        Meter {
            region,
            units: region.start,
            unread: region.unread.clone(),
        }
    }

    /// Runs `node`; the excess at the worse of the moments before and after it.
    pub fn run(&mut self, node: Node) -> i32 {
        let Region {
            nodes, versions, ..
        } = self.region;
        let info = &nodes[node];
        let mut moment = self.units;
        if let Some(early) = &info.early {
            add(&mut moment, early);
        }
        let before = self.region.excess(&moment);
        for &version in &info.reads {
            let unread = &mut self.unread[version];
            *unread -= 1;
            if *unread == 0 {
                let v = &versions[version];
                self.units[v.file] -= v.width;
            }
        }
        let mut after = self.units;
        for &version in &info.writes {
            let v = &versions[version];
            after[v.file] += v.width;
            if self.unread[version] > 0 {
                self.units[v.file] += v.width;
            }
        }
        before.max(self.region.excess(&after))
    }
}

/// Adds units file by file.
fn add(units: &mut Units, more: &Units) {
    units.iter_mut().zip(more).for_each(|(u, m)| *u += m);
}

/// How good an order is; smaller is better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cost {
    /// Greatest number of units that are lacking at any moment.
    pub excess: i32,
    /// Instructions at which any are.
    crowded: u32,
    /// How far instructions are from their places, in all.
    distance: u64,
}

impl Cost {
    /// Adds an instruction with this excess, so far from its place.
    pub fn count(&mut self, excess: i32, distance: usize) {
        self.excess = self.excess.max(excess);
        self.crowded += (excess > 0) as u32;
        self.distance += distance as u64;
    }

    /// The cost of running `region` in `order`, where it is below `limit`; the rest of the
    /// order is not looked at once it is not.
    pub fn below(region: &Region, order: &[Node], limit: Cost) -> Option<Cost> {
        let mut meter = Meter::new(region);
        let mut cost = Cost::default();
        for (place, &node) in order.iter().enumerate() {
            let excess = meter.run(node);
            if excess > limit.excess {
                return None;
            }
            cost.count(excess, place.abs_diff(node.index()));
        }
        (cost < limit).then_some(cost)
    }
}
