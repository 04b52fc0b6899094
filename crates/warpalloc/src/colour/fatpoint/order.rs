//! The six lists and the assignment stack.
//!
//! Every cluster goes on one list. The simplify phase drains *Unconstrained*, then
//! *VeryHigh* (into which *LargeVec* has been merged), then *High*, each as it stands.
//! The select phase drains *LowConf*, then *LowLate*, each time taking the cluster with
//! the lowest ratio of spill cost to interference, of equals the narrower, then the one
//! of lower pre-allocation priority, then the later one. Drained clusters go on a stack, and
//! registers are assigned from its top: the cluster drained last chooses first.
//!
//! So among constrained clusters the ones that are expensive to spill and interfere with
//! little choose before the cheap and long-lived, and unconstrained clusters take what is
//! left. These last are nearly all values of most functions; they are listed backwards so
//! that they are popped in program order, in which first-fit packs tightly (for values of
//! one width in SSA form, optimally: Hack, Grund and Goos, 2006).

use super::cluster::Cluster;
use smallvec::SmallVec;

/// The lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    /// No constraint chain.
    Unconstrained,
    /// Has to stand beside others.
    VeryHigh,
    /// Too expensive to spill, or flagged.
    High,
    /// Constrained, before anything has been spilled.
    LowConf,
    /// Constrained, when spilling has begun.
    LowLate,
    /// Wider than four registers.
    LargeVec,
}

impl List {
    /// The order in which lists are drained; *LargeVec* is part of *VeryHigh* by then.
    pub const DRAIN: [List; 5] = [
        List::Unconstrained,
        List::VeryHigh,
        List::High,
        List::LowConf,
        List::LowLate,
    ];
}

/// The pair modes of ptxas: how many physical slots a value takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairMode {
    /// It takes one register.
    Single,
    /// It is one of several values side by side.
    LoHalf,
    /// It takes two registers or more.
    DoubleWidth,
}

/// What classification looks at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Traits {
    /// The cluster.
    pub cluster: Cluster,
    /// Something restricts its registers besides its neighbours.
    pub constrained: bool,
    /// Registers it takes.
    pub registers: usize,
    /// How it pairs.
    pub pair: PairMode,
    /// What spilling it costs.
    pub cost: f32,
    /// How many positions its live ranges cover.
    pub interference: f32,
    /// Flagged as too important for the select phase.
    pub flagged: bool,
    /// Pre-allocation priority.
    pub priority: u32,
}

/// How to classify.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// Spilling has begun.
    pub retry: bool,
    /// Costs above this are *High*.
    pub cost_threshold: f32,
    /// Whether pair modes count.
    pub paired: bool,
}

/// The list for a cluster.
pub fn classify(traits: &Traits, rules: &Rules) -> List {
    if traits.registers > 4 {
        List::LargeVec
    } else if !traits.constrained {
        List::Unconstrained
    } else if rules.paired && traits.pair == PairMode::LoHalf {
        List::VeryHigh
    } else if traits.flagged || traits.cost > rules.cost_threshold {
        List::High
    } else if rules.retry {
        List::LowLate
    } else {
        List::LowConf
    }
}

/// The stack of clusters, last to be placed first. `all` is in program order.
pub fn stack(all: &[Traits], rules: &Rules) -> Vec<Cluster> {
    let mut lists: [Vec<&Traits>; 6] = Default::default();
    lists.iter_mut().for_each(|list| list.reserve(all.len()));
    for traits in all {
        lists[classify(traits, rules) as usize].push(traits);
    }
    let large = std::mem::take(&mut lists[List::LargeVec as usize]);
    lists[List::VeryHigh as usize].extend(large);
    let mut stack = Vec::with_capacity(all.len());
    for list in List::DRAIN {
        let mut members = std::mem::take(&mut lists[list as usize]);
        // Popped from the top, equals come out in program order.
        members.reverse();
        if matches!(list, List::LowConf | List::LowLate) {
            sort_stably(&mut members);
        }
        stack.extend(members.iter().map(|traits| traits.cluster));
    }
    stack
}

