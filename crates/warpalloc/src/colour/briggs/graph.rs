//! The graph that is simplified: bodies, their neighbours, and the starts these block.
//!
//! Edges are kept between values and never change; the edges of a body are those of its
//! members, seen through the bodies their neighbours are in. Merging two bodies therefore
//! costs their size, and no adjacency list is ever rewritten.
//!
//! [`degrees`] counts degrees and lowers them.
//!
//! A body that must be in one particular place takes that place from its neighbours'
//! starts at once instead of adding to their degree, which is both exact and simpler: it
//! is never removed from the graph, and merging a body into it is George's test.

mod degrees;

use crate::coalesce::{Bodies, BodyId, Joint, Shape, ShapeId, Squeeze};
use crate::interference::Interference;
use crate::ir::{Program, Value};
use crate::scratch::Scratch;
use crate::target::Target;
use cranelift_entity::packed_option::PackedOption;
use cranelift_entity::{EntityRef, SecondaryMap};

/// What has become of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It is in the graph.
    Active,
    /// It is in the graph for good, in its one place.
    Fixed,
    /// It was removed and waits for a colour.
    Removed,
    /// It became part of another body.
    Merged,
}

/// A neighbour of a body, and how many starts each blocks for the other.
#[derive(Clone, Copy, Debug)]
pub struct Neighbour {
    /// The neighbour.
    pub body: BodyId,
    /// What the body adds to its degree: the most of its starts that the body's interfering
    /// members block.
    pub suffers: u32,
    /// What it adds to the body's degree.
    pub inflicts: u32,
}

/// What became of a body whose neighbour left the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relief {
    /// It left the graph itself, or has its place for good.
    Gone,
    /// Its degree is lower.
    Lower,
    /// It surely finds a place now, and did not before.
    NewlyLow,
}

/// Which degrees and pressures count as high.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// A degree times this is compared with the places.
    pub factor: f32,
    /// Up to this part of a file in use leaves registers to spare.
    pub pressure: f32,
}

/// Bodies and their degrees.
pub struct Graph<'a> {
    /// The edges between values.
    pub interference: &'a Interference,
    /// The bodies.
    pub bodies: Bodies,
    squeeze: Squeeze,
    /// One entry per body.
    nodes: Vec<Node>,
    /// What spilling each body costs.
    costs: Vec<f32>,
    /// The body of every value whose body is in the graph and has no place yet, while bodies are
    /// what they were when degrees were counted.
    seats: Option<Vec<PackedOption<BodyId>>>,
    /// The shape of each value on its own.
    values: Vec<ShapeId>,
    /// Scratch: neighbours of one body.
    around: Vec<Neighbour>,
    /// Scratch: where each body stands in the list of neighbours being made, if it is marked.
    listed_at: Vec<u32>,
    /// What marks the nodes of that list.
    epoch: u32,
    /// How many edges were looked at so far, which the time of simplifying follows.
    pub visits: u64,
    /// The coalescing factor.
    factor: f32,
    scratch: &'a Scratch,
}

/// A neighbour of one or both of two bodies; figures are by body.
#[derive(Clone, Copy, Debug)]
pub struct Shared {
    /// The neighbour.
    pub body: BodyId,
    /// The most of its starts that each body's interfering members block.
    suffers: [u32; 2],
    /// The most of its starts that each body can block at all; 0 if they do not interfere.
    bounds: [u32; 2],
    /// The most starts its interfering members block for both together.
    pub inflicts: u32,
}

impl Shared {
    /// Whether it interferes with both.
    pub fn is_of_both(&self) -> bool {
        self.bounds[0] > 0 && self.bounds[1] > 0
    }

    /// What the two add to its degree now.
    pub fn paid(&self) -> u32 {
        self.paid_to([true; 2])
    }

    /// What the bodies that `count`, of the two, add to its degree now.
    fn paid_to(&self, count: [bool; 2]) -> u32 {
        let paid = |side: usize| match count[side] {
            true => self.suffers[side].min(self.bounds[side]),
            false => 0,
        };
        paid(0) + paid(1)
    }

