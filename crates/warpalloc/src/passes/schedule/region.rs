//! A region: instructions of one block that may change places, as a graph.
//!
//! Each definition of a virtual register makes a *version* of it. Readers of a version
//! stay after its definition and before the next one, so versions of one virtual register
//! never overlap, and which of them are live depends only on the *set* of instructions
//! that have run, not on their order. That is what makes searching over sets possible.

use crate::analysis::LiveSet;
use crate::function::{AliasClass, Effect, Function, Inst, Role, VReg};
use crate::target::{File, Target};
use cranelift_entity::{EntityRef, PrimaryMap, SecondaryMap, entity_impl};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// An instruction of a region, numbered in source order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Node(u32);
entity_impl!(Node, "node");

/// What one definition, or the start of the region, gives a virtual register.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Version(u32);
entity_impl!(Version, "version");

/// One number per register file.
pub(super) type Units = SmallVec<[i32; 4]>;

/// A version.
#[derive(Clone, Debug)]
pub(super) struct VersionInfo {
    pub file: File,
    pub width: i32,
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

/// Instructions that may change places.
pub(super) struct Region {
    pub nodes: PrimaryMap<Node, NodeInfo>,
    pub versions: PrimaryMap<Version, VersionInfo>,
    /// Units in use before the first instruction.
    pub start: Units,
    /// Units each file has.
    pub budget: Units,
}

/// Tables that serve one region after the other.
pub(super) struct Scratch {
    current: SecondaryMap<VReg, Option<Version>>,
    writer: SecondaryMap<VReg, Option<Node>>,
    touched: Vec<VReg>,
}

impl Scratch {
    pub fn new(function: &Function) -> Scratch {
        Scratch {
            current: SecondaryMap::with_capacity(function.vreg_count()),
            writer: SecondaryMap::with_capacity(function.vreg_count()),
            touched: Vec::new(),
        }
    }
}

impl Region {
    /// The region of `insts`, after which the values in `live_after` are read. Nothing is
    /// known yet about values that are live through it.
    pub fn new(
        function: &Function,
        target: &Target,
        insts: impl Iterator<Item = Inst>,
        live_after: &LiveSet,
        scratch: &mut Scratch,
    ) -> Region {
        let region = Region {
            nodes: PrimaryMap::new(),
            versions: PrimaryMap::new(),
            start: SmallVec::from_elem(0, target.files().len()),
            budget: target.files().map(|(_, f)| f.capacity as i32).collect(),
        };
        let mut build = Build {
            function,
            target,
            region,
            scratch,
            accesses: FxHashMap::default(),
        };
        insts.for_each(|inst| build.instruction(inst));
        build.finish(live_after)
    }

