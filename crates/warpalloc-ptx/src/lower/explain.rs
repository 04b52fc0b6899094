//! What the allocator says of the model, in the words of the text.

use super::Lowered;
use crate::diag::line_and_column;
use warpalloc::Error;
use warpalloc::error::Place;
use warpalloc::function::{Inst, VReg};

impl Lowered<'_, '_> {
    /// Why there is no allocation: with lines instead of instructions, and the names of
    /// registers instead of numbers of values.
    pub(crate) fn explain(&self, error: &Error) -> String {
        let told = self.name_values(&error.to_string());
        let (Error::Impossible { place, .. } | Error::FrameTooLarge { place, .. }) = error else {
            return told;
        };
        let place_in_model = format!("{place}: ");
        match self.place_in_text(*place) {
            Some(line) => told.replacen(&place_in_model, &format!("{line}: "), 1),
            None if *place == Place::Function => told.replacen(&place_in_model, "", 1),
            None => told,
        }
    }

    fn place_in_text(&self, place: Place) -> Option<String> {
        let inst = match place {
            Place::Inst(_, inst) => inst,
            Place::Block(block) => self.function.block_insts(block).next()?,
            Place::Function => return None,
        };
        let span = self.span(inst)?;
        let (line, _) = line_and_column(self.source, span.start);
        let opcode = self.function.opcode_name(self.function.inst(inst).opcode);
        Some(format!("line {line}, `{opcode}`"))
    }

    /// Puts a name in place of every `v12`, where the text has one.
    fn name_values(&self, told: &str) -> String {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let mut named = String::with_capacity(told.len());
        let mut rest = told;
        while let Some(start) = rest.find(is_part) {
            let word = &rest[start..];
            let end = word.find(|c| !is_part(c)).unwrap_or(word.len());
            let (word, after) = word.split_at(end);
            named.push_str(&rest[..start]);
            match self.value_called(word).and_then(|value| self.name(value)) {
                Some(name) => named.push_str(&format!("`{name}`")),
                None => named.push_str(word),
            }
            rest = after;
        }
        named + rest
    }

    fn value_called(&self, word: &str) -> Option<VReg> {
        let number = word.strip_prefix('v')?.parse::<u32>().ok()?;
        let value = VReg::from_u32(number);
        let is_known = (number as usize) < self.function.vreg_count();
        (is_known && value.to_string() == word).then_some(value)
    }

    /// The register of the text that first stands for `value`.
    fn name(&self, value: VReg) -> Option<&str> {
        self.function
            .insts()
            .find_map(|inst| self.name_in(inst, value))
    }

    fn name_in(&self, inst: Inst, value: VReg) -> Option<&str> {
        let operands = self.function.operands(inst);
        let code = &self.codes[inst.as_u32() as usize];
        let mut occurrences = code.occurrences.iter();
        let found = occurrences.find(|o| {
            let first = o.operand as usize;
            let lanes = operands.get(first..first + o.lanes as usize);
            lanes.is_some_and(|lanes| lanes.iter().any(|lane| lane.vreg == value))
        });
        let span = found?.span;
        self.source.get(span.start as usize..span.end as usize)
    }
}
