//! The rule: which sums take a product in.
//!
//! Readers of a product are counted through copies and negations, dead code aside. A product
//! is *open* while each of its readers is a sum of its mode, in its stretch, that adds it to
//! something else and has not taken the other operand in. A product with a constant factor
//! may be read in other stretches too, for that keeps one register alive and not two; only
//! where values meet it ends. Sums are visited in order. A sum
//! takes in the open product that has the fewest readers, the first operand's where both have
//! as many, with two exceptions:
//! - a product with several readers waits if another of them adds it to an open product that
//!   nobody else reads;
//! - a product that nobody else reads is not added to an equal one.
//!
//! Neither holds for types of which a register has two.
//!
//! A sum that has taken a product in no longer reads it, but readers stay counted as they
//! were at first.

use super::blocks::{Chain, Chains};
use super::float::{Form, Mode, form, has_constant_factor};
use super::{Code, Obstacle};
use rustc_hash::{FxHashMap, FxHashSet};
use warpalloc::function::{Inst, VReg};

/// A sum that takes a product in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fused {
    pub sum: Inst,
    /// Which of its operands is the product: 0 or 1.
    pub slot: usize,
    pub product: Inst,
    /// Whether the product is negated on its way to the sum.
    pub negated: bool,
}

/// A product that leaves its stretch.
#[derive(Clone, Debug)]
pub(super) struct Leaving {
    pub product: Inst,
    pub mode: Mode,
    /// The registers that take it out.
    pub carriers: Vec<VReg>,
    /// Whether a sum in its stretch reads it as well.
    pub has_sum: bool,
    /// Whether the rule does not say if a sum elsewhere takes it in.
    pub is_unclear: bool,
}

/// What is to be fused, and what must be foreseen for that to be right.
#[derive(Default)]
pub(super) struct Choice {
    pub fused: Vec<Fused>,
    pub leaving: Vec<Leaving>,
    /// Products that may be read in other stretches, with the sums that took them in.
    pub roaming: Vec<(Inst, Inst)>,
    /// Products that sums of several stretches read in a way that the rule does not cover.
    pub spread: Vec<Inst>,
    /// Products that sums read, and something else too, or only sums of other stretches.
    pub torn: Vec<Inst>,
    /// Copies and negations that were looked through.
    pub looked_through: FxHashSet<Inst>,
}

/// Decides for a whole function.
pub(super) fn choose(code: &Code, chains: &Chains, fmad: bool) -> Result<Choice, Obstacle> {
    let mut lines = Lines::of(code, fmad);
    for chain in &chains.chains {
        lines.walk(chain)?;
        lines.leave(chain);
    }
    Ok(lines.decide())
}

/// A product and how it got where it is.
#[derive(Clone, Copy)]
struct Held {
    product: usize,
    negated: bool,
}

/// One addend of a sum.
#[derive(Clone, Copy)]
struct Reader {
    /// Among all sums.
    sum: usize,
    slot: usize,
}

struct Product {
    inst: Inst,
    mode: Mode,
    stretch: u32,
    /// Whether sums of other stretches may take it in.
    roams: bool,
    /// Whether a factor is constant.
    is_light: bool,
    /// What it multiplies, as numbers of values in ascending order.
    factors: [u64; 2],
    /// Sums that could take it in and have not.
    readers: Vec<Reader>,
    /// The same with those that have.
    all_readers: Vec<Reader>,
    /// Readers of any kind, as counted at first.
    count: usize,
    /// Whether it is needed for more than sums.
    kept: bool,
    /// Whether sums in other stretches read it.
    is_summed_far: bool,
    /// Whether sums elsewhere would read it in a way that the rule does not cover: where it
    /// has a constant factor and shares its register, or was negated before it left.
    is_unclear: bool,
    /// The same for sums in other lines, if there are any.
    leaves_unclear: bool,
    carriers: Vec<VReg>,
}

impl Product {
    fn is_near(&self, stretch: u32) -> bool {
        self.roams || self.stretch == stretch
    }
}

