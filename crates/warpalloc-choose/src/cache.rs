//! Choices and what was made of them, kept from one call to the next by content.
//!
//! A result was proved when it was made, and is given back as it was to the same build of this program
//! alone: the key holds a digest of its sources. What was damaged on the way is not found, and the
//! oldest results make room for new ones.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use warpalloc_ptx::module::ModuleResult;

use crate::candidate::Candidate;
use crate::choose::{Choice, Judged, KernelChoice, Request};
use crate::ptxas::Ptxas;

/// How the names of files with choices end.
const CHOICE: &str = "choice";
/// How the names of files with machine code end.
const CUBIN: &str = "cubin";
/// Bytes of the digest behind what is kept.
const DIGEST: usize = 32;
/// Bytes that a folder keeps at most.
const MOST_BYTES: u64 = 256 * 1024 * 1024;

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

    /// What was chosen for such a request, and made of it.
    pub(crate) fn get(&self, request: &Request) -> Option<Choice> {
        let kept: Value = serde_json::from_slice(&self.read(request, None)?).ok()?;
        let kernels = kept["kernels"].as_array()?.iter().map(read_choice);
        Some(Choice {
            kernels: kernels.collect::<Option<_>>()?,
            result: ModuleResult::deserialize(&kept["result"]).ok()?,
        })
    }

    /// Keeps a choice. A folder that cannot be written to keeps nothing.
    pub(crate) fn put(&self, request: &Request, choice: &Choice) {
        let Ok(result) = serde_json::to_value(&choice.result) else {
            return;
        };
        let kernels: Vec<Value> = choice.kernels.iter().map(write_choice).collect();
        let kept = json!({ "kernels": kernels, "result": result });
        self.write(request, None, kept.to_string().as_bytes());
    }

    /// The machine code of a choice for such a request.
    pub(crate) fn cubin(&self, request: &Request, choice: &Choice) -> Option<Vec<u8>> {
        self.read(request, Some(choice))
    }

    /// Keeps the machine code of a choice.
    pub(crate) fn put_cubin(&self, request: &Request, choice: &Choice, cubin: &[u8]) {
        self.write(request, Some(choice), cubin);
    }

    /// What is kept for a request, if it is what was written: the machine code of a choice, or else the
    /// choice.
    fn read(&self, request: &Request, assembled: Option<&Choice>) -> Option<Vec<u8>> {
        let mut kept = fs::read(self.file(request, assembled)).ok()?;
        let at = kept.len().checked_sub(DIGEST)?;
        let digest = kept.split_off(at);
        (Sha256::digest(&kept)[..] == digest[..]).then_some(kept)
    }

    fn write(&self, request: &Request, assembled: Option<&Choice>, content: &[u8]) {
        let write = || -> std::io::Result<()> {
            fs::create_dir_all(&self.folder)?;
            let mut file = tempfile::NamedTempFile::new_in(&self.folder)?;
            file.write_all(content)?;
            file.write_all(&Sha256::digest(content))?;
            file.persist(self.file(request, assembled))?;
            self.make_room(MOST_BYTES)
        };
        let _ = write();
    }

    /// Removes the oldest results until the rest takes at most so many bytes. Files that are not of this
    /// cache stay.
    fn make_room(&self, most: u64) -> std::io::Result<()> {
        let mut kept = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            // Another process may have removed it.
            if let Ok(facts) = entry.metadata()
                && is_kept(&entry.path())
            {
                kept.push((facts.modified()?, facts.len(), entry.path()));
            }
        }
        kept.sort();
        let mut bytes: u64 = kept.iter().map(|(_, bytes, _)| bytes).sum();
        for (_, own, path) in kept {
            if bytes <= most {
                break;
            }
            let _ = fs::remove_file(path);
            bytes -= own;
        }
        Ok(())
    }

    fn file(&self, request: &Request, assembled: Option<&Choice>) -> PathBuf {
        let mut hash = Sha256::new();
        let mut part = |text: &str| {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text.as_bytes());
        };
        part(env!("CARGO_PKG_VERSION"));
        part(env!("WARPALLOC_SOURCES"));
        part(request.source);
        part(&format!("{:?}", request.options));
        part(&request.ptxas.map_or(String::new(), Ptxas::identity));
        part(&format!("{:?} {:?}", request.grid, request.dynamic_shared));
        part(match (request.machine_code, request.uncapped) {
            (true, true) => "machine code, uncapped",
            (true, false) => "machine code",
            (false, _) => "",
        });
        if let Some(choice) = assembled {
            part(&choice.result.text);
            for kernel in &choice.kernels {
                part(&kernel.name);
                part(&kernel.chosen.to_string());
            }
        }
        let kind = if assembled.is_some() { CUBIN } else { CHOICE };
        self.folder.join(format!("{:x}.{kind}", hash.finalize()))
    }
}

/// Whether a file is named as this cache names them.
fn is_kept(path: &Path) -> bool {
    let part = |part: Option<&std::ffi::OsStr>| part.and_then(|p| p.to_str()).map(str::to_owned);
    let is_digest =
        |stem: String| stem.len() == 2 * DIGEST && stem.bytes().all(|b| b.is_ascii_hexdigit());
    part(path.file_stem()).is_some_and(is_digest)
        && part(path.extension()).is_some_and(|kind| [CHOICE, CUBIN].contains(&&kind[..]))
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, SystemTime};

    #[test]
    fn the_oldest_results_make_room_and_other_files_stay() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path());
        let write = |name: &str, age: u64| {
            let path = folder.path().join(name);
            fs::write(&path, [0; 100]).unwrap();
            let file = fs::File::options().write(true).open(path).unwrap();
            let written = SystemTime::now() - Duration::from_secs(age);
            file.set_modified(written).unwrap();
        };
        let name = |digit: &str, kind: &str| format!("{}.{kind}", digit.repeat(64));
        write(&name("a", CHOICE), 10);
        write(&name("b", CUBIN), 30);
        write(&name("c", CHOICE), 20);
        write("notes.choice", 40);
        cache.make_room(300).unwrap();
        let is_there = |name: &str| folder.path().join(name).exists();
        assert!(is_there(&name("b", CUBIN)), "all of them fit");
        cache.make_room(299).unwrap();
        assert!(!is_there(&name("b", CUBIN)));
        assert!(is_there(&name("a", CHOICE)) && is_there(&name("c", CHOICE)));
        assert!(is_there("notes.choice"));
    }
}
