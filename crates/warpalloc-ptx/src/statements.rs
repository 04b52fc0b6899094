//! A function statement by statement: how many registers are in use around each, and the segments
//! of values that say which.

use crate::live_values::{FunctionValues, LiveValue, Place};
use warpalloc::analysis::{LiveRanges, Segment};

/// A statement and the registers in use around it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Statement {
    /// Where it is.
    pub place: Place,
    /// Its number in the code, as [`Segment::positions`] counts: twice it is where it reads, and
    /// the one behind that where it writes.
    pub number: usize,
    /// The most general registers that hold a value right before it or right behind it.
    pub registers: usize,
    /// The position, as [`Segment::positions`] has them, at which so many do.
    pub position: usize,
}

/// The statements of a function, and where its values are live.
#[derive(Clone, Debug)]
pub struct Statements<'v> {
    values: &'v FunctionValues,
    ranges: LiveRanges,
    /// In the order of the text.
    pub statements: Vec<Statement>,
}

impl<'v> Statements<'v> {
    /// Finds where the values of a function are live.
    pub fn of(values: &'v FunctionValues) -> Statements<'v> {
        let function = &values.function;
        let ranges = LiveRanges::compute(function, &values.liveness);
        let mut pressure = vec![0_isize; 2 * function.inst_count() + 1];
        for vreg in function.vregs() {
            let registers = values.registers[vreg.as_u32() as usize] as isize;
            for segment in ranges.segments(vreg) {
                let positions = segment.positions();
                pressure[positions.start] += registers;
                pressure[positions.end] -= registers;
            }
        }
        let mut live = 0;
        for at in &mut pressure {
            live += *at;
            *at = live;
        }
        // What has no text of its own counts with the statement behind it.
        let mut from = 0;
        let statements = values.insts.iter().map(|(place, inst)| {
            let number = inst.as_u32() as usize;
            let positions = from.min(2 * number)..2 * number + 2;
            from = positions.end;
            let first = positions.start;
            // The first position of the most: the last is what `max_by_key` would find.
            let position = positions.rev().max_by_key(|&at| pressure[at]);
            let position = position.unwrap_or(first);
            Statement {
                place: place.clone(),
                number,
                registers: pressure[position].unsigned_abs(),
                position,
            }
        });
        Statements {
            statements: statements.collect(),
            values,
            ranges,
        }
    }

    /// The segments of a value, ascending.
    pub fn segments(&self, value: &LiveValue) -> &[Segment] {
        self.ranges.segments(value.vreg)
    }

    /// The statement with the most registers in use; the first of several.
    pub fn peak(&self) -> Option<usize> {
        let most = self.statements.iter().map(|s| s.registers).max()?;
        self.statements.iter().position(|s| s.registers == most)
    }

    /// The values in use where a statement has the most.
    pub fn live_at(&self, statement: &Statement) -> impl Iterator<Item = &'v LiveValue> {
        let position = statement.position;
        let covers =
            move |segments: &[Segment]| segments.iter().any(|s| s.positions().contains(&position));
        let values = self.values.values.iter();
        values.filter(move |value| covers(self.segments(value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live_values::function_values;
    use crate::module::ModuleOptions;

    const SOURCE: &str = "\
.version 9.0
.target sm_90
.address_size 64
.entry k(.param .u64 p) {
.reg .b32 %r<9>;
.reg .b64 %rd<2>;
ld.param.u64 %rd1, [p];
ld.global.u32 %r1, [%rd1];
ld.global.u32 %r2, [%rd1+4];
add.u32 %r3, %r1, %r2;
st.global.u32 [%rd1], %r3;
ret;
}
";

    #[test]
    fn every_statement_knows_the_registers_around_it() {
        let values = function_values(SOURCE, "k", &ModuleOptions::default());
        let values = values.unwrap().unwrap();
        let statements = Statements::of(&values);
        let found = statements.statements.iter().map(|s| {
            let mut live: Vec<&str> = statements.live_at(s).map(|v| v.name.as_str()).collect();
            live.sort_unstable();
            (s.place.line, s.registers, live.join(" "))
        });
        let expected = [
            (7, 2, "%rd1"),
            (8, 3, "%r1 %rd1"),
            (9, 4, "%r1 %r2 %rd1"),
            (10, 4, "%r1 %r2 %rd1"),
            (11, 3, "%r3 %rd1"),
            (12, 0, ""),
        ];
        let expected = expected.map(|(line, live, names)| (line, live, names.to_owned()));
        assert_eq!(found.collect::<Vec<_>>(), expected);
        assert_eq!(statements.peak(), Some(2));
    }

    /// The pressure that `stats` and `explain` tell is the most of all statements.
    #[test]
    fn the_most_is_the_peak_of_the_function() {
        let path = format!("{}/sgemm_rb.sm_90.ptx", crate::apply::tests::CORPUS);
        let source = std::fs::read_to_string(path).unwrap();
        let values = function_values(&source, "sgemm_rb8", &ModuleOptions::default());
        let values = values.unwrap().unwrap();
        let statements = Statements::of(&values);
        let most = &statements.statements[statements.peak().unwrap()];
        assert_eq!(most.registers, values.peak);
        let live = statements.live_at(most).map(|v| v.registers).sum::<usize>();
        assert_eq!(live, values.peak);
    }
}