/// Sorts by [`by_ratio`]. As long as nothing has a cost there are but a few widths.
fn sort_stably(members: &mut Vec<&Traits>) {
    const FEW: usize = 4;
    let mut keys: SmallVec<[_; FEW + 1]> = SmallVec::new();
    for traits in members.iter() {
        let key = by_ratio(traits);
        if let Err(place) = keys.binary_search(&key) {
            keys.insert(place, key);
            if keys.len() > FEW {
                members.sort_by_cached_key(|traits| by_ratio(traits));
                return;
            }
        }
    }
    if keys.len() > 1 {
        let of_key = |key| members.iter().filter(move |traits| by_ratio(traits) == key);
        *members = keys.into_iter().flat_map(of_key).copied().collect();
    }
}

/// Lowest cost per interference first, then the narrower, the lower priority.
fn by_ratio(traits: &Traits) -> (u32, u32, u32) {
    // Costs are not negative, and such numbers are in the order of their bits.
    let ratio = traits.cost / traits.interference.max(1.0);
    (ratio.to_bits(), traits.registers as u32, traits.priority)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cranelift_entity::EntityRef;

    fn plain(id: usize) -> Traits {
        Traits {
            cluster: Cluster::new(id),
            constrained: true,
            registers: 1,
            pair: PairMode::Single,
            cost: 1.0,
            interference: 1.0,
            flagged: false,
            priority: 0,
        }
    }

    const FIRST: Rules = Rules {
        retry: false,
        cost_threshold: 100.0,
        paired: true,
    };
    const RETRY: Rules = Rules {
        retry: true,
        ..FIRST
    };

    /// The criteria of `docs/sources.md#fatpoint-six-lists`.
    #[test]
    fn the_six_criteria() {
        let free = Traits {
            constrained: false,
            ..plain(0)
        };
        assert_eq!(classify(&free, &FIRST), List::Unconstrained);
        let half = Traits {
            pair: PairMode::LoHalf,
            ..plain(0)
        };
        assert_eq!(classify(&half, &FIRST), List::VeryHigh);
        let dear = Traits {
            cost: 101.0,
            ..plain(0)
        };
        assert_eq!(classify(&dear, &FIRST), List::High);
        let no_dearer = Traits {
            cost: FIRST.cost_threshold,
            ..plain(0)
        };
        assert_eq!(classify(&no_dearer, &FIRST), List::LowConf);
        let flagged = Traits {
            flagged: true,
            ..plain(0)
        };
        assert_eq!(classify(&flagged, &FIRST), List::High);
        assert_eq!(classify(&plain(0), &FIRST), List::LowConf);
        assert_eq!(classify(&plain(0), &RETRY), List::LowLate);
        let tuple = Traits {
            registers: 5,
            ..plain(0)
        };
        assert_eq!(classify(&tuple, &FIRST), List::LargeVec);
        let quad = Traits {
            registers: 4,
            ..plain(0)
        };
        assert_eq!(classify(&quad, &FIRST), List::LowConf);
    }

    #[test]
    fn drained_in_the_documented_order_and_popped_in_reverse() {
        let low = Traits {
            cost: 8.0,
            interference: 2.0,
            ..plain(0)
        };
        let lower = Traits {
            cost: 9.0,
            interference: 9.0,
            ..plain(1)
        };
        let high = Traits {
            flagged: true,
            ..plain(2)
        };
        let half = Traits {
            pair: PairMode::LoHalf,
            ..plain(3)
        };
        let tuple = Traits {
            registers: 8,
            ..plain(4)
        };
        let free = Traits {
            constrained: false,
            ..plain(5)
        };
        let later = Traits {
            constrained: false,
            ..plain(6)
        };
        let stack = stack(&[low, lower, high, half, tuple, free, later], &FIRST);
        let drained: Vec<_> = stack.iter().map(|c| c.index()).collect();
        assert_eq!(drained, [6, 5, 4, 3, 2, 1, 0]);
    }

    #[test]
    fn equal_ratios_are_settled_by_width_then_priority_then_place() {
        let wide = Traits {
            registers: 2,
            ..plain(0)
        };
        let urgent = Traits {
            priority: 3,
            ..plain(1)
        };
        let drained = stack(&[wide, urgent, plain(2), plain(3)], &FIRST);
        assert_eq!(
            drained.iter().map(|c| c.index()).collect::<Vec<_>>(),
            [3, 2, 1, 0]
        );
    }
}
