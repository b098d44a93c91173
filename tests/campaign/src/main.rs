//! The stock reader and libst side by side on damaged headers: the same verdict on each, and where both accept the same
//! names, dtypes, shapes, offsets and metadata. File number i of a seed is always the same.
//!
//!     campaign [FILES [SEED [FOLDER]]]    FOLDER: where files on which they disagree are kept
//!     campaign FILE                       compare this one

mod compare;
mod generate;
mod mutate;
mod tree;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use compare::{compare, quieten_stock, Verdict};
use mutate::{mutant, KINDS};

const FILES: u64 = 300_000;
const SEED: u64 = 8;
const CHUNK: u64 = 4096;
const KEPT: usize = 20; // reproducers a thread, of disagreements that may be millions

#[derive(Clone, Copy, Default)]
struct Count {
    files: u64,
    accepted: u64,
    explained: u64,
    disagreements: u64,
}

#[derive(Default)]
struct Outcome {
    counts: [Count; KINDS.len()],
    said: Vec<String>,
}

fn keep(folder: &Path, seed: u64, i: u64, bytes: &[u8]) -> String {
    let path = folder.join(format!("disagreement-{seed}-{i}.safetensors"));
    let saved = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, bytes));
    match saved {
        Ok(()) => format!("saved as {}", path.display()),
        Err(e) => format!("{} could not be written: {e}", path.display()),
    }
}

fn work(next: &AtomicU64, files: u64, seed: u64, folder: &Path) -> Outcome {
    let mut outcome = Outcome::default();
    loop {
        let begin = next.fetch_add(CHUNK, Ordering::Relaxed);
        if begin >= files {
            return outcome;
        }
        for i in begin..(begin + CHUNK).min(files) {
            let mutant = mutant(seed, i);
            let count = &mut outcome.counts[mutant.kind];
            count.files += 1;
            match compare(&mutant.bytes) {
                Verdict::BothRefuse => {}
                Verdict::BothAccept => count.accepted += 1,
                Verdict::Explained => count.explained += 1,
                Verdict::Disagree(how) => {
                    count.disagreements += 1;
                    if outcome.said.len() < KEPT {
                        let kept = keep(folder, seed, i, &mutant.bytes);
                        let shown = String::from_utf8_lossy(&mutant.bytes[mutant.bytes.len().min(8)..]);
                        let shown: String = shown.chars().take(600).collect();
                        outcome.said.push(format!(
                            "file {i} of seed {seed} ({}), {kept}\n  {how}\n  {shown:?}",
                            KINDS[mutant.kind]
                        ));
                    }
                }
            }
        }
    }
}

fn campaign(files: u64, seed: u64, folder: &Path) -> ExitCode {
    let began = Instant::now();
    let next = AtomicU64::new(0);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let outcomes: Vec<Outcome> = thread::scope(|scope| {
        let workers: Vec<_> =
            (0..threads).map(|_| scope.spawn(|| work(&next, files, seed, folder))).collect();
        workers.into_iter().map(|w| w.join().expect("a worker panicked")).collect()
    });

    println!(
        "{:32} {:>12} {:>14} {:>10} {:>14}",
        "damage", "files", "both accept", "explained", "disagreements"
    );
    let mut sum = Count::default();
    for kind in 0..KINDS.len() {
        let mut row = Count::default();
        for count in outcomes.iter().map(|o| &o.counts[kind]) {
            row.files += count.files;
            row.accepted += count.accepted;
            row.explained += count.explained;
            row.disagreements += count.disagreements;
        }
        println!(
            "{:32} {:>12} {:>14} {:>10} {:>14}",
            KINDS[kind], row.files, row.accepted, row.explained, row.disagreements
        );
        sum.files += row.files;
        sum.accepted += row.accepted;
        sum.explained += row.explained;
        sum.disagreements += row.disagreements;
    }
    for said in outcomes.iter().flat_map(|o| &o.said) {
        eprintln!("{said}");
    }
    println!(
        "{} files of seed {seed} in {:.1} s on {threads} threads: {} accepted by both, {} explained, {} unexplained disagreements",
        sum.files, began.elapsed().as_secs_f64(), sum.accepted, sum.explained, sum.disagreements
    );
    // A campaign in which hardly anything lives, or dies, would show nothing.
    let telling = sum.accepted > sum.files / 20 && sum.accepted < sum.files * 9 / 10;
    if !telling {
        eprintln!("the damage is of the wrong strength: {} of {} files live", sum.accepted, sum.files);
    }
    ExitCode::from(u8::from(sum.disagreements > 0 || !telling))
}

fn one(path: &Path) -> ExitCode {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(e) => {
            eprintln!("{}: {e}", path.display());
            return ExitCode::FAILURE;
        }
    };
    let (said, fine) = match compare(&bytes) {
        Verdict::BothRefuse => ("both refuse it".into(), true),
        Verdict::BothAccept => ("both accept it and read the same".into(), true),
        Verdict::Explained => ("a name stands twice: see capi/README.md".into(), true),
        Verdict::Disagree(how) => (how, false),
    };
    println!("{}: {said}", path.display());
    ExitCode::from(u8::from(!fine))
}

fn main() -> ExitCode {
    quieten_stock();
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number =
        |i: usize, default: u64| args.get(i).map_or(Ok(default), |a| a.replace('_', "").parse::<u64>());
    match (number(0, FILES), number(1, SEED)) {
        (Ok(files), Ok(seed)) => {
            campaign(files, seed, &PathBuf::from(args.get(2).map_or(".", String::as_str)))
        }
        _ => one(Path::new(&args[0])),
    }
}
