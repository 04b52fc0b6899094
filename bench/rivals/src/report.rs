//! Tables in Markdown.

use crate::measure::{Outcome, Sample};
use std::collections::BTreeMap;

/// The names of the allocators, and which of them costs are compared with.
pub struct Columns<'a> {
    pub names: Vec<&'a str>,
    /// Whether each allocator may reorder instructions.
    pub reorders: Vec<bool>,
    pub base: usize,
}

/// A table of several lines.
pub struct Table {
    text: String,
}

impl Table {
    pub fn new(head: &[&str]) -> Table {
        let text = format!("| {} |\n|{}\n", head.join(" | "), "---|".repeat(head.len()));
        Table { text }
    }

    pub fn row(&mut self, cells: &[String]) {
        self.text += &format!("| {} |\n", cells.join(" | "));
    }

    pub fn finish(self) -> String {
        self.text + "\n"
    }
}

/// A figure with as many digits as it deserves, thousands apart.
pub fn number(x: f64) -> String {
    if x < 9.995 {
        return format!("{x:.2}");
    }
    if x < 99.95 {
        return format!("{x:.1}");
    }
    let digits = format!("{x:.0}");
    let mut out = String::new();
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn geometric_mean(of: impl Iterator<Item = f64>) -> Option<f64> {
    let (mut sum, mut count) = (0.0, 0);
    for x in of {
        sum += x.ln();
        count += 1;
    }
    (count > 0).then(|| f64::exp(sum / f64::from(count)))
}

/// Cost over the base's, with one added to both so that code without cost compares. Constants
/// that moved out of a loop can make a cost negative, which counts as none.
fn ratio(of: &Outcome, base: &Outcome) -> f64 {
    (of.counts.cost.max(0.0) + 1.0) / (base.counts.cost.max(0.0) + 1.0)
}

/// The outcomes of allocator `a`, each with its sample.
fn outcomes<'s>(
    samples: &'s [&'s Sample],
    a: usize,
) -> impl Iterator<Item = (&'s Sample, &'s Outcome)> {
    let pair = move |s: &&'s Sample| s.outcomes[a].as_ref().map(|o| (*s, o));
    samples.iter().filter_map(pair)
}

fn ratios<'s>(samples: &'s [&'s Sample], a: usize, base: usize) -> impl Iterator<Item = f64> {
    let of = move |(s, o): (&'s Sample, &'s Outcome)| Some(ratio(o, s.outcomes[base].as_ref()?));
    outcomes(samples, a).filter_map(of)
}

fn mean_time(samples: &[&Sample], a: usize) -> Option<f64> {
    geometric_mean(outcomes(samples, a).map(|(s, o)| o.nanos / s.insts as f64))
}

fn mean_peak(samples: &[&Sample], a: usize) -> Option<f64> {
    let peaks = outcomes(samples, a).filter_map(|(_, o)| o.peak);
    geometric_mean(peaks.map(|bytes| bytes as f64 / 1e6))
}

fn cell(x: Option<f64>) -> String {
    x.map_or("–".to_owned(), number)
}

/// Samples by a key, in the order of the keys.
fn groups<K: Ord>(samples: &[Sample], key: impl Fn(&Sample) -> K) -> BTreeMap<K, Vec<&Sample>> {
    let mut groups: BTreeMap<K, Vec<&Sample>> = BTreeMap::new();
    for sample in samples {
        groups.entry(key(sample)).or_default().push(sample);
    }
    groups
}

fn fits_or_spills(spills: bool) -> &'static str {
    if spills { "spills" } else { "fits" }
}

