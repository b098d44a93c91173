//! Reads against changes of the same file, by the same handle: what a read answers is what the file had at some time during
//! the read. `ST_TEST_BOUND` says how many reads there are.

mod support;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use support::*;

/// What one handle goes through, step by step. What the file has after a step is a function of the step's number.
struct History {
    file: File,
    started: AtomicUsize,  // the last step that was begun
    finished: AtomicUsize, // the last that is done
    _model: Model,
}

const NAMES: [&str; 4] = ["put", "deleted", "renamed", "new name"];
const SHAPES: [&[usize]; 5] = [&[3], &[2, 5], &[64, 8], &[4, 1, 2, 3], &[1, 700]];

/// A tensor whose bytes tell it and its shape from any other's.
fn value(v: usize) -> Sample {
    let shape = SHAPES[v / 2 % SHAPES.len()].to_vec();
    let n = shape.iter().product();
    let data = (v as u64).to_le_bytes().repeat(n);
    Sample { dtype: safetensors::Dtype::U64, shape, data }
}

/// Which value a tensor has after a step, if there is one of that name.
fn value_after(step: usize, name: &str) -> Option<usize> {
    let phase = step % 4;
    match name {
        "put" => Some(step - phase), // again and again, in other shapes
        "deleted" => match phase {
            0 => Some(step.saturating_sub(2)),
            1 => None,
            _ => Some(step - phase + 2), // put again
        },
        "renamed" => (phase != 2).then_some(4),
        _ => (phase == 2).then_some(4),
    }
}

/// A read's answer, to compare.
type Answer = std::result::Result<String, String>;

fn told(shape: &[usize], data: &[u8]) -> String {
    let words: Vec<&[u8]> = data.chunks(8).collect();
    assert!(!words.is_empty());
    match words.iter().all(|word| word == &words[0]) {
        true => format!("{shape:?} {} times {:?}", words.len(), words[0]),
        false => format!("{shape:?} of a mix of values"),
    }
}

fn every_other(mut sample: Sample) -> Sample {
    let row = sample.data.len() / sample.shape[0];
    sample.shape[0] = sample.shape[0].div_ceil(2);
    sample.data.truncate(row * sample.shape[0]);
    sample
}

impl History {
    fn new() -> History {
        let samples = [("put", value(0)), ("deleted", value(0)), ("renamed", value(4))];
        let samples = samples.map(|(name, sample)| (name.to_owned(), sample)).into();
        let model = Model::new(samples, [("step".to_owned(), "0".to_owned())].into());
        let (started, finished) = Default::default();
        History { file: model.writable(), started, finished, _model: model }
    }

    /// Commits a step. One thread does.
    fn next(&self) {
        let step = self.finished.load(SeqCst) + 1;
        let mut change = self.file.begin().unwrap();
        match step % 4 {
            0 => change.put("put", &value(step)).unwrap(),
            1 => change.delete("deleted").unwrap(),
            2 => {
                change.put("deleted", &value(step)).unwrap();
                change.rename("renamed", "new name").unwrap();
            }
            _ => change.rename("new name", "renamed").unwrap(),
        }
        change.set_metadata("step", &step.to_string()).unwrap();
        self.started.store(step, SeqCst);
        change.commit().unwrap();
        self.finished.store(step, SeqCst);
    }

    /// Makes a read, and tells if what it answers was never so during the call.
    fn check(
        &self,
        what: &str,
        read: impl FnOnce() -> Answer,
        right: impl Fn(usize) -> String,
    ) -> Option<String> {
        let first = self.finished.load(SeqCst);
        let got = read().unwrap_or_else(|error| error);
        let last = self.started.load(SeqCst);
        let wrong = (first..=last).all(|step| right(step) != got);
        wrong.then(|| {
            format!("{what}: {got}, in the steps {first} to {last}; after the first: {}", right(first))
        })
    }

    fn check_tensor(
        &self,
        what: &str,
        name: &str,
        read: impl FnOnce() -> Result<String>,
        right: impl Fn(Sample) -> String,
    ) -> Option<String> {
        let read = || {
            read().map_err(|error| match error.status() {
                Status::NotFound => "none".to_owned(),
                _ => error.to_string(),
            })
        };
        self.check(what, read, |step| value_after(step, name).map_or("none".to_owned(), |v| right(value(v))))
    }