struct Sum {
    inst: Inst,
    stretch: u32,
    addends: [Option<Held>; 2],
    subtracts: bool,
    is_scalar: bool,
    fused: Option<usize>,
}

/// The straight lines of a function as the rule sees them.
struct Lines<'c, 'l, 'm, 'a> {
    code: &'c Code<'l, 'm, 'a>,
    fmad: bool,
    products: Vec<Product>,
    sums: Vec<Sum>,
    /// What registers hold in the line at hand.
    held: FxHashMap<VReg, Held>,
    /// What registers hold that are written once, wherever they are read.
    held_everywhere: FxHashMap<VReg, Held>,
    /// The number of the first stretch of the line at hand.
    first_stretch: u32,
    /// The number of what each register holds, to tell equal factors.
    numbers: FxHashMap<VReg, u64>,
    next_number: u64,
    quotients: FxHashMap<VReg, (Mode, u32)>,
    looked_through: Vec<Inst>,
}

impl<'c, 'l, 'm, 'a> Lines<'c, 'l, 'm, 'a> {
    fn of(code: &'c Code<'l, 'm, 'a>, fmad: bool) -> Self {
        Lines {
            code,
            fmad,
            products: Vec::new(),
            sums: Vec::new(),
            held: FxHashMap::default(),
            held_everywhere: FxHashMap::default(),
            first_stretch: 0,
            numbers: FxHashMap::default(),
            next_number: 0,
            quotients: FxHashMap::default(),
            looked_through: Vec::new(),
        }
    }

    /// Whether ptxas contracts in this mode at all.
    fn contracts(&self, mode: Mode) -> bool {
        // Pairs of singles are contracted whatever the options say.
        self.fmad || mode.ty == super::float::Type::F32x2
    }

    fn walk(&mut self, chain: &Chain) -> Result<(), Obstacle> {
        for (&inst, &stretch) in chain.insts.iter().zip(&chain.stretches) {
            let stretch = self.first_stretch + stretch;
            let form = match self.code.is_useful(inst) {
                true => form(self.code, inst),
                false => Form::Other,
            };
            let result = self.read(inst, stretch, form)?;
            self.write(inst, stretch, form, result);
        }
        Ok(())
    }

    /// Counts `inst` as a reader, and tells the product its result is where it is one.
    fn read(&mut self, inst: Inst, stretch: u32, form: Form) -> Result<Option<Held>, Obstacle> {
        if !self.code.is_useful(inst) {
            return Ok(None);
        }
        let sum = match form {
            Form::Same {
                of,
                negated,
                flushes,
            } => {
                let held = self.holds(of).filter(|h| {
                    let product = &self.products[h.product];
                    product.is_near(stretch) && (product.mode.ftz || !flushes)
                });
                if let Some(held) = held {
                    self.looked_through.push(inst);
                    let negated = held.negated != negated;
                    return Ok(Some(Held { negated, ..held }));
                }
                None
            }
            Form::Sum {
                mode, subtracts, ..
            } if self.contracts(mode) => self.sum(inst, stretch, mode, subtracts)?,
            _ => None,
        };
        let function = self.code.function();
        for operand in function.operands(inst).iter().filter(|o| o.role.reads()) {
            let Some(held) = self.holds(operand.vreg) else {
                continue;
            };
            let is_addend = |slot: usize| {
                sum.is_some_and(|sum| {
                    self.sums[sum].addends[slot].is_some()
                        && self.code.operand_value(inst, slot + 1) == Some(operand.vreg)
                })
            };
            if operand.role.writes() || !is_addend(0) && !is_addend(1) {
                let product = &mut self.products[held.product];
                product.kept = true;
                product.count += 1;
            }
        }
        Ok(None)
    }