/// One line per size: geometric means of time per instruction, cost and memory.
pub fn summary(samples: &[Sample], columns: &Columns) -> String {
    let mut head = vec!["shape", "instructions", "MaxLive", "functions"];
    head.extend(&columns.names);
    let mut table = Table::new(&head);
    // Between the pressures that fit and those that spill, at MaxLive = K, has its own table.
    let apart: Vec<Sample> = samples
        .iter()
        .filter(|s| s.max_live != s.k)
        .cloned()
        .collect();
    for ((shape, size, spills), group) in groups(&apart, |s| (s.shape.clone(), s.size, !s.fits())) {
        let what = fits_or_spills(spills);
        let mut cells = vec![
            shape,
            number(size as f64),
            what.to_owned(),
            group.len().to_string(),
        ];
        for a in 0..columns.names.len() {
            let cost = geometric_mean(ratios(&group, a, columns.base));
            let (time, peak) = (mean_time(&group, a), mean_peak(&group, a));
            cells.push(format!("{} / {} / {}", cell(time), cell(cost), cell(peak)));
        }
        table.row(&cells);
    }
    table.finish()
}

/// How many functions with MaxLive = K are spilled though they need not be.
pub fn exact_fits(samples: &[Sample], columns: &Columns) -> Option<String> {
    let exact: Vec<Sample> = samples
        .iter()
        .filter(|s| s.max_live == s.k)
        .cloned()
        .collect();
    if exact.is_empty() {
        return None;
    }
    let mut head = vec!["instructions", "K", "functions"];
    head.extend(&columns.names);
    let mut table = Table::new(&head);
    for ((size, k), group) in groups(&exact, |s| (s.size, s.k)) {
        let mut cells = vec![number(size as f64), k.to_string(), group.len().to_string()];
        for a in 0..columns.names.len() {
            let spilled = outcomes(&group, a)
                .filter(|(_, o)| o.counts.spills())
                .count();
            let known = outcomes(&group, a).count() > 0;
            cells.push(if known {
                spilled.to_string()
            } else {
                "–".to_owned()
            });
        }
        table.row(&cells);
    }
    Some(table.finish())
}

/// One line per group and allocator, with counts.
pub fn detail(samples: &[Sample], columns: &Columns, with_size: bool) -> String {
    let base = columns.names[columns.base];
    let (mean, worst) = (
        format!("cost / {base}, mean"),
        format!("cost / {base}, worst"),
    );
    let mut head = vec![
        "functions",
        "K",
        "allocator",
        "ns per instruction",
        "cost",
        &mean,
        &worst,
    ];
    head.extend([
        "moves", "stores", "reloads", "remats", "peak MB", "spilling",
    ]);
    let mut table = Table::new(&head);
    let size = |s: &Sample| if with_size { s.size } else { 0 };
    for ((size, k, spills), group) in groups(samples, |s| (size(s), s.k, !s.fits())) {
        let insts: usize = group.iter().map(|s| s.insts).sum();
        let what = match with_size {
            true => format!("{} of {}", group.len(), number(size as f64)),
            false => format!("{}, {} instructions", group.len(), number(insts as f64)),
        };
        for (a, name) in columns.names.iter().enumerate() {
            let all = || outcomes(&group, a);
            if all().count() == 0 {
                continue;
            }
            let total = |of: fn(&Outcome) -> f64| number(all().map(|(_, o)| of(o)).sum());
            let count = |of: fn(&Outcome) -> u64| {
                let sum: u64 = all().map(|(_, o)| of(o)).sum();
                sum.to_string()
            };
            let worst = ratios(&group, a, columns.base).reduce(f64::max);
            table.row(&[
                format!("{what}, {}", fits_or_spills(spills)),
                k.to_string(),
                (*name).to_owned(),
                cell(mean_time(&group, a)),
                total(|o| o.counts.cost),
                cell(geometric_mean(ratios(&group, a, columns.base))),
                cell(worst),
                count(|o| o.counts.moves),
                count(|o| o.counts.stores),
                count(|o| o.counts.loads),
                count(|o| o.counts.remats),
                cell(mean_peak(&group, a)),
                format!(
                    "{}/{}",
                    all().filter(|(_, o)| o.counts.spills()).count(),
                    all().count()
                ),
            ]);
        }
    }
    table.finish()
}

