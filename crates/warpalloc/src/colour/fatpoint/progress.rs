//! Whether rounds make progress.
//!
//! Making room for the clusters that a round left over may push out as many elsewhere, and
//! the next round leaves as many over again. The stall check compares each round with the
//! one before it, so that clusters are then spilled at any cost.

/// How many clusters rounds left over so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    last: Option<usize>,
    stalls: u32,
    all_stalls: u32,
}

impl Progress {
    /// Notes a round that left `left_over` clusters without a register.
    pub fn note(&mut self, left_over: usize) {
        let stalls = self.last.is_some_and(|last| left_over >= last);
        self.stalls = if stalls { self.stalls + 1 } else { 0 };
        self.all_stalls += u32::from(stalls);
        self.last = Some(left_over);
    }

    /// Rounds in a row that left no fewer over than the one before them.
    pub fn stalls(&self) -> u32 {
        self.stalls
    }

    /// All rounds that left no fewer over than the one before them.
    pub fn all_stalls(&self) -> u32 {
        self.all_stalls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_stalls_that_leaves_no_fewer_over() {
        let mut progress = Progress::default();
        let stalls: Vec<u32> = [9, 5, 5, 6, 2, 2]
            .map(|left_over| {
                progress.note(left_over);
                progress.stalls()
            })
            .to_vec();
        assert_eq!(stalls, [0, 0, 1, 2, 0, 1]);
        assert_eq!(progress.all_stalls(), 3);
    }
}