    /// Notes a sum with the products it could take in.
    fn sum(
        &mut self,
        inst: Inst,
        stretch: u32,
        mode: Mode,
        subtracts: bool,
    ) -> Result<Option<usize>, Obstacle> {
        let values = [1, 2].map(|number| self.code.operand_value(inst, number));
        for value in values.into_iter().flatten() {
            if self.quotients.get(&value) == Some(&(mode, stretch)) {
                let reason = "a sum of an approximate quotient, whose last product ptxas fuses";
                return Err(self.code.obstacle(inst, reason));
            }
        }
        let held = values.map(|value| self.holds(value?));
        for held in held.into_iter().flatten() {
            let product = &mut self.products[held.product];
            if product.mode == mode && !product.is_near(stretch) {
                product.is_summed_far = true;
                product.is_unclear |= product.is_light || held.negated;
            }
        }
        let addends = held.map(|held| {
            held.filter(|h| {
                let product = &self.products[h.product];
                product.mode == mode && product.is_near(stretch)
            })
        });
        if let [Some(first), Some(second)] = addends
            && first.product == second.product
        {
            // A product that is added to itself stays.
            return Ok(None);
        }
        let sum = self.sums.len();
        for (slot, held) in addends.iter().enumerate() {
            if let Some(held) = held {
                let product = &mut self.products[held.product];
                product.readers.push(Reader { sum, slot });
                product.all_readers.push(Reader { sum, slot });
                product.count += 1;
            }
        }
        self.sums.push(Sum {
            inst,
            stretch,
            addends,
            subtracts,
            is_scalar: mode.ty.is_scalar(),
            fused: None,
        });
        Ok(Some(sum))
    }

    fn write(&mut self, inst: Inst, stretch: u32, form: Form, result: Option<Held>) {
        let factors = match form {
            Form::Product(mode) if self.contracts(mode) => Some((mode, self.factors(inst))),
            _ => None,
        };
        let number = match form {
            Form::Same {
                of, negated: false, ..
            } => Some(self.number(of)),
            _ => None,
        };
        let function = self.code.function();
        for operand in function.operands(inst).iter().filter(|o| o.role.writes()) {
            let vreg = operand.vreg;
            self.held.remove(&vreg);
            let is_single = self.code.writers(vreg).len() == 1;
            self.quotients.remove(&vreg);
            let fresh = self.fresh_number();
            self.numbers.insert(vreg, number.unwrap_or(fresh));
            if let Some(held) = result {
                let everywhere = is_single && self.products[held.product].roams;
                self.hold(vreg, held, everywhere);
            }
            if let Form::Quotient(mode) = form
                && self.contracts(mode)
            {
                self.quotients.insert(vreg, (mode, stretch));
            }
            if let Some((mode, factors)) = factors {
                let product = self.products.len();
                let is_light = has_constant_factor(self.code, inst);
                let roams = is_single && is_light;
                let held = Held {
                    product,
                    negated: false,
                };
                self.hold(vreg, held, roams);
                self.products.push(Product {
                    inst,
                    mode,
                    stretch,
                    roams,
                    is_light,
                    factors,
                    readers: Vec::new(),
                    all_readers: Vec::new(),
                    count: 0,
                    kept: false,
                    is_summed_far: false,
                    is_unclear: false,
                    leaves_unclear: false,
                    carriers: Vec::new(),
                });
            }
        }
    }

    fn holds(&self, vreg: VReg) -> Option<Held> {
        let held = self.held.get(&vreg);
        held.or_else(|| self.held_everywhere.get(&vreg)).copied()
    }

    fn hold(&mut self, vreg: VReg, held: Held, everywhere: bool) {
        match everywhere {
            true => self.held_everywhere.insert(vreg, held),
            false => self.held.insert(vreg, held),
        };
    }

    fn fresh_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    fn number(&mut self, vreg: VReg) -> u64 {
        if let Some(&number) = self.numbers.get(&vreg) {
            return number;
        }
        let number = self.fresh_number();
        self.numbers.insert(vreg, number);
        number
    }

    fn factors(&mut self, inst: Inst) -> [u64; 2] {
        let mut factors = [1, 2].map(|number| match self.code.operand_value(inst, number) {
            Some(value) => self.number(value),
            // Equal constants are rare enough to count as different.
            None => self.fresh_number(),
        });
        factors.sort_unstable();
        factors
    }

