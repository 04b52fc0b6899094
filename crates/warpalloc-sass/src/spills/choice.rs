//! Which words of the frame move to shared memory.

use super::frame::Frame;

/// What stays where it is, or the number of a word in shared memory, for each word of the frame.
pub(super) type Places = Vec<Option<u32>>;

/// Words that go together, since one access touches them all.
struct Group {
    words: Vec<usize>,
    weight: u64,
}

/// The words that are accessed most, as many as `room` allows. Words that no access touches get
/// no place.
pub(super) fn choose(frame: &Frame, room: u32) -> Places {
    let mut places = vec![None; frame.bytes.div_ceil(4) as usize];
    let mut next = 0u32;
    for group in groups(frame) {
        let words = group.words.len() as u32;
        if next + words <= room {
            for (word, place) in group.words.iter().zip(next..) {
                places[*word] = Some(place);
            }
            next += words;
        }
    }
    places
}

/// How many words are accessed.
pub(super) fn words_used(frame: &Frame) -> u32 {
    groups(frame)
        .iter()
        .map(|group| group.words.len() as u32)
        .sum()
}

/// The groups, those with the most accesses to a word first.
fn groups(frame: &Frame) -> Vec<Group> {
    let count = frame.bytes.div_ceil(4) as usize;
    // A word's group is named by its lowest word.
    let mut name: Vec<usize> = (0..count).collect();
    let mut used = vec![false; count];
    for spill in &frame.spills {
        let words = spill.words();
        let lowest = words.clone().map(|word| name[word]).min().unwrap_or(0);
        let merged: Vec<usize> = words.clone().map(|word| name[word]).collect();
        used[words].fill(true);
        for of in &mut name {
            if merged.contains(of) {
                *of = lowest;
            }
        }
    }
    let mut groups: Vec<Group> = Vec::new();
    let mut position = vec![None; count];
    for word in (0..count).filter(|&word| used[word]) {
        let at = *position[name[word]].get_or_insert_with(|| {
            groups.push(Group {
                words: Vec::new(),
                weight: 0,
            });
            groups.len() - 1
        });
        groups[at].words.push(word);
    }
    for spill in &frame.spills {
        let first = spill.words().start;
        if let Some(at) = position[name[first]] {
            groups[at].weight += spill.weight * spill.words().len() as u64;
        }
    }
    // By weight per word, without division; then by place, so that the order is one.
    groups.sort_by(|a, b| {
        let (left, right) = (
            u128::from(a.weight) * b.words.len() as u128,
            u128::from(b.weight) * a.words.len() as u128,
        );
        right.cmp(&left).then_with(|| a.words.cmp(&b.words))
    });
    groups
}

#[cfg(test)]
mod tests {
    use super::super::frame::Spill;
    use super::*;

    fn frame() -> Frame {
        let spill = |offset, bytes, weight| Spill {
            index: 0,
            offset,
            bytes,
            weight,
        };
        Frame {
            bytes: 32,
            setup: vec![],
            // Words 0 and 1 together, 2 in a loop, 4 to 7 together by two accesses that overlap.
            spills: vec![
                spill(0, 8, 1),
                spill(4, 4, 1),
                spill(8, 4, 10),
                spill(16, 8, 1),
                spill(20, 8, 1),
                spill(28, 1, 1),
            ],
        }
    }

    #[test]
    fn what_one_access_touches_goes_together_and_loops_go_first() {
        assert_eq!(words_used(&frame()), 7);
        let all = choose(&frame(), 7);
        assert_eq!(all[2], Some(0), "the loop's word first");
        assert_eq!(all[3], None, "no access touches it");
        assert!(
            (0..8)
                .filter(|&word| word != 3)
                .all(|word| all[word].is_some())
        );
        // Words 4, 5 and 6 have four accesses between them, 0 and 1 have three.
        let some = choose(&frame(), 3);
        assert_eq!(some[..4], [Some(1), Some(2), Some(0), None]);
        assert_eq!(some[4..], [None; 4]);
        assert_eq!(choose(&frame(), 0), [None; 8]);
    }
}
