//! Views: the PTX names of physical registers.

use fixedbitset::FixedBitSet;
use smallvec::SmallVec;
use std::fmt;
use warpalloc::target::{Class, File, PReg, Target};

/// How many bits a name shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// 16 bits.
    Half,
    /// One register.
    Word,
    /// Two.
    Pair,
    /// Four.
    Quad,
    /// A predicate.
    Pred,
}

impl Kind {
    /// All kinds that show general registers, the widest first.
    pub const GENERAL: [Kind; 4] = [Kind::Quad, Kind::Pair, Kind::Word, Kind::Half];

    /// All kinds.
    pub const ALL: [Kind; 5] = [Kind::Pred, Kind::Half, Kind::Word, Kind::Pair, Kind::Quad];

    /// The kind that shows a value of `class`.
    pub fn of(class: Class) -> Option<Kind> {
        Some(match class {
            Class::R16 => Kind::Half,
            Class::R32 => Kind::Word,
            Class::R64 => Kind::Pair,
            Class::R128 => Kind::Quad,
            Class::PRED => Kind::Pred,
            _ => return None,
        })
    }

    /// The prefix of its names.
    pub fn prefix(self) -> &'static str {
        match self {
            Kind::Half => "%H",
            Kind::Word => "%R",
            Kind::Pair => "%RD",
            Kind::Quad => "%RQ",
            Kind::Pred => "%P",
        }
    }

    /// The type to declare its names with.
    pub fn ty(self) -> &'static str {
        match self {
            Kind::Half => "b16",
            Kind::Word => "b32",
            Kind::Pair => "b64",
            Kind::Quad => "b128",
            Kind::Pred => "pred",
        }
    }

    /// Bytes in memory.
    pub fn bytes(self) -> u32 {
        match self {
            Kind::Half => 2,
            Kind::Word | Kind::Pred => 4,
            Kind::Pair => 8,
            Kind::Quad => 16,
        }
    }

    fn narrower(self) -> Option<Kind> {
        match self {
            Kind::Quad => Some(Kind::Pair),
            Kind::Pair => Some(Kind::Word),
            Kind::Word => Some(Kind::Half),
            Kind::Half | Kind::Pred => None,
        }
    }
}

/// One PTX name: a kind and the first unit it shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct View {
    pub kind: Kind,
    pub unit: u16,
}

/// All views of a target's general and predicate files, numbered.
#[derive(Clone, Debug)]
pub(crate) struct Views {
    /// Units of one 32-bit register: 2 where halves pack.
    halves: u16,
    units: u16,
    base: [usize; 5],
    count: usize,
}