/// Costs over the optimum, of the allocators that keep the given order.
pub fn optima(samples: &[Sample], columns: &Columns) -> String {
    let kept = (0..columns.names.len()).filter(|&a| !columns.reorders[a]);
    let kept: Vec<usize> = kept.collect();
    let mut head = vec![
        "shape",
        "K",
        "MaxLive",
        "functions",
        "optimum",
        "furthest next use",
    ];
    head.extend(kept.iter().map(|&a| columns.names[a]));
    let mut table = Table::new(&head);
    let known: Vec<Sample> = samples
        .iter()
        .filter(|s| s.optimum.is_some())
        .cloned()
        .collect();
    let mut line = |shape: String, k: String, max_live: String, group: &[&Sample]| {
        let sum: f64 = group.iter().filter_map(|s| s.optimum).sum();
        let over = |costs: Vec<(f64, f64)>| {
            if costs.is_empty() {
                return "–".to_owned();
            }
            let hits = costs
                .iter()
                .filter(|(cost, least)| cost - least < 0.5)
                .count();
            let (cost, least) = costs.iter().fold((0.0, 0.0), |s, c| (s.0 + c.0, s.1 + c.1));
            format!("{:.2} ({hits})", cost / least)
        };
        let furthest = group.iter().filter_map(|s| Some((s.furthest?, s.optimum?)));
        let mut cells = vec![shape, k, max_live, group.len().to_string(), number(sum)];
        cells.push(over(furthest.collect()));
        for &a in &kept {
            let costs = outcomes(group, a).filter_map(|(s, o)| Some((o.counts.cost, s.optimum?)));
            cells.push(over(costs.collect()));
        }
        table.row(&cells);
    };
    for (shape, group) in groups(&known, |s| s.shape.clone()) {
        let own: Vec<Sample> = group.iter().map(|s| (*s).clone()).collect();
        for ((k, max_live), group) in groups(&own, |s| (s.k, s.max_live)) {
            line(shape.clone(), k.to_string(), max_live.to_string(), &group);
        }
        line(shape, "all".to_owned(), "all".to_owned(), &group);
    }
    table.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::Counts;

    #[test]
    fn figures_have_three_digits_or_more() {
        let shown = [
            0.0,
            1.0 / 3.0,
            9.994,
            12.34,
            99.96,
            999.4,
            1234.0,
            1_234_567.0,
        ];
        let expected = [
            "0.00",
            "0.33",
            "9.99",
            "12.3",
            "100",
            "999",
            "1,234",
            "1,234,567",
        ];
        assert_eq!(shown.map(number), expected);
    }

    #[test]
    fn costs_are_compared_function_by_function_with_the_base() {
        let outcome = |cost, nanos| {
            let counts = Counts {
                cost,
                ..Counts::default()
            };
            Some(Outcome {
                nanos,
                peak: None,
                counts,
            })
        };
        let sample = |costs: [f64; 2]| Sample {
            shape: "straight".to_owned(),
            size: 100,
            insts: 100,
            k: 8,
            max_live: 10,
            optimum: Some(3.0),
            furthest: None,
            outcomes: vec![outcome(costs[0], 1000.0), outcome(costs[1], 4000.0)],
        };
        let samples = [sample([3.0, 7.0]), sample([1.0, 15.0])];
        let columns = Columns {
            names: vec!["one", "other"],
            reorders: vec![false, false],
            base: 0,
        };
        // 8/4 and 16/2 have the mean 4; nobody said how much memory.
        let expected = "| straight | 100 | spills | 2 | 10.0 / 1.00 / – | 40.0 / 4.00 / – |";
        assert_eq!(summary(&samples, &columns).lines().nth(2), Some(expected));
        let free = Sample {
            outcomes: vec![outcome(0.0, 1.0), outcome(-9.0, 1.0)],
            ..sample([0.0, 0.0])
        };
        assert_eq!(ratios(&[&free], 1, 0).next(), Some(1.0));
        let expected = "| straight | 8 | 10 | 2 | 6.00 | – | 0.67 (2) | 3.67 (0) |";
        assert_eq!(optima(&samples, &columns).lines().nth(2), Some(expected));
    }
}
