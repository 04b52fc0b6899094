//! Degrees: what bodies add to those of their neighbours, and take back when they go.
//!
//! Once the merges that ask for no degree are made, most graphs see no other: where each value
//! sits is then noted once, so that a walk along the row of a value asks one table who is still
//! there. The first merge after that throws the note away.

use super::{Graph, Relief, Status};
use crate::coalesce::{BodyId, ShapeId};
use crate::interference::Edge;
use crate::ir::Value;
use cranelift_entity::EntityRef;
use cranelift_entity::packed_option::PackedOption;

impl Graph<'_> {
    /// Counts every degree from scratch: once the merges that ask for no degree are made.
    pub fn count_degrees(&mut self) {
        let seats = self.active_seats();
        let mut burdened = Vec::new();
        for body in self.bodies.keys() {
            if self.status(body) == Status::Active {
                self.count_burdens(body, &seats, &mut burdened);
            }
        }
        self.seats = Some(seats);
    }

    /// Forgets where values were.
    pub(super) fn drop_seats(&mut self) {
        if let Some(seats) = self.seats.take() {
            self.scratch.give(seats);
        }
    }

    /// Adds what `body` blocks to the degrees of its neighbours. `seats` has the body of every
    /// value that is in the graph, and `burdened` is scratch.
    ///
    /// The same as [`Graph::neighbours`], less what the neighbours block: they add that
    /// themselves.
    fn count_burdens(
        &mut self,
        body: BodyId,
        seats: &[PackedOption<BodyId>],
        burdened: &mut Vec<(BodyId, u32)>,
    ) {
        self.epoch += 1;
        let members = &self.bodies.get(body).members;
        self.visits += self.bodies.get(body).edges as u64;
        let shape = self.nodes[body.index()].shape;
        let by_body = self.squeeze.blocking(shape);
        let seat_of = |edge: Edge| seats[edge.value.index()].expand();
        if let Some(value) = self.only_value(body) {
            // One value blocks as much as its body may, whichever it interferes with.
            for edge in self.interference.edges(value) {
                let Some(other) = seat_of(edge) else {
                    continue;
                };
                let node = &mut self.nodes[other.index()];
                if node.is_new_in(self.epoch) {
                    node.degree += u32::from(by_body[node.shape.index()]);
                }
            }
            return;
        }
        burdened.clear();
        for member in members {
            let by_member = self.squeeze.blocking(self.values[member.value.index()]);
            for edge in self.interference.edges(member.value) {
                let Some(other) = seat_of(edge).filter(|&other| other != body) else {
                    continue;
                };
                let node = &mut self.nodes[other.index()];
                let blocked = u32::from(by_member[node.shape.index()]);
                let at = &mut self.listed_at[other.index()];
                if node.is_new_in(self.epoch) {
                    *at = burdened.len() as u32;
                    burdened.push((other, blocked));
                } else {
                    burdened[*at as usize].1 += blocked;
                }
            }
        }
        for &mut (other, blocked) in burdened {
            let node = &mut self.nodes[other.index()];
            node.degree += blocked.min(u32::from(by_body[node.shape.index()]));
        }
    }

    /// The value of `body`, if it is one that blocks as much as its body may.
    fn only_value(&self, body: BodyId) -> Option<Value> {
        let [member] = self.bodies.get(body).members[..] else {
            return None;
        };
        let shape = self.nodes[body.index()].shape;
        (self.values[member.value.index()] == shape).then_some(member.value)
    }

    /// The body of every value whose body is in the graph and has no place yet.
    fn active_seats(&self) -> Vec<PackedOption<BodyId>> {
        let seats = (0..self.values.len()).map(|value| {
            let body = self.bodies.of(Value::new(value));
            let active = body.filter(|&body| self.status(body) == Status::Active);
            PackedOption::from(active)
        });
        self.scratch.collected(seats)
    }

    /// Lists the active neighbours of `body`, each with what `body` adds to its degree.
    pub fn burdened(&mut self, body: BodyId, out: &mut Vec<(BodyId, u32)>) {
        out.clear();
        if let Some(value) = self.only_value(body) {
            self.burdened_by_value(body, value, out);
        } else {
            let mut around = std::mem::take(&mut self.around);
            self.neighbours(body, &mut around);
            out.extend(around.iter().map(|n| (n.body, n.suffers)));
            self.around = around;
        }
    }

    /// The same for a body of one `value`, which blocks as much of a neighbour however many of
    /// its values it interferes with.
    fn burdened_by_value(&mut self, body: BodyId, value: Value, out: &mut Vec<(BodyId, u32)>) {
        self.epoch += 1;
        self.visits += self.bodies.get(body).edges as u64;
        let shape = self.nodes[body.index()].shape;
        let by_body = self.squeeze.blocking(shape);
        for edge in self.interference.edges(value) {
            let Some(other) = self.bodies.of(edge.value) else {
                continue;
            };
            let node = &mut self.nodes[other.index()];
            if node.status == Status::Active && node.is_new_in(self.epoch) {
                out.push((other, u32::from(by_body[node.shape.index()])));
            }
        }
    }

    /// Takes `body` out of the graph, and returns its only value, whose neighbours are then to be
    /// [relieved](Graph::relieve_beside). Nothing happens where it has several, or where bodies
    /// have changed since degrees were counted.
    pub fn remove_only_value(&mut self, body: BodyId) -> Option<Value> {
        let value = self.only_value(body)?;
        let seats = self.seats.as_mut()?;
        seats[value.index()] = None.into();
        self.epoch += 1;
        self.visits += self.bodies.get(body).edges as u64;
        self.remove(body);
        Some(value)
    }

    /// Lowers the degree of the body of `neighbour` by what a body of this `shape` adds to it,
    /// unless it left the graph or another of its values was met before.
    pub fn relieve_beside(&mut self, neighbour: Value, shape: ShapeId) -> Option<(BodyId, Relief)> {
        let seats = self.seats.as_ref()?;
        let other = seats[neighbour.index()].expand()?;
        let node = &mut self.nodes[other.index()];
        if node.status != Status::Active || !node.is_new_in(self.epoch) {
            return None;
        }
        let by = self.squeeze.blocked(node.shape, shape);
        Some((other, node.relieve(by)))
    }
}
