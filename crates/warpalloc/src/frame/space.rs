//! Which memory the spill frame lies in.

use crate::allocation::Space;
use crate::error::{Error, Place};
use crate::function::{Convention, Function, Kind};
use crate::options::Options;
use crate::target::Target;

/// The memory to spill to, or why it cannot be used.
///
/// Shared memory has one frame per thread of the block at an address that the kernel
/// knows; a function that is called, or calls, shares it with code that knows nothing of
/// that frame.
pub fn spill_space(
    function: &Function,
    target: &Target,
    options: &Options,
) -> Result<Space, Error> {
    let has_shared = target.memory(Space::Shared).is_some();
    if options.spill_space == Space::Shared && !has_shared {
        return Err(Error::Impossible {
            place: Place::Function,
            value: None,
            message: format!("target {} has no shared memory to spill to", target.name()),
            help: "spill to local memory".into(),
        });
    }
    let calls = function
        .insts()
        .any(|i| function.inst(i).kind == Kind::Call);
    let uses_abi = calls || function.convention() == Convention::Device;
    match (options.spill_space, uses_abi) {
        (Space::Argument, _) => Ok(Space::Local),
        (Space::Shared, true) => Err(Error::Impossible {
            place: Place::Function,
            value: None,
            message: "it uses the calling convention, so it cannot spill to shared memory".into(),
            help: "spill to local memory, or inline the calls".into(),
        }),
        (Space::Local, false) if options.knobs.smem_spill && has_shared => Ok(Space::Shared),
        (space, _) => Ok(space),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::function::{Builder, Effect};

    #[test]
    fn shared_memory_is_refused_where_the_convention_is_used() {
        let function = |calls: bool| {
            let mut b = Builder::new("f");
            let block = b.block();
            if calls {
                b.inst(block, "call").kind(Kind::Call).effect(Effect::Write);
            }
            b.exit(block, "exit");
            b.finish()
        };
        let target = Target::hardware(90).unwrap();
        let shared = Options {
            spill_space: Space::Shared,
            ..Options::default()
        };
        assert_eq!(
            spill_space(&function(false), &target, &shared),
            Ok(Space::Shared)
        );
        let error = spill_space(&function(true), &target, &shared)
            .unwrap_err()
            .to_string();
        assert!(error.contains("cannot spill to shared memory"), "{error}");
        let mut by_knob = Options::default();
        by_knob.knobs.smem_spill = true;
        assert_eq!(
            spill_space(&function(false), &target, &by_knob),
            Ok(Space::Shared)
        );
        assert_eq!(
            spill_space(&function(true), &target, &by_knob),
            Ok(Space::Local)
        );
    }
}