    /// Finds the products that outlive the line.
    fn leave(&mut self, chain: &Chain) {
        self.first_stretch += chain.stretches.last().map_or(0, |last| last + 1);
        self.numbers.clear();
        self.quotients.clear();
        for (vreg, held) in self.held.drain() {
            if self.code.is_live_out(chain.last, vreg) {
                let product = &mut self.products[held.product];
                product.kept = true;
                product.count += 1;
                product.carriers.push(vreg);
                product.leaves_unclear |= product.is_light || held.negated;
            }
        }
    }

    /// Whether all that reads a product now are sums that could take it in.
    fn is_open(&self, product: &Product) -> bool {
        !product.kept
            && product.readers.iter().all(|reader| {
                let fused = self.sums[reader.sum].fused;
                fused.is_none() || fused == Some(reader.slot)
            })
    }

    fn decide(mut self) -> Choice {
        let mut choice = Choice::default();
        for sum in 0..self.sums.len() {
            let candidates = [0, 1].into_iter().filter_map(|slot| {
                let held = self.sums[sum].addends[slot]?;
                let product = &self.products[held.product];
                (self.is_open(product) && !self.waits(product, sum)).then_some((
                    product.count,
                    slot,
                    held,
                ))
            });
            let chosen = candidates.min_by_key(|&(count, slot, _)| (count, slot));
            let Some((count, slot, held)) = chosen else {
                continue;
            };
            if count == 1 && self.adds_equals(sum) {
                continue;
            }
            self.sums[sum].fused = Some(slot);
            let product = &mut self.products[held.product];
            product.readers.retain(|reader| reader.sum != sum);
            if product.roams {
                choice.roaming.push((product.inst, self.sums[sum].inst));
            }
            choice.fused.push(Fused {
                sum: self.sums[sum].inst,
                slot,
                product: product.inst,
                negated: held.negated,
            });
        }
        let leaving = self.products.iter().filter(|p| !p.carriers.is_empty());
        choice.leaving.extend(leaving.map(|product| Leaving {
            product: product.inst,
            mode: product.mode,
            carriers: product.carriers.clone(),
            has_sum: !product.readers.is_empty(),
            is_unclear: product.leaves_unclear,
        }));
        let is_spread = |p: &&Product| {
            p.is_unclear || p.is_summed_far && !p.readers.is_empty() || self.is_contested(p)
        };
        let spread = self.products.iter().filter(is_spread);
        choice.spread.extend(spread.map(|product| product.inst));
        let is_torn = |p: &&Product| p.is_summed_far || p.kept && !p.readers.is_empty();
        let torn = self.products.iter().filter(is_torn);
        choice.torn.extend(torn.map(|product| product.inst));
        choice.looked_through.extend(self.looked_through);
        choice
    }

    /// Whether another reader adds the product to an open one that only it reads.
    fn waits(&self, product: &Product, sum: usize) -> bool {
        product.mode.ty.is_scalar()
            && product.count > 1
            && product.readers.iter().any(|reader| {
                let other = self.sums[reader.sum].addends[1 - reader.slot];
                reader.sum != sum
                    && other.is_some_and(|other| {
                        let other = &self.products[other.product];
                        other.count == 1 && self.is_open(other)
                    })
            })
    }

    /// Whether sums of several stretches read a product, and one of them another product too.
    fn is_contested(&self, product: &Product) -> bool {
        let stretch = |reader: &Reader| self.sums[reader.sum].stretch;
        let mut readers = product.all_readers.iter();
        let first = readers.next().map(stretch);
        readers.any(|reader| Some(stretch(reader)) != first)
            && product
                .all_readers
                .iter()
                .any(|reader| self.sums[reader.sum].addends[1 - reader.slot].is_some())
    }

    fn adds_equals(&self, sum: usize) -> bool {
        let sum = &self.sums[sum];
        let [Some(first), Some(second)] = sum.addends else {
            return false;
        };
        let factors = |held: Held| self.products[held.product].factors;
        sum.is_scalar
            && !sum.subtracts
            && !first.negated
            && !second.negated
            && factors(first) == factors(second)
    }
}