impl Views {
    /// The views of `target`.
    pub fn of(target: &Target) -> Views {
        let r = target.file(File::R);
        let mut views = Views {
            halves: r.units_per_reg as u16,
            units: r.units as u16,
            base: [0; 5],
            count: 0,
        };
        for kind in Kind::ALL {
            views.base[kind as usize] = views.count;
            let units = match kind {
                Kind::Pred => target.file(File::P).units,
                _ => r.units,
            };
            views.count += units / views.width(kind) as usize;
        }
        views
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Whether two 16-bit values share a register.
    pub fn packs_halves(&self) -> bool {
        self.halves == 2
    }

    /// Units a view of this kind shows.
    pub fn width(&self, kind: Kind) -> u16 {
        match kind {
            Kind::Half | Kind::Pred => 1,
            Kind::Word => self.halves,
            Kind::Pair => 2 * self.halves,
            Kind::Quad => 4 * self.halves,
        }
    }

    /// The number of a view.
    pub fn index(&self, view: View) -> usize {
        self.base[view.kind as usize] + (view.unit / self.width(view.kind)) as usize
    }

    /// The view with this number.
    pub fn at(&self, index: usize) -> View {
        let owner = |k: &Kind| self.base[*k as usize] <= index;
        let kind = Kind::ALL
            .into_iter()
            .rev()
            .find(owner)
            .unwrap_or(Kind::Pred);
        let position = (index - self.base[kind as usize]) as u16;
        View {
            kind,
            unit: position * self.width(kind),
        }
    }

    /// The view of this kind that starts exactly at `unit`.
    pub fn starting(&self, kind: Kind, unit: u16) -> Option<View> {
        let width = self.width(kind);
        let exists =
            unit.is_multiple_of(width) && (kind == Kind::Pred || unit + width <= self.units);
        exists.then_some(View { kind, unit })
    }

    /// The view that shows a value of `class` in `reg`.
    pub fn of_value(&self, class: Class, reg: PReg) -> Option<View> {
        self.starting(Kind::of(class)?, reg.unit)
    }

    /// The first unit behind a view.
    pub fn end(&self, view: View) -> u16 {
        view.unit + self.width(view.kind)
    }

    /// Whether all of `inner` is part of `outer`.
    pub fn contains(&self, outer: View, inner: View) -> bool {
        (outer.kind == Kind::Pred) == (inner.kind == Kind::Pred)
            && outer.unit <= inner.unit
            && self.end(inner) <= self.end(outer)
            && outer.kind >= inner.kind
    }

    /// Whether a view shows any of the units from `unit` up to `end` of its file.
    pub fn meets(&self, view: View, unit: u16, end: u16) -> bool {
        view.unit < end && unit < self.end(view)
    }

    /// The views side by side that make up a wider one; none for the narrowest.
    pub fn parts(&self, view: View) -> SmallVec<[View; 2]> {
        let Some(kind) = view.kind.narrower() else {
            return SmallVec::new();
        };
        // Without packing, a half shows the low bits of a whole register: no part.
        if kind == Kind::Half && !self.packs_halves() {
            return SmallVec::new();
        }
        let step = self.width(kind);
        let part = |unit| View { kind, unit };
        SmallVec::from_slice(&[part(view.unit), part(view.unit + step)])
    }

    /// All views that show any unit from `unit` up to `end`.
    pub fn over(&self, predicates: bool, unit: u16, end: u16) -> impl Iterator<Item = View> + '_ {
        let kinds = if predicates {
            &Kind::ALL[..1]
        } else {
            &Kind::ALL[1..]
        };
        kinds.iter().flat_map(move |&kind| {
            let width = self.width(kind);
            let first = unit - unit % width;
            (first..end)
                .step_by(width as usize)
                .filter_map(move |unit| self.starting(kind, unit))
        })
    }

    /// The name of a view.
    pub fn name(&self, view: View) -> Name {
        Name {
            prefix: view.kind.prefix(),
            number: view.unit / self.width(view.kind),
        }
    }
}

/// Displays a view.
#[derive(Clone, Copy)]
pub(crate) struct Name {
    prefix: &'static str,
    number: u16,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.prefix, self.number)
    }
}

/// Makes one view from another of the same units: always sound, wherever it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Conversion {
    /// From its parts.
    Pack(View),
    /// Both of its parts.
    Unpack(View),
    /// A register from the half that shows its low bits, or the other way round.
    Low { from: View, to: View },
}

/// Finds conversions that bring views up to date after some were written.
pub(crate) struct Provider<'v> {
    views: &'v Views,
    /// Views that hold what their units hold.
    fresh: SmallVec<[View; 8]>,
    /// Conversions, in order.
    pub out: SmallVec<[Conversion; 4]>,
    /// Views that must hold already before the write.
    pub before: SmallVec<[View; 4]>,
}