    fn reads_of(&self, name: &str, buffer: &mut [u8]) -> Vec<Option<String>> {
        let file = &self.file;
        vec![
            self.check_tensor(
                "read",
                name,
                || file.read(name).map(|bytes| told(&[], &bytes)),
                |sample| told(&[], &sample.data),
            ),
            self.check_tensor(
                "tensor",
                name,
                || {
                    let tensor = file.tensor(name)?;
                    assert_eq!(tensor.name(), name);
                    Ok(told(tensor.shape(), &tensor.read()?))
                },
                |sample| told(&sample.shape, &sample.data),
            ),
            self.check_tensor(
                "slice",
                name,
                || {
                    let slice = file.slice(name, &s![..;2])?;
                    Ok(told(slice.shape(), &slice.read()?))
                },
                |sample| told(&every_other(sample.clone()).shape, &every_other(sample).data),
            ),
            self.check_tensor(
                "read_into",
                name,
                || file.read_into(name, buffer).map(|()| told(&[], &buffer[..8])),
                |sample| told(&[], &sample.data[..8]),
            ),
            self.check_tensor(
                "read_many",
                name,
                || {
                    let (tensor, slice) = (file.tensor(name)?, file.slice(name, &s![..;2])?);
                    let (mut whole, mut part) = (vec![0; tensor.data_len()], vec![0; slice.data_len()]);
                    file.read_many([tensor.request(&mut whole), slice.request(&mut part)])?;
                    told(slice.shape(), &part); // may be of the next state
                    Ok(told(tensor.shape(), &whole))
                },
                |sample| told(&sample.shape, &sample.data),
            ),
        ]
    }

    fn lists(&self) -> Vec<Option<String>> {
        let file = &self.file;
        let sorted = |mut names: Vec<String>| {
            names.sort();
            format!("{names:?}")
        };
        let right = |step| {
            let names = NAMES.iter().filter(|name| value_after(step, name).is_some());
            sorted(names.map(|name| name.to_string()).collect())
        };
        let said = |error: libst::Error| error.to_string();
        let names = || file.names().map(sorted).map_err(said);
        let of = |all: Vec<Tensor>| sorted(all.iter().map(|tensor| tensor.name().to_owned()).collect());
        let all = || file.tensors().map(of).map_err(said);
        let step = || Ok(file.metadata_get("step").map_or(String::new(), |step| step.to_string()));
        let pairs = || Ok(file.metadata().iter().map(|(_, step)| step.to_string()).collect());
        vec![
            self.check("names", names, right),
            self.check("tensors", all, right),
            self.check("metadata_get", step, |step| step.to_string()),
            self.check("metadata", pairs, |step| step.to_string()),
        ]
    }
}

/// Ends the other threads when this one ends, also by a panic.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

#[test]
fn reads_against_changes_through_one_handle() {
    let wanted = match std::env::var("ST_TEST_BOUND").as_deref() {
        Ok("small") => 2_000,
        Ok("full") => 1_000_000,
        _ => 20_000,
    };
    let history = History::new();
    let (reads, wrong, done) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let _ends = Ends(&done);
                let mut buffer = vec![0; 8 * 700];
                while !done.load(SeqCst) {
                    let mut all = history.lists();
                    for _ in 0..4 {
                        NAMES.iter().for_each(|name| all.extend(history.reads_of(name, &mut buffer)));
                    }
                    for message in all.iter().flatten() {
                        if wrong.fetch_add(1, SeqCst) < 10 {
                            eprintln!("{message}");
                        }
                    }
                    reads.fetch_add(all.len(), SeqCst);
                }
            });
        }
        let _ends = Ends(&done);
        let enough = || reads.load(SeqCst) >= wanted && history.finished.load(SeqCst) >= wanted / 100;
        while !enough() && !done.load(SeqCst) {
            history.next();
        }
    });
    let (reads, changes) = (reads.load(SeqCst), history.finished.load(SeqCst));
    println!("{reads} reads against {changes} changes");
    assert_eq!(wrong.load(SeqCst), 0, "of {reads} reads against {changes} changes");
}
