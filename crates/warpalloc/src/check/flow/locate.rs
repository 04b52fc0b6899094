//! Where labelled values are, told by the states that the proof ends with.

use super::super::locate::{DebugLocation, ValueLabel};
use super::*;
use crate::allocation::{SlotAddr, ValuePlace};
use crate::target::{File, SpillPath};

/// A label whose value is followed through a block.
struct Followed {
    label: ValueLabel,
    /// The virtual register, or its web, that has the value now.
    name: Option<VReg>,
    /// The run of points that ends at the last one looked at.
    run: Option<DebugLocation>,
}

impl Flow<'_> {
    /// Walks every reachable block once more and notes where values are.
    ///
    /// Labels speak of the client's virtual registers, of which `split` has the webs.
    pub(super) fn locate(
        &mut self,
        split: Option<&Split>,
        labels: &[ValueLabel],
    ) -> Outcome<Vec<DebugLocation>> {
        let mut found = Vec::new();
        let (function, allocation) = (self.function, self.allocation);
        let at_start = |block: Block, vreg: VReg| match split {
            Some(split) => split.at_start(block, vreg),
            None => Some(vreg),
        };
        let exists = |label: &&ValueLabel| label.vreg.index() < function.vreg_count();
        for block in function.blocks() {
            if self.states[block.index()].is_none() {
                continue;
            }
            let mut insts = function.block_insts(block);
            let (Some(first), Some(last)) = (insts.next(), Some(function.terminator(block))) else {
                continue;
            };
            let is_here = |label: &&ValueLabel| label.from <= last && label.to > first;
            let followed = labels.iter().filter(exists).filter(is_here);
            let mut followed: Vec<Followed> = followed
                .map(|&label| Followed {
                    label,
                    name: at_start(block, label.vreg),
                    run: None,
                })
                .collect();
            if followed.is_empty() {
                continue;
            }
            self.enter(block);
            self.at.block = block;
            for (index, inst) in allocation.block_insts(function, block).enumerate() {
                (self.at.index, self.at.inst) = (index, inst);
                self.edits(Point::Before(inst), allocation.edits.before(inst))?;
                self.look(inst, Point::Before(inst), &mut followed, &mut found);
                self.instruction(inst)?;
                if let Some(split) = split {
                    for Followed { label, name, .. } in &mut followed {
                        *name = split.written(inst, label.vreg).or(*name);
                    }
                }
                if inst != last {
                    self.look(inst, Point::After(inst), &mut followed, &mut found);
                    self.edits(Point::After(inst), allocation.edits.after(inst))?;
                }
            }
            found.extend(followed.into_iter().filter_map(|followed| followed.run));
        }
        found.sort_by_key(|location| location.label);
        Ok(found)
    }

    /// Extends the runs of labels that hold at `inst`, and ends the others.
    fn look(
        &self,
        inst: Inst,
        point: Point,
        followed: &mut [Followed],
        found: &mut Vec<DebugLocation>,
    ) {
        for Followed { label, name, run } in followed {
            let name = name.filter(|_| (label.from..label.to).contains(&inst));
            let known = run.as_ref().map(|run| run.place);
            let place = name.and_then(|name| self.place_of(name, known));
            match (place, &mut *run) {
                (Some(place), Some(run)) if run.place == place => run.to = point,
                (place, run) => {
                    found.extend(run.take());
                    *run = place.map(|place| DebugLocation {
                        label: label.label,
                        from: point,
                        to: point,
                        place,
                    });
                }
            }
        }
    }

    /// A place that holds all of `vreg`: the one that is `known`, if it still does, else a
    /// register before a slot.
    fn place_of(&self, vreg: VReg, known: Option<ValuePlace>) -> Option<ValuePlace> {
        let holds = |place: &ValuePlace| match *place {
            ValuePlace::Reg(reg) => self.is_in_register(vreg, reg),
            ValuePlace::Slot(slot) => self.is_in_slot(vreg, slot),
        };
        let class = self.function.vreg(vreg).class;
        let registers = self.target.registers(class).map(ValuePlace::Reg);
        let slots = [Space::Local, Space::Shared].into_iter().flat_map(|space| {
            let size = self.allocation.frame.size(space) as i32;
            let offsets = (-size..0).step_by(self.words.size());
            offsets.map(move |offset| ValuePlace::Slot(SlotAddr { space, offset }))
        });
        let arguments = (0..self.argument_bytes as i32).step_by(self.words.size());
        let arguments = arguments.map(|offset| {
            let space = Space::Argument;
            ValuePlace::Slot(SlotAddr { space, offset })
        });
        let known = known.into_iter().chain(registers);
        known.chain(slots).chain(arguments).find(holds)
    }

    fn is_in_register(&self, vreg: VReg, reg: PReg) -> bool {
        let first = self.target.unit(reg).index();
        let mut parts = self.parts(vreg).iter().enumerate();
        parts.all(|(part, &value)| {
            let content = self.locations.get(first + part);
            !content.is_nothing() && content == Content::whole(value)
        })
    }

    fn is_in_slot(&self, vreg: VReg, slot: SlotAddr) -> bool {
        let file = self.target.class(self.function.vreg(vreg).class).file;
        let (through, units) = self.memory_units(file);
        let per_unit = self.words.per_unit(self.target, through);
        let frame = self.allocation.frame.size(slot.space);
        let (base, size, low) = match slot.space {
            Space::Local => (self.target.unit_count(), frame, frame),
            Space::Shared => (self.shared_words, frame, frame),
            Space::Argument => (self.argument_words, self.argument_bytes, 0),
        };
        let first = self.words.at(slot.offset, low);
        let count = self.words.count(size);
        let parts = self.parts(vreg);
        if first + parts.len() * units * per_unit > count {
            return false;
        }
        let mut word = base + first;
        parts.iter().all(|&value| {
            let whole = Content::whole(value);
            let mut pieces = (0..units).flat_map(|unit| {
                let piece = whole.unit_piece(unit, units);
                (0..per_unit).map(move |index| piece.word_piece(index, per_unit))
            });
            pieces.all(|piece| {
                word += 1;
                !piece.is_nothing() && self.locations.get(word - 1) == piece
            })
        })
    }

    /// The file whose units a unit of `file` takes on its way to memory, and how many.
    fn memory_units(&self, file: File) -> (File, usize) {
        match self.target.file(file).spill {
            SpillPath::Memory => (file, 1),
            SpillPath::Via(other) => {
                let [from, to] = [file, other].map(|file| self.target.file(file).units_per_reg);
                (other, to.div_ceil(from))
            }
        }
    }
}
