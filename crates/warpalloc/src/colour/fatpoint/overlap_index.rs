//! The values whose live ranges may overlap a given one.
//!
//! Positions are cut into spans, and each span lists the values that are live somewhere in
//! it. A query looks at the spans that a value covers, not at every value of the program.

use crate::analysis::Rows;
use crate::ir::{LiveRanges, Segment, Value};
use cranelift_entity::entity_impl;

/// Positions of a span.
const SPAN: u32 = 64;

#[derive(Clone, Copy, PartialEq, Eq)]
struct Span(u32);
entity_impl!(Span);

/// Values by where they are live.
pub struct OverlapIndex<'a> {
    ranges: &'a LiveRanges,
    /// By span, the values that are live in it, each by its rank in the order of starts.
    spans: Rows<Span, u32>,
    /// By rank, the last query that found the value.
    answers: Vec<u32>,
    questions: u32,
}

impl<'a> OverlapIndex<'a> {
    /// Lists all values of `ranges`.
    pub fn new(ranges: &'a LiveRanges) -> OverlapIndex<'a> {
        let values = ranges.by_start();
        let pairs = values.iter().zip(0..).flat_map(|(&value, rank)| {
            let spans = ranges.of(value).iter().flat_map(spans);
            spans.map(move |span| (span, rank))
        });
        OverlapIndex {
            ranges,
            spans: Rows::from_pairs(ranges.positions().div_ceil(SPAN) as usize, pairs),
            answers: vec![0; values.len()],
            questions: 0,
        }
    }

    /// The live ranges it indexes.
    pub fn ranges(&self) -> &'a LiveRanges {
        self.ranges
    }

    /// Every value that may be live together with one of `values`, by start.
    pub fn of(&mut self, values: impl Iterator<Item = Value>) -> impl Iterator<Item = Value> + 'a {
        self.questions += 1;
        let mut found = Vec::new();
        for value in values {
            for span in self.ranges.of(value).iter().flat_map(spans) {
                for &rank in self.spans.row(span) {
                    let answer = &mut self.answers[rank as usize];
                    if std::mem::replace(answer, self.questions) != self.questions {
                        found.push(rank);
                    }
                }
            }
        }
        found.sort_unstable();
        let by_start = self.ranges.by_start();
        found.into_iter().map(|rank| by_start[rank as usize])
    }
}

/// The spans that `segment` touches.
fn spans(segment: &Segment) -> impl Iterator<Item = Span> + Clone + use<> {
    (segment.start / SPAN..segment.end.div_ceil(SPAN)).map(Span)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::{self, Rng, Shape};
    use crate::ir::{Facts, Program};
    use crate::target::Target;

    #[test]
    fn nobody_who_is_alive_at_once_is_missed() {
        let mut rng = Rng::new(3);
        let target = Target::hardware(90).unwrap();
        let (mut together, mut named, mut all) = (0, 0, 0);
        for _ in 0..20 {
            let shape = Shape::random(300, &mut rng);
            let function = generate::function(&shape, &target, &mut rng);
            let program = Program::new(&function, &target, None).unwrap();
            let ranges = LiveRanges::compute(&program, &target, &Facts::of(&program));
            let mut nearby = OverlapIndex::new(&ranges);
            for &value in ranges.by_start() {
                let near: Vec<Value> = nearby.of(std::iter::once(value)).collect();
                let alive = |other: &&Value| ranges.overlap(value, **other);
                let expected = ranges.by_start().iter().filter(alive);
                let found = near.iter().filter(alive);
                together += found.clone().count();
                assert!(found.eq(expected), "{value}");
                named += near.len();
                all += ranges.by_start().len();
            }
        }
        assert!(
            together > 1000 && 3 * named < 2 * all,
            "{together}, {named} of {all}"
        );
    }

    #[test]
    fn values_come_by_start_whoever_is_asked_about_first() {
        let mut rng = Rng::new(3);
        let target = Target::hardware(90).unwrap();
        let shape = Shape::random(300, &mut rng);
        let function = generate::function(&shape, &target, &mut rng);
        let program = Program::new(&function, &target, None).unwrap();
        let ranges = LiveRanges::compute(&program, &target, &Facts::of(&program));
        let mut nearby = OverlapIndex::new(&ranges);
        let ends = [ranges.by_start().last(), ranges.by_start().first()];
        let found = nearby.of(ends.into_iter().flatten().copied());
        assert!(found.is_sorted_by_key(|value| ranges.of(value)[0].start));
    }
}
