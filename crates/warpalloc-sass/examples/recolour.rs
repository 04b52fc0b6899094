//! Recolours every kernel of given cubins and prints what became of each.
//!
//! ```text
//! cargo run --release -p warpalloc-sass --example recolour -- [--strategy NAME] [--fewest] [--random SEED] FILE-OR-FOLDER...
//! ```

use std::path::{Path, PathBuf};
use std::time::Instant;
use warpalloc::Strategy;
use warpalloc_sass::recolour::{Goal, RecolourOptions, recolour_cubin};

fn files(path: &Path, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    if path.is_dir() {
        for entry in std::fs::read_dir(path)? {
            files(&entry?.path(), found)?;
        }
    } else if path.extension().is_some_and(|e| e == "cubin") {
        found.push(path.to_owned());
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut options = RecolourOptions::default();
    let mut paths = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--strategy" => {
                let name = arguments.next().unwrap_or_default();
                options.strategy = Strategy::named(&name).ok_or("no such strategy")?;
            }
            "--fewest" => options.goal = Goal::Fewest,
            "--random" => options.random = Some(arguments.next().unwrap_or_default().parse()?),
            path => files(Path::new(path), &mut paths)?,
        }
    }
    paths.sort();
    let (mut kernels, mut refused, mut fewer, mut saved) = (0, 0, 0, 0);
    let start = Instant::now();
    for path in &paths {
        let bytes = std::fs::read(path)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let outcomes = match recolour_cubin(&bytes, &options, |_| true) {
            Ok((_, outcomes)) => outcomes,
            Err(error) => {
                println!("{name}: {error}");
                continue;
            }
        };
        for outcome in outcomes {
            kernels += 1;
            let title: String = outcome.name.chars().take(40).collect();
            match outcome.result {
                Ok(done) => {
                    let (before, after) = (done.registers_before, done.registers_after);
                    fewer += usize::from(after < before);
                    saved += before - after;
                    println!(
                        "{name} {title}: {before} -> {after} (fewest {}, floor {}), moved {}/{}, banks kept {:.2}, {:?}",
                        done.fewest,
                        done.floor,
                        done.moved,
                        done.values,
                        done.kept_banks,
                        done.added
                    );
                }
                Err(error) => {
                    refused += 1;
                    println!("{name} {title}: refused: {error}");
                }
            }
        }
    }
    println!(
        "{kernels} kernels, {refused} refused, {fewer} with fewer registers, {saved} registers saved, {:.1} s",
        start.elapsed().as_secs_f64()
    );
    Ok(())
}
