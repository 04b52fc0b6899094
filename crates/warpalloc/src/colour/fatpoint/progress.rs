//! Whether attempts get anywhere.
//!
//! Making room for what an attempt left over may push out as much elsewhere, and the next
//! attempt leaves as much over again. The stall check compares each attempt with the one
//! before it, so that the retry loop can force its way.

/// What attempts left over so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    last: Option<usize>,
    stalls: u32,
    all_stalls: u32,
}

impl Progress {
    /// Takes note of an attempt that left `left_over` clusters without a register.
    pub fn note(&mut self, left_over: usize) {
        let stalls = self.last.is_some_and(|last| left_over >= last);
        self.stalls = if stalls { self.stalls + 1 } else { 0 };
        self.all_stalls += u32::from(stalls);
        self.last = Some(left_over);
    }

    /// Attempts in a row that left no fewer over than the one before them.
    pub fn stalls(&self) -> u32 {
        self.stalls
    }

    /// All attempts that left no fewer over than the one before them.
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
