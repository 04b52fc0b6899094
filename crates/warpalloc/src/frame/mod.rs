//! The spill frame: which slots share memory, where they lie, and which accesses join.
//!
//! | step | file |
//! |---|---|
//! | local or shared memory | [`space`] |
//! | slots that are never live at once share memory | [`slot_colouring`] |
//! | offsets of slots in the frame | [`layout`] |
//! | callee-saved registers are saved and restored | [`callee_saves`] |
//! | slots whose values travel together lie side by side | [`reorder_slots`] |
//! | accesses to neighbouring slots become one wide access | [`merge_accesses`] |
//! | slots that shared memory has no room for go to local memory | [`demote`] |
//! | gaps are closed | [`compact`] |

pub(crate) mod callee_saves;
pub(crate) mod compact;
pub(crate) mod demote;
pub(crate) mod layout;
pub(crate) mod merge_accesses;
pub(crate) mod reorder_slots;
pub(crate) mod slot_colouring;
mod space;

pub(crate) use space::spill_space;

use crate::allocation::Frame;
use crate::error::{Error, Place};
use crate::target::Target;

/// Whether `target` has memory for this frame.
pub(crate) fn within_limit(target: &Target, frame: Frame) -> Result<(), Error> {
    let (needed, limit) = (frame.local.max(frame.shared), target.frame_limit());
    match needed > limit {
        false => Ok(()),
        true => Err(Error::FrameTooLarge {
            place: Place::Function,
            value: None,
            needed,
            limit,
            help: "raise the register budget, or split the function".into(),
        }),
    }
}
