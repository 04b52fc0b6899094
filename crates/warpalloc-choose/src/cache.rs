//! Choices kept from one call to the next, by content.
//!
//! Only what was chosen is kept, not what was made of it: the kernel is allocated and proved
//! again, so that a choice made by another build of this program can be less than the best and
//! never wrong.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::candidate::Candidate;
use crate::choose::{Judged, KernelChoice, Request};
use crate::judge::Machine;
use crate::ptxas::Ptxas;

/// A folder of choices.
#[derive(Clone, Debug)]
pub struct Cache {
    folder: PathBuf,
}

impl Cache {
    /// The choices in a folder, which is made when the first is kept.
    pub fn at(folder: &Path) -> Cache {
        Cache {
            folder: folder.to_owned(),
        }
    }

    /// The user's own: `warpalloc/choices` in `XDG_CACHE_HOME` or `~/.cache`.
    pub fn of_user() -> Option<Cache> {
        let named = std::env::var_os("XDG_CACHE_HOME").filter(|folder| !folder.is_empty());
        let folder = match named {
            Some(folder) => PathBuf::from(folder),
            None => Path::new(&std::env::var_os("HOME")?).join(".cache"),
        };
        Some(Cache::at(&folder.join("warpalloc").join("choices")))
    }

    /// What was chosen for such a request.
    pub(crate) fn get(&self, request: &Request) -> Option<Vec<KernelChoice>> {
        let text = fs::read_to_string(self.file(request)).ok()?;
        let kept: Value = serde_json::from_str(&text).ok()?;
        kept.as_array()?.iter().map(read_choice).collect()
    }

    /// Keeps what was chosen. A folder that cannot be written to keeps nothing.
    pub(crate) fn put(&self, request: &Request, kernels: &[KernelChoice]) {
        let kept: Vec<Value> = kernels.iter().map(write_choice).collect();
        let write = || -> std::io::Result<()> {
            fs::create_dir_all(&self.folder)?;
            let mut file = tempfile::NamedTempFile::new_in(&self.folder)?;
            file.write_all(Value::from(kept).to_string().as_bytes())?;
            file.persist(self.file(request))?;
            Ok(())
        };
        let _ = write();
    }

    fn file(&self, request: &Request) -> PathBuf {
        let mut hash = Sha256::new();
        let mut part = |text: &str| {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text.as_bytes());
        };
        part(env!("CARGO_PKG_VERSION"));
        part(request.source);
        part(&format!("{:?}", request.options));
        part(&request.ptxas.map_or(String::new(), Ptxas::identity));
        let candidates = Candidate::rows(true);
        part(&format!("{:?} {candidates:?}", Machine::H200));
        part(&format!("{:?} {:?}", request.grid, request.dynamic_shared));
        part(match (request.machine_code, request.uncapped) {
            (true, true) => "machine code, uncapped",
            (true, false) => "machine code",
            (false, _) => "",
        });
        self.folder.join(format!("{:x}.json", hash.finalize()))
    }
}

fn write_choice(choice: &KernelChoice) -> Value {
    let candidate = |judged: &Judged| match &judged.ratios {
        Ok(ratios) => json!({ "candidate": judged.candidate.to_string(), "ratios": ratios }),
        Err(reason) => json!({ "candidate": judged.candidate.to_string(), "reason": reason }),
    };
    json!({
        "name": choice.name,
        "chosen": choice.chosen.to_string(),
        "reason": choice.reason,
        "candidates": choice.candidates.iter().map(candidate).collect::<Vec<_>>(),
    })
}

fn read_choice(kept: &Value) -> Option<KernelChoice> {
    let candidates = kept["candidates"].as_array()?.iter().map(|kept| {
        let ratio = |index: usize| kept["ratios"][index].as_f64();
        Some(Judged {
            candidate: named(&kept["candidate"])?,
            ratios: match (ratio(0), ratio(1)) {
                (Some(alone), Some(full)) => Ok([alone, full]),
                _ => Err(kept["reason"].as_str()?.to_owned()),
            },
        })
    });
    Some(KernelChoice {
        name: kept["name"].as_str()?.to_owned(),
        chosen: named(&kept["chosen"])?,
        reason: kept["reason"].as_str()?.to_owned(),
        candidates: candidates.collect::<Option<_>>()?,
    })
}

fn named(kept: &Value) -> Option<Candidate> {
    Candidate::named(kept.as_str()?)
}