    /// How many units `units` lacks, over all files.
    pub fn excess(&self, units: &[i32]) -> i32 {
        let over = units.iter().zip(&self.budget).map(|(u, b)| (u - b).max(0));
        over.sum()
    }
}

struct Build<'a> {
    function: &'a Function,
    target: &'a Target,
    region: Region,
    scratch: &'a mut Scratch,
    /// By alias class.
    accesses: FxHashMap<AliasClass, Accesses>,
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
            None => self.new_version(vreg),
        };
        let readers = &mut self.region.versions[version].readers;
        if readers.last() == Some(&node) {
            return;
        }
        readers.push(node);
        self.region.nodes[node].reads.push(version);
        if let Some(writer) = self.scratch.writer[vreg] {
            self.precede(writer, node);
        }
    }

    fn write(&mut self, node: Node, vreg: VReg, role: Role) {
        if let Some(old) = self.scratch.current[vreg] {
            for reader in self.region.versions[old].readers.clone() {
                self.precede(reader, node);
            }
        }
        if let Some(writer) = self.scratch.writer[vreg].replace(node) {
            self.precede(writer, node);
        }
        let version = self.new_version(vreg);
        let files = self.region.budget.len();
        let VersionInfo { file, width, .. } = self.region.versions[version];
        let info = &mut self.region.nodes[node];
        info.writes.push(version);
        if role == Role::EarlyDef {
            let early = info
                .early
                .get_or_insert_with(|| SmallVec::from_elem(0, files));
            early[file.index()] += width;
        }
    }

    fn new_version(&mut self, vreg: VReg) -> Version {
        let class = self.target.class(self.function.vreg(vreg).class);
        let version = self.region.versions.push(VersionInfo {
            file: class.file,
            width: class.width as i32,
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
        for (&class, accesses) in &mut self.accesses {
            if self.function.may_alias(own, class) {
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
        let accesses = self.accesses.entry(own).or_default();
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

    fn finish(self, live_after: &LiveSet) -> Region {
        let mut region = self.region;
        for vreg in self.scratch.touched.drain(..) {
            self.scratch.writer[vreg] = None;
            if let Some(version) = self.scratch.current[vreg].take() {
                region.versions[version].leaves = live_after.contains(vreg);
            }
        }
        region
    }
}

/// Runs instructions and watches the pressure.
#[derive(Clone)]
pub(super) struct Meter<'a> {
    pub region: &'a Region,
    pub units: Units,
    /// Readers of each version that have not run.
    pub unread: SecondaryMap<Version, u32>,
}

impl<'a> Meter<'a> {
    /// A meter at the start of `region`.
    pub fn new(region: &'a Region) -> Meter<'a> {
        let mut unread = SecondaryMap::with_capacity(region.versions.len());
        for (version, info) in region.versions.iter() {
            unread[version] = info.readers.len() as u32;
        }
        Meter {
            region,
            units: region.start.clone(),
            unread,
        }
    }

    /// The excess at the worse of the moments before and after `node`, and the units in
    /// use once it has run.
    pub fn effect(&self, node: Node) -> (i32, Units) {
        let info = &self.region.nodes[node];
        let mut units = Units::from_slice(&self.units);
        let before = match &info.early {
            None => self.region.excess(&units),
            Some(early) => {
                units.iter_mut().zip(early).for_each(|(u, e)| *u += e);
                let before = self.region.excess(&units);
                units.copy_from_slice(&self.units);
                before
            }
        };
        for &version in &info.reads {
            let v = &self.region.versions[version];
            if !v.leaves && self.unread[version] == 1 {
                units[v.file.index()] -= v.width;
            }
        }
        for &version in &info.writes {
            let v = &self.region.versions[version];
            units[v.file.index()] += v.width;
        }
        let after = self.region.excess(&units);
        for &version in &info.writes {
            let v = &self.region.versions[version];
            if !v.leaves && v.readers.is_empty() {
                units[v.file.index()] -= v.width;
            }
        }
        (before.max(after), units)
    }

    /// Runs `node`; the excess while it did.
    pub fn run(&mut self, node: Node) -> i32 {
        let (excess, units) = self.effect(node);
        for &version in &self.region.nodes[node].reads {
            self.unread[version] -= 1;
        }
        self.units = units;
        excess
    }

    /// Takes `node`, the last that ran, back; `units` were in use before it.
    pub fn take_back(&mut self, node: Node, units: Units) {
        for &version in &self.region.nodes[node].reads {
            self.unread[version] += 1;
        }
        self.units = units;
    }
}

/// How good an order is; smaller is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cost {
    /// Greatest number of units that are lacking at any moment.
    pub excess: i32,
    /// Instructions at which any are.
    pub crowded: u32,
    /// How far instructions are from their places, in all.
    pub distance: u64,
}

impl Cost {
    /// The cost of running `region` in `order`.
    pub fn of(region: &Region, order: &[Node]) -> Cost {
        let no_limit = Cost {
            excess: i32::MAX,
            crowded: u32::MAX,
            distance: u64::MAX,
        };
        Cost::below(region, order, no_limit).unwrap_or(no_limit)
    }

    /// The same where it is below `limit`; the rest of the order is not looked at once it is not.
    pub fn below(region: &Region, order: &[Node], limit: Cost) -> Option<Cost> {
        let mut meter = Meter::new(region);
        let mut cost = Cost {
            excess: 0,
            crowded: 0,
            distance: 0,
        };
        for (place, &node) in order.iter().enumerate() {
            let excess = meter.run(node);
            if excess > limit.excess {
                return None;
            }
            cost.excess = cost.excess.max(excess);
            cost.crowded += (excess > 0) as u32;
            cost.distance += place.abs_diff(node.index()) as u64;
        }
        (cost < limit).then_some(cost)
    }
}