impl<'v> Provider<'v> {
    /// After `written` were written.
    pub fn new(views: &'v Views, written: &[View]) -> Provider<'v> {
        Provider {
            views,
            fresh: SmallVec::from_slice(written),
            out: SmallVec::new(),
            before: SmallVec::new(),
        }
    }

    /// Makes `view` hold what its units hold.
    pub fn provide(&mut self, view: View) {
        if self.fresh.contains(&view) {
            return;
        }
        let touched = |f: &View| {
            (f.kind == Kind::Pred) == (view.kind == Kind::Pred)
                && self.views.meets(*f, view.unit, self.views.end(view))
        };
        if !self.fresh.iter().any(touched) {
            self.before.push(view);
            return;
        }
        let wider = self.fresh.iter().filter(|f| self.views.contains(**f, view));
        match wider.copied().min_by_key(|f| f.kind) {
            Some(wider) => self.take_apart(wider, view),
            None => self.put_together(view),
        }
    }

    fn take_apart(&mut self, mut from: View, view: View) {
        while from != view {
            let parts = self.views.parts(from);
            let next = parts.iter().find(|p| self.views.contains(**p, view));
            match next {
                Some(&next) => {
                    self.out.push(Conversion::Unpack(from));
                    self.fresh.extend_from_slice(&parts);
                    from = next;
                }
                None => {
                    self.out.push(Conversion::Low { from, to: view });
                    self.fresh.push(view);
                    from = view;
                }
            }
        }
    }

    fn put_together(&mut self, view: View) {
        let parts = self.views.parts(view);
        if parts.is_empty() {
            let from = View {
                kind: Kind::Half,
                unit: view.unit,
            };
            self.out.push(Conversion::Low { from, to: view });
        } else {
            for part in parts {
                self.provide(part);
            }
            self.out.push(Conversion::Pack(view));
        }
        self.fresh.push(view);
    }
}

/// A set of views.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ViewSet(FixedBitSet);

impl ViewSet {
    /// None of them.
    pub fn new(views: &Views) -> ViewSet {
        ViewSet(FixedBitSet::with_capacity(views.count()))
    }

    /// Adds one.
    pub fn insert(&mut self, views: &Views, view: View) {
        self.0.insert(views.index(view));
    }

    /// Removes one.
    pub fn remove(&mut self, views: &Views, view: View) {
        self.0.set(views.index(view), false);
    }

    /// Whether it is one of them.
    pub fn has(&self, views: &Views, view: View) -> bool {
        self.0.contains(views.index(view))
    }

    /// Adds all of another set.
    pub fn union(&mut self, other: &ViewSet) {
        self.0.union_with(&other.0);
    }

    /// Every one of them.
    pub fn iter<'s>(&'s self, views: &'s Views) -> impl Iterator<Item = View> + 's {
        self.0.ones().map(|index| views.at(index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_round_trip() {
        for target in [Target::cicc(), Target::hardware(90).unwrap()] {
            let views = Views::of(&target);
            for index in 0..views.count() {
                assert_eq!(views.index(views.at(index)), index);
            }
            let unit = 4 * views.width(Kind::Word);
            let pair = views.starting(Kind::Pair, unit).unwrap();
            assert_eq!(views.name(pair).to_string(), "%RD2");
            let quad = views.starting(Kind::Quad, unit).unwrap();
            assert_eq!(views.name(quad).to_string(), "%RQ1");
            assert!(
                views
                    .starting(Kind::Pair, views.width(Kind::Word))
                    .is_none()
            );
        }
    }

    #[test]
    fn parts_are_put_together_and_taken_apart() {
        let views = Views::of(&Target::hardware(90).unwrap());
        let word = |unit| views.starting(Kind::Word, unit).unwrap();
        let pair = views.starting(Kind::Pair, 4).unwrap();
        let quad = views.starting(Kind::Quad, 4).unwrap();

        let mut low_written = Provider::new(&views, &[word(4)]);
        low_written.provide(quad);
        assert_eq!(
            low_written.out.as_slice(),
            [Conversion::Pack(pair), Conversion::Pack(quad)]
        );
        let high = views.starting(Kind::Pair, 6).unwrap();
        assert_eq!(low_written.before.as_slice(), [word(5), high]);

        let mut quad_written = Provider::new(&views, &[quad]);
        let half = views.starting(Kind::Half, 7).unwrap();
        quad_written.provide(half);
        assert_eq!(
            quad_written.out.as_slice(),
            [
                Conversion::Unpack(quad),
                Conversion::Unpack(high),
                Conversion::Low {
                    from: word(7),
                    to: half
                },
            ]
        );
        assert!(quad_written.before.is_empty());
    }

    #[test]
    fn packed_halves_are_parts() {
        let views = Views::of(&Target::cicc());
        let word = views.starting(Kind::Word, 6).unwrap();
        let high = views.starting(Kind::Half, 7).unwrap();
        let mut provider = Provider::new(&views, &[high]);
        provider.provide(word);
        assert_eq!(provider.out.as_slice(), [Conversion::Pack(word)]);
        let low = views.starting(Kind::Half, 6).unwrap();
        assert_eq!(provider.before.as_slice(), [low]);
    }
}
