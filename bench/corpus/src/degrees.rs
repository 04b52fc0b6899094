//! How much lower splitting makes the average degree of interference graphs.

use std::fmt;

use warpalloc::internals::{DegreeChange, Degrees, SplitPolicy};

/// The policies to compare, by name.
pub fn policies() -> [(&'static str, SplitPolicy); 3] {
    [
        ("finely", SplitPolicy::finely()),
        ("at loops", SplitPolicy::default()),
        ("reported", SplitPolicy::reported()),
    ]
}

/// One line about the function called `name`.
pub fn describe(name: &str, change: &DegreeChange) -> String {
    let Degrees { before, after } = change.crowded;
    format!(
        "    {name}: {} values, {} with pieces, average degree {:.1}, then {:.1}, {:.1} % lower",
        before.nodes,
        after.nodes,
        before.average_degree(),
        after.average_degree(),
        100.0 * change.crowded.fall()
    )
}

/// Many functions at one budget under one policy, as a row of a table.
pub struct Row {
    cells: Vec<String>,
}

impl Row {
    /// The table's head.
    pub const HEADER: &str = "\
| splitting | registers | crowded functions | values | pieces and values | copies | average degree | split | lower by | mean of functions | whole graphs lower by | mean of functions |
|---|---|---|---|---|---|---|---|---|---|---|---|";

    /// What the columns mean.
    pub const LEGEND: &str = "\
The functions are those with a register file over capacity at the budget. The first figures are of the values of
such files, the last two of whole graphs; values of different files never interfere, and only values of files over
capacity are split. The average degree is that of the first interference graph, unweighted, whole and split. *Lower by*
takes the graphs of all functions as one (edges over nodes); *mean* is the mean of what each function gains.
";

    /// Sums up the functions that are `crowded`.
    pub fn of(policy: &str, regs: usize, crowded: &[DegreeChange]) -> Row {
        let of_files = Falls::of(crowded.iter().map(|change| change.crowded));
        let of_all = Falls::of(crowded.iter().map(|change| change.all));
        let copies: u32 = crowded.iter().map(|change| change.counts.copies).sum();
        let Degrees { before, after } = of_files.pooled;
        let percent = |part: f64| format!("{:.1} %", 100.0 * part);
        Row {
            cells: vec![
                policy.to_owned(),
                regs.to_string(),
                crowded.len().to_string(),
                before.nodes.to_string(),
                after.nodes.to_string(),
                copies.to_string(),
                format!("{:.1}", before.average_degree()),
                format!("{:.1}", after.average_degree()),
                percent(of_files.pooled.fall()),
                percent(of_files.mean),
                percent(of_all.pooled.fall()),
                percent(of_all.mean),
            ],
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "| {} |", self.cells.join(" | "))
    }
}

/// The graphs of many functions, as one graph and one by one.
struct Falls {
    pooled: Degrees,
    /// The mean of what each function gains.
    mean: f64,
}

impl Falls {
    fn of(graphs: impl ExactSizeIterator<Item = Degrees>) -> Falls {
        let count = graphs.len().max(1) as f64;
        let mut falls = Falls {
            pooled: Degrees::default(),
            mean: 0.0,
        };
        for degrees in graphs {
            falls.pooled.add(&degrees);
            falls.mean += degrees.fall() / count;
        }
        falls
    }
}
