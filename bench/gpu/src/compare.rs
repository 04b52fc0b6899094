//! Bit for bit: what a kernel left in memory against what it should have left.

use std::fmt;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use crate::device::Snapshot;
use crate::manifest::Access;

/// Where two outputs differ first, and by how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Difference {
    /// The position of the argument whose memory differs.
    pub argument: usize,
    /// The first byte that differs.
    pub offset: usize,
    /// How many bytes of that memory differ.
    pub bytes: usize,
    /// Out of how many.
    pub of: usize,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference {
            argument,
            offset,
            bytes,
            of,
        } = self;
        write!(
            f,
            "argument {argument} differs in {bytes} of {of} bytes, first at {offset}"
        )
    }
}

/// The first argument whose memory differs; all arguments count, inputs and guard zones included.
pub fn first_difference(expected: &[Snapshot], found: &[Snapshot]) -> Option<Difference> {
    expected.iter().zip(found).find_map(|(expected, found)| {
        let (argument, of) = (expected.argument, expected.bytes.len());
        if expected.bytes == found.bytes {
            return None;
        }
        let differs = |index: &usize| expected.bytes.get(*index) != found.bytes.get(*index);
        let longest = of.max(found.bytes.len());
        let offset = (0..longest).find(differs)?;
        let bytes = (offset..longest).filter(differs).count();
        Some(Difference {
            argument,
            offset,
            bytes,
            of,
        })
    })
}

/// Whether the reference can judge others: it repeats itself, leaves its inputs alone, and writes
/// to every output.
pub fn check_reference(before: &[Snapshot], once: &[Snapshot], again: &[Snapshot]) -> Result<()> {
    if let Some(difference) = first_difference(once, again) {
        bail!("the reference does not repeat itself: {difference}");
    }
    for (before, after) in before.iter().zip(once) {
        let changed = before.bytes != after.bytes;
        match before.access {
            Access::In if changed => bail!("the reference writes to argument {}", before.argument),
            Access::Out | Access::Inout if !changed => {
                bail!(
                    "the reference writes nothing to argument {}",
                    before.argument
                )
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(access: Access, bytes: &[u8]) -> Vec<Snapshot> {
        vec![
            Snapshot {
                argument: 1,
                access: Access::In,
                bytes: vec![9; 4],
            },
            Snapshot {
                argument: 3,
                access,
                bytes: bytes.to_vec(),
            },
        ]
    }

    #[test]
    fn one_bit_is_a_difference() {
        let expected = memory(Access::Out, &[1, 2, 3, 4]);
        assert_eq!(
            first_difference(&expected, &memory(Access::Out, &[1, 2, 3, 4])),
            None
        );
        let found = first_difference(&expected, &memory(Access::Out, &[1, 0, 3, 5])).unwrap();
        assert_eq!(
            found,
            Difference {
                argument: 3,
                offset: 1,
                bytes: 2,
                of: 4
            }
        );
        assert_eq!(
            found.to_string(),
            "argument 3 differs in 2 of 4 bytes, first at 1"
        );
    }

    #[test]
    fn a_shorter_output_differs() {
        let expected = memory(Access::Out, &[1, 2, 3, 4]);
        let found = first_difference(&expected, &memory(Access::Out, &[1, 2])).unwrap();
        assert_eq!((found.offset, found.bytes), (2, 2));
    }

    #[test]
    fn a_reference_must_repeat_itself_and_do_what_the_manifest_says() {
        let check = |access, before: &[u8], once: &[u8], again: &[u8]| {
            let (before, once) = (memory(access, before), memory(access, once));
            let result = check_reference(&before, &once, &memory(access, again));
            result.err().map(|error| error.to_string())
        };
        assert_eq!(check(Access::Out, &[0], &[1], &[1]), None);
        assert_eq!(check(Access::In, &[1], &[1], &[1]), None);
        assert!(
            check(Access::Out, &[0], &[1], &[2])
                .unwrap()
                .contains("does not repeat itself")
        );
        assert!(
            check(Access::Out, &[1], &[1], &[1])
                .unwrap()
                .contains("nothing to argument 3")
        );
        assert!(
            check(Access::In, &[0], &[1], &[1])
                .unwrap()
                .contains("writes to argument 3")
        );
    }
}
