//! Special registers.

use super::Width;

/// What a special register is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpecialReg {
    /// Width of one component.
    pub width: Width,
    /// Whether two reads by one thread may differ.
    pub volatile: bool,
    /// Components: 4 for `%tid` and its like without a suffix, else 1.
    pub lanes: u8,
}

const fn fixed(width: Width) -> SpecialReg {
    SpecialReg {
        width,
        volatile: false,
        lanes: 1,
    }
}

const fn changing(width: Width) -> SpecialReg {
    SpecialReg {
        volatile: true,
        ..fixed(width)
    }
}

/// Looks a special register up by its name, with the percent sign and with or without a component suffix.
///
/// ```
/// use warpalloc_ptx::opcode::special_register;
/// assert_eq!(special_register("%tid").map(|r| r.lanes), Some(4));
/// assert_eq!(special_register("%tid.x").map(|r| r.lanes), Some(1));
/// assert!(special_register("%clock64").is_some_and(|r| r.volatile));
/// assert_eq!(special_register("%r1"), None);
/// ```
pub fn special_register(name: &str) -> Option<SpecialReg> {
    let bare = name.strip_prefix('%')?;
    match bare.split_once('.') {
        Some((vector, "x" | "y" | "z" | "w")) => is_vector(vector).then_some(fixed(Width::B32)),
        Some(_) => None,
        None if is_vector(bare) => Some(SpecialReg {
            lanes: 4,
            ..fixed(Width::B32)
        }),
        None => scalar(bare),
    }
}

fn is_vector(bare: &str) -> bool {
    matches!(
        bare,
        "tid"
            | "ntid"
            | "ctaid"
            | "nctaid"
            | "clusterid"
            | "nclusterid"
            | "cluster_ctaid"
            | "cluster_nctaid"
    )
}

fn scalar(bare: &str) -> Option<SpecialReg> {
    use Width::*;
    Some(match bare {
        "laneid" | "nwarpid" | "nsmid" | "cluster_ctarank" | "cluster_nctarank" => fixed(B32),
        "lanemask_eq" | "lanemask_le" | "lanemask_lt" | "lanemask_ge" | "lanemask_gt" => fixed(B32),
        "total_smem_size" | "aggr_smem_size" | "dynamic_smem_size" => fixed(B32),
        "reserved_smem_offset_begin" | "reserved_smem_offset_end" | "reserved_smem_offset_cap" => {
            fixed(B32)
        }
        "gridid" | "current_graph_exec" => fixed(B64),
        "is_explicit_cluster" => fixed(B1),
        // A thread may be moved to another warp slot or multiprocessor.
        "warpid" | "smid" => changing(B32),
        "clock" | "clock_hi" | "globaltimer_lo" | "globaltimer_hi" => changing(B32),
        "clock64" | "globaltimer" => changing(B64),
        _ => return numbered(bare),
    })
}

fn numbered(bare: &str) -> Option<SpecialReg> {
    let below = |digits: &str, limit: u8| {
        let plain = digits == "0" || !digits.starts_with('0');
        plain
            && digits.bytes().all(|c| c.is_ascii_digit())
            && digits.parse::<u8>().is_ok_and(|n| n < limit)
    };
    if let Some(digits) = bare.strip_prefix("envreg") {
        return below(digits, 32).then_some(fixed(Width::B32));
    }
    if let Some(digits) = bare.strip_prefix("reserved_smem_offset_") {
        return below(digits, 2).then_some(fixed(Width::B32));
    }
    let counter = bare.strip_prefix("pm")?;
    match counter.strip_suffix("_64") {
        Some(digits) => below(digits, 8).then_some(changing(Width::B64)),
        None => below(counter, 8).then_some(changing(Width::B32)),
    }
}