    /// What they would add as one, if its shape alone did not limit that.
    pub fn suffers(&self) -> u32 {
        self.suffers[0] + self.suffers[1]
    }
}

/// What walks along edges ask of a body, and nothing else: a walk meets as many as it has edges.
#[derive(Clone, Copy, Debug)]
struct Node {
    degree: u32,
    /// The epoch of the last list of neighbours that has it.
    mark: u32,
    places: u16,
    shape: ShapeId,
    status: Status,
    /// Its members live only where the file has registers to spare.
    roomy: bool,
}

impl Node {
    fn is_low(&self) -> bool {
        self.degree < u32::from(self.places)
    }

    fn is_significant(&self, factor: f32) -> bool {
        super::conservative::is_significant(self.degree, self.places.into(), factor)
    }

    fn relieve(&mut self, by: u32) -> Relief {
        let was_low = self.is_low();
        self.degree = self.degree.saturating_sub(by);
        match (was_low, self.is_low()) {
            (false, true) => Relief::NewlyLow,
            _ => Relief::Lower,
        }
    }

    /// Whether the list of this `epoch` does not have it yet; it has it then.
    fn is_new_in(&mut self, epoch: u32) -> bool {
        std::mem::replace(&mut self.mark, epoch) != epoch
    }
}

impl<'a> Graph<'a> {
    /// The graph of the `bodies` of `program`; `costs` says what spilling a value costs.
    /// All degrees are zero until [`Graph::count_degrees`].
    pub fn new(
        program: &Program,
        target: &Target,
        interference: &'a Interference,
        bodies: Bodies,
        costs: &SecondaryMap<Value, f32>,
        limits: Limits,
        scratch: &'a Scratch,
    ) -> Graph<'a> {
        let mut squeeze = Squeeze::default();
        let class_shapes: Vec<ShapeId> = target
            .classes()
            .map(|(_, class)| {
                squeeze.shape(Shape {
                    width: class.width as u16,
                    step: class.align as u16,
                    residue: 0,
                })
            })
            .collect();
        let infos = program.values.values();
        let values = scratch.collected(infos.map(|info| class_shapes[info.class.index()]));
        let nodes: Vec<Node> = scratch.collected(bodies.keys().map(|id| {
            let body = bodies.get(id);
            Node {
                degree: 0,
                mark: 0,
                places: bodies.starts(id).len() as u16,
                shape: squeeze.shape(body.shape),
                status: match body.fixed {
                    true => Status::Fixed,
                    false => Status::Active,
                },
                roomy: {
                    let units = target.file(body.file).capacity as f32;
                    let peaks = body.members.iter().map(|m| interference.peak(m.value));
                    peaks.max().unwrap_or(0) as f32 <= limits.pressure * units
                },
            }
        }));
        let cost = |id| {
            let members = bodies.get(id).members.iter();
            members.map(|m| costs[m.value]).sum()
        };
        let mut graph = Graph {
            interference,
            listed_at: scratch.filled(0, nodes.len()),
            costs: scratch.collected(bodies.keys().map(cost)),
            bodies,
            squeeze,
            nodes,
            seats: None,
            values,
            around: Vec::new(),
            epoch: 0,
            visits: 0,
            factor: limits.factor,
            scratch,
        };
        graph.claim_fixed_places();
        graph
    }

    fn claim_fixed_places(&mut self) {
        for body in self.bodies.keys() {
            if self.status(body) == Status::Fixed {
                self.claim(body);
            }
        }
    }

    /// Leaves its memory to others.
    pub fn recycle(mut self) {
        self.drop_seats();
        self.bodies.recycle(self.scratch);
        self.scratch.give(self.nodes);
        self.scratch.give(self.costs);
        self.scratch.give(self.values);
        self.scratch.give(self.listed_at);
    }

    /// What has become of `body`.
    pub fn status(&self, body: BodyId) -> Status {
        self.nodes[body.index()].status
    }

    /// The most starts of `body` that its neighbours block together.
    pub fn degree(&self, body: BodyId) -> u32 {
        self.nodes[body.index()].degree
    }

    /// In how many places `body` may start.
    pub fn places(&self, body: BodyId) -> u32 {
        self.nodes[body.index()].places.into()
    }

    /// What spilling all of `body` costs.
    pub fn cost(&self, body: BodyId) -> f32 {
        self.costs[body.index()]
    }

    /// Whether `body` lives only where the file has registers to spare.
    pub fn is_roomy(&self, body: BodyId) -> bool {
        self.nodes[body.index()].roomy
    }

    /// Whether `body` finds a place whatever its neighbours do.
    pub fn is_low(&self, body: BodyId) -> bool {
        self.nodes[body.index()].is_low()
    }

    /// Lists the active neighbours of `body`.
    pub fn neighbours(&mut self, body: BodyId, out: &mut Vec<Neighbour>) {
        out.clear();
        self.epoch += 1;
        let shape = self.nodes[body.index()].shape;
        self.visits += self.bodies.get(body).edges as u64;
        for member in &self.bodies.get(body).members {
            let member_shape = self.values[member.value.index()];
            for edge in self.interference.edges(member.value) {
                let Some(other) = self.bodies.of(edge.value) else {
                    continue;
                };
                let node = &mut self.nodes[other.index()];
                if node.status != Status::Active || other == body {
                    continue;
                }
                let suffers = self.squeeze.blocked(node.shape, member_shape);
                let inflicts = self.squeeze.blocked(shape, self.values[edge.value.index()]);
                let at = &mut self.listed_at[other.index()];
                if node.is_new_in(self.epoch) {
                    *at = out.len() as u32;
                    out.push(Neighbour {
                        body: other,
                        suffers,
                        inflicts,
                    });
                } else {
                    let known = &mut out[*at as usize];
                    known.suffers += suffers;
                    known.inflicts += inflicts;
                }
            }
        }
        for n in out {
            let theirs = self.nodes[n.body.index()].shape;
            n.suffers = n.suffers.min(self.squeeze.blocked(theirs, shape));
            n.inflicts = n.inflicts.min(self.squeeze.blocked(shape, theirs));
        }
    }

    /// The number of `shape`, for [`Graph::blocked`].
    pub fn shape(&mut self, shape: Shape) -> ShapeId {
        self.squeeze.shape(shape)
    }

    /// The number of the shape of `body`.
    pub fn shape_of(&self, body: BodyId) -> ShapeId {
        self.nodes[body.index()].shape
    }

    /// The most starts of a body of shape `n` that one body of shape `m` blocks.
    pub fn blocked(&self, n: ShapeId, m: ShapeId) -> u32 {
        self.squeeze.blocked(n, m)
    }

    /// Takes `body` out of the graph; the caller lowers its neighbours' degrees.
    pub fn remove(&mut self, body: BodyId) {
        self.nodes[body.index()].status = Status::Removed;
    }

    /// Lowers the degree of `body`, if it is in the graph; whether it surely finds a place now
    /// and did not before.
    pub fn relieve(&mut self, body: BodyId, by: u32) -> Relief {
        let node = &mut self.nodes[body.index()];
        if node.status != Status::Active {
            return Relief::Gone;
        }
        node.relieve(by)
    }

    /// Whether `body` counts as hard to colour when a merge is considered.
    pub fn is_significant(&self, body: BodyId) -> bool {
        self.nodes[body.index()].is_significant(self.factor)
    }

    /// Lists the active neighbours of both `a` and `b`, with the weights they would have if
    /// the two were one.
    pub fn neighbours_of_both(&mut self, a: BodyId, b: BodyId, out: &mut Vec<Shared>) {
        out.clear();
        self.epoch += 1;
        for (index, body) in [a, b].into_iter().enumerate() {
            let shape = self.nodes[body.index()].shape;
            self.visits += self.bodies.get(body).edges as u64;
            for member in &self.bodies.get(body).members {
                let member_shape = self.values[member.value.index()];
                for edge in self.interference.edges(member.value) {
                    let Some(other) = self.bodies.of(edge.value) else {
                        continue;
                    };
                    let node = &mut self.nodes[other.index()];
                    if node.status != Status::Active || other == a || other == b {
                        continue;
                    }
                    let at = &mut self.listed_at[other.index()];
                    if node.is_new_in(self.epoch) {
                        *at = out.len() as u32;
                        out.push(Shared {
                            body: other,
                            suffers: [0; 2],
                            bounds: [0; 2],
                            inflicts: 0,
                        });
                    }
                    let known = &mut out[*at as usize];
                    known.suffers[index] += self.squeeze.blocked(node.shape, member_shape);
                    known.bounds[index] = self.squeeze.blocked(node.shape, shape);
                    // The merged body's step is at least either side's, so this is a bound.
                    let of_value = self.values[edge.value.index()];
                    known.inflicts += self.squeeze.blocked(shape, of_value);
                }
            }
        }
    }

    /// Merges the bodies of `joint` before degrees are counted, and returns the whole.
    ///
    /// This costs what the smaller of the two costs to renumber; keeping degrees up to date
    /// costs a walk around both, which bodies that grow by many merges cannot afford.
    pub fn unite(&mut self, joint: &Joint) -> BodyId {
        let cost = self.cost(joint.a) + self.cost(joint.b);
        let roomy = self.is_roomy(joint.a) && self.is_roomy(joint.b);
        let (kept, gone) = self.bodies.merge(joint);
        self.nodes[gone.index()].status = Status::Merged;
        let fixed = self.bodies.get(kept).fixed;
        self.nodes[kept.index()] = Node {
            degree: 0,
            mark: 0,
            places: joint.starts.len() as u16,
            shape: self.squeeze.shape(joint.shape),
            status: match fixed {
                true => Status::Fixed,
                false => Status::Active,
            },
            roomy,
        };
        self.costs[kept.index()] = cost;
        if fixed {
            self.claim(kept);
        }
        kept
    }

    /// Merges the bodies of `joint` and returns the whole, with all degrees up to date and
    /// its neighbours in `around`, and those that became insignificant.
    pub fn merge(
        &mut self,
        joint: &Joint,
        shared: &mut Vec<Shared>,
        around: &mut Vec<Neighbour>,
    ) -> (BodyId, Vec<BodyId>) {
        self.drop_seats();
        self.neighbours_of_both(joint.a, joint.b, shared);
        let bodies = shared.iter().map(|n| n.body);
        let mut crossed: Vec<BodyId> = bodies.filter(|&n| self.is_significant(n)).collect();
        let counts = [joint.a, joint.b].map(|side| self.status(side) == Status::Active);
        for n in shared.iter() {
            let degree = &mut self.nodes[n.body.index()].degree;
            *degree = degree.saturating_sub(n.paid_to(counts));
        }
        let kept = self.unite(joint);
        self.neighbours(kept, around);
        if self.status(kept) == Status::Active {
            for n in around.iter() {
                self.nodes[n.body.index()].degree += n.suffers;
                self.nodes[kept.index()].degree += n.inflicts;
            }
        }
        crossed.retain(|&body| !self.is_significant(body));
        (kept, crossed)
    }

    /// Takes the place of a fixed body out of the starts of its neighbours.
    fn claim(&mut self, body: BodyId) {
        let Some(start) = self.bodies.starts(body).lowest() else {
            return;
        };
        self.visits += self.bodies.get(body).edges as u64;
        let members = self.bodies.get(body).members.clone();
        for member in members {
            let low = start as i32 + member.offset as i32;
            let high = low + member.width as i32;
            for edge in self.interference.edges(member.value) {
                let Some(other) = self.bodies.of(edge.value) else {
                    continue;
                };
                if other == body || self.status(other) != Status::Active {
                    continue;
                }
                let (first, end) = self.bodies.starts_touching(edge.value, low, high);
                let allowed = match edge.conditional {
                    true => self.interference.distance(member.value, edge.value),
                    false => None,
                };
                let spared = allowed.map(|d| low + d - self.bodies.offset(edge.value) as i32);
                let mut starts = *self.bodies.starts(other);
                let spare = spared.filter(|&s| s >= 0 && starts.contains(s as usize));
                starts.remove_range(first, end);
                if let Some(start) = spare {
                    starts.insert(start as usize);
                }
                self.nodes[other.index()].places = starts.len() as u16;
                self.bodies.set_starts(other, starts);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::with_graph;
    use super::*;
    use crate::colour::Problem;
    use crate::generate::{self, Rng, Shape};
    use crate::ir::Facts;
    use crate::options::Options;
    use crate::stats::Stats;
    use crate::target::File;

    /// Bodies of one value are counted apart from those of several: both must come to what
    /// each neighbour inflicts, and removing a body must take back what it added.
    #[test]
    fn degrees_are_what_neighbours_inflict() {
        let target = Target::hardware(90).unwrap().with_budget(File::R, 24);
        let (options, scratch, stats) = (Options::default(), Scratch::default(), Stats::default());
        let (mut alone, mut together) = (0, 0);
        for seed in 0..20 {
            let mut rng = Rng::new(seed);
            let shape = Shape::random(120, &mut rng);
            let function = generate::function(&shape, &target, &mut rng);
            let program = Program::new(&function, &target, None).unwrap();
            let facts = Facts::of(&program);
            let problem = Problem::new(program, facts, &target, &options, &scratch);
            let stats = &mut stats.clone();
            let interference = problem.interference(stats);
            let bodies = Bodies::new(&problem.program, &target, interference, &scratch);
            let limits = Limits {
                factor: 0.8,
                pressure: 0.8,
            };
            let (program, costs) = (&problem.program, SecondaryMap::with_default(1.0));
            let mut graph = Graph::new(
                program,
                &target,
                interference,
                bodies.clone(),
                &costs,
                limits,
                &scratch,
            );
            for mv in problem.moves(stats).values() {
                let joint = bodies.of(mv.to).zip(bodies.of(mv.from));
                let joint = joint.and_then(|_| {
                    graph
                        .bodies
                        .joint(interference, mv.to, mv.from, mv.distance)
                });
                if let Some(joint) = joint {
                    graph.unite(&joint);
                }
            }
            graph.count_degrees();
            let active = graph.bodies.keys();
            let active: Vec<BodyId> = active
                .filter(|&b| graph.status(b) == Status::Active)
                .collect();
            let (mut around, mut burdened) = (Vec::new(), Vec::new());
            for body in active {
                graph.neighbours(body, &mut around);
                let inflicted: u32 = around.iter().map(|n| n.inflicts).sum();
                assert_eq!(graph.degree(body), inflicted, "{body}, seed {seed}");
                graph.burdened(body, &mut burdened);
                let suffered = around.iter().map(|n| (n.body, n.suffers));
                assert!(suffered.eq(burdened.iter().copied()), "{body}, seed {seed}");
                match graph.bodies.get(body).members.len() {
                    1 => alone += 1,
                    _ => together += 1,
                }
            }
        }
        assert!(alone > 100 && together > 40, "{alone}, {together}");
    }

    /// A pair is packed of `v2` and `v3` in R0 and R1, while both live on. Either may stay on
    /// its half of the pair and nowhere else in it, and `v3` may as the upper half of `v0`.
    #[test]
    fn a_fixed_place_is_left_to_those_who_may_lie_on_it_in_one_way() {
        let body = "
            v0:r64 = load : read
            v1:r32, v3:r32 = mov v0 : copy
            store v1 : write
            v2:r32 = load : read
            v4:r64 @ R0 = mov v2, v3 : copy
            store v2, v3, v4 : write";
        with_graph(
            8,
            body,
            |_| {},
            |mut graph, _, problem| {
                let made = problem.program.links[0].members[0].0;
                let [wide, low, high] = [0, 2, 3].map(Value::new);
                let interference = graph.interference;
                let starts = |graph: &Graph, value| {
                    let body = graph.bodies.of(value).unwrap();
                    graph.bodies.starts(body).iter().collect::<Vec<_>>()
                };
                assert_eq!(starts(&graph, low), [0, 2, 3, 4, 5, 6, 7]);
                assert_eq!(starts(&graph, high), [1, 2, 3, 4, 5, 6, 7]);
                let joint = graph.bodies.joint(interference, wide, high, 1);
                graph.unite(&joint.unwrap());
                let joint = graph.bodies.joint(interference, made, low, 0);
                graph.unite(&joint.unwrap());
                assert_eq!(starts(&graph, wide), [0, 2, 4, 6]);
            },
        );
    }
}
