//! The state an instruction reads or writes: which instructions with effects may change places.

use super::*;
use cranelift_entity::entity_impl;
use rustc_hash::FxHashMap;

/// The number of an [`Alias`] that a function keeps.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AliasClass(u32);
entity_impl!(AliasClass, "alias");

impl AliasClass {
    /// The class of [`Alias::ANY`], which every function has.
    pub const ANY: AliasClass = AliasClass(0);
}

/// The state that an instruction with an effect may touch.
///
/// State is divided into *spaces* that have nothing in common: memories that no address
/// reaches both of, the carry flag, the convergence of threads. Within a space an access may
/// say which bytes it touches, counted from a *base*.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Alias {
    /// The spaces it touches, one bit each. Without any, it touches no state that others do,
    /// though it may not be executed where it was not before.
    pub spaces: u8,
    /// The bytes it touches, where that is known; all of its spaces otherwise.
    pub extent: Option<Extent>,
}

/// Bytes from a base on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extent {
    /// What it counts from.
    pub base: Base,
    /// The first byte.
    pub start: i32,
    /// How many bytes.
    pub len: u32,
}

/// What bytes are counted from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Base {
    /// An unknown address, the same for all accesses of one execution of a block that give
    /// this number. Extents of different addresses may overlap.
    Address(u32),
    /// A variable, which the extent does not leave. Different variables do not overlap.
    Variable(u32),
}

impl Alias {
    /// All state there is.
    pub const ANY: Alias = Alias {
        spaces: u8::MAX,
        extent: None,
    };

    /// All state of these spaces.
    pub const fn of(spaces: u8) -> Alias {
        Alias {
            spaces,
            extent: None,
        }
    }

    /// Whether two instructions, executed in one execution of a block, may touch the same
    /// state.
    pub fn overlaps(&self, other: &Alias) -> bool {
        let apart = match (self.extent, other.extent) {
            (Some(a), Some(b)) => a.is_apart(&b),
            _ => false,
        };
        self.spaces & other.spaces != 0 && !apart
    }
}

impl Extent {
    fn is_apart(&self, other: &Extent) -> bool {
        match (self.base, other.base) {
            (a, b) if a == b => {
                let end = |e: &Extent| i64::from(e.start) + i64::from(e.len);
                end(self) <= i64::from(other.start) || end(other) <= i64::from(self.start)
            }
            (Base::Variable(_), Base::Variable(_)) => true,
            _ => false,
        }
    }
}

impl Function {
    /// The state that `inst`, if it has an effect, may touch. An instruction with a pinned
    /// operand may touch any: the hardware changes such a value on its own, and what waits
    /// for it need not name it.
    pub fn alias(&self, inst: Inst) -> AliasClass {
        let is_pinned = |o: &Operand| self.vreg(o.vreg).pinned;
        match self.inst(inst).alias {
            class if class == AliasClass::ANY => class,
            _ if self.operands(inst).iter().any(is_pinned) => AliasClass::ANY,
            class => class,
        }
    }

    /// What `inst` observes or changes, a pinned operand counted as state that is read.
    pub fn ordering_effect(&self, inst: Inst) -> Effect {
        let is_pinned = |o: &Operand| self.vreg(o.vreg).pinned;
        match self.inst(inst).effect {
            Effect::Pure if self.operands(inst).iter().any(is_pinned) => Effect::Read,
            effect => effect,
        }
    }

    /// The same function, whose instructions touch the state that `alias` says.
    pub fn with_aliases(mut self, alias: impl Fn(Inst) -> Alias) -> Function {
        let mut numbers = FxHashMap::default();
        self.aliases.clear();
        numbers.insert(Alias::ANY, self.aliases.push(Alias::ANY));
        for (inst, info) in self.insts.iter_mut() {
            let alias = match info.effect {
                Effect::Pure => Alias::ANY,
                _ => alias(inst),
            };
            let new = || self.aliases.push(alias);
            info.alias = *numbers.entry(alias).or_insert_with(new);
        }
        self
    }

    /// The state that `class` stands for; any, if there is no such class.
    pub fn alias_info(&self, class: AliasClass) -> &Alias {
        self.aliases.get(class).unwrap_or(&Alias::ANY)
    }

    /// All alias classes.
    pub fn alias_classes(&self) -> impl ExactSizeIterator<Item = (AliasClass, &Alias)> {
        self.aliases.iter()
    }

    /// Whether instructions of two classes may touch the same state, in one execution of a
    /// block.
    pub fn may_alias(&self, a: AliasClass, b: AliasClass) -> bool {
        self.alias_info(a).overlaps(self.alias_info(b))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(base: Base, start: i32, len: u32) -> Alias {
        let extent = Extent { base, start, len };
        Alias {
            spaces: 1,
            extent: Some(extent),
        }
    }

    #[test]
    fn extents_of_one_base_overlap_where_their_bytes_do() {
        let a = at(Base::Address(0), 0, 16);
        assert!(a.overlaps(&a));
        assert!(a.overlaps(&at(Base::Address(0), 12, 4)));
        assert!(a.overlaps(&at(Base::Address(0), -4, 8)));
        assert!(!a.overlaps(&at(Base::Address(0), 16, 4)));
        assert!(!at(Base::Address(0), 16, 4).overlaps(&a));
        assert!(!a.overlaps(&at(Base::Address(0), -4, 4)));
        assert!(a.overlaps(&at(Base::Address(1), 16, 4)), "another address");
    }

    #[test]
    fn variables_are_apart_and_addresses_point_anywhere() {
        let s = at(Base::Variable(0), 0, 4);
        assert!(!s.overlaps(&at(Base::Variable(1), 0, 4)));
        assert!(s.overlaps(&at(Base::Address(0), 64, 4)));
        assert!(s.overlaps(&Alias::of(1)));
        assert!(!s.overlaps(&Alias::of(2)), "another space");
        assert!(s.overlaps(&Alias::ANY));
        assert!(!Alias::of(0).overlaps(&Alias::ANY), "no state at all");
    }
}
