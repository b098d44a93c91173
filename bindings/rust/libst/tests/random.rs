//! Random changes of one file, and of shards, against the same changes in memory. After each step all is as it should
//! be: for the file that made it, for a reader, for what was taken from them before, and for the `safetensors` crate.
//! LIBST_TEST_SEED and LIBST_TEST_STEPS choose other runs.

mod support;

use std::collections::BTreeMap;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::path::PathBuf;
use std::time::Duration;

use safetensors::Dtype as TheirDtype;
use support::*;

type Tensors = BTreeMap<String, Sample>;

#[derive(Clone, Debug, PartialEq, Default)]
struct State {
    tensors: Tensors,
    metadata: BTreeMap<String, String>,
    file: usize, // how many new files came before it
}

const NAMES: &[&str] =
    &["w", "b", "", "nul\0inside", "größe/張量", "quote\"\\\n", "layer.0", "layer.10", "x", "a.long.name"];
const DTYPES: &[TheirDtype] = &[
    TheirDtype::F4,
    TheirDtype::F6_E2M3,
    TheirDtype::BOOL,
    TheirDtype::U8,
    TheirDtype::BF16,
    TheirDtype::F32,
    TheirDtype::C64,
    TheirDtype::I64,
];

fn ours(dtype: TheirDtype) -> Dtype {
    dtype.to_string().parse().unwrap()
}

fn sample(random: &mut Random) -> Sample {
    let dtype = DTYPES[random.below(DTYPES.len())];
    let mut shape: Vec<usize> = (0..random.below(4)).map(|_| random.below(7)).collect();
    if dtype.bitsize() < 8 {
        shape.push(4 * random.below(4));
    } else if random.below(40) == 0 {
        shape.push(20_000);
    }
    Sample::new(dtype, &shape, random)
}

/// Such are cut at whole bytes alone.
fn is_packed(sample: &Sample) -> bool {
    sample.dtype.bitsize() < 8
}

/// The elements, by their number in C order, that `parts` of the leading dimensions have.
fn elements(shape: &[usize], parts: &[Vec<usize>], base: usize, all: &mut Vec<usize>) {
    let Some((n, inner)) = shape.split_first() else {
        all.push(base);
        return;
    };
    let whole: Vec<usize> = (0..*n).collect();
    let (here, rest) = parts.split_first().map_or((&whole, parts), |(here, rest)| (here, rest));
    for i in here {
        elements(inner, rest, base * n + i, all);
    }
}

/// The shape of a part.
fn shape_of(shape: &[usize], parts: &[Vec<usize>]) -> Vec<usize> {
    (0..shape.len()).map(|d| parts.get(d).map_or(shape[d], Vec::len)).collect()
}

fn part_of(sample: &Sample, parts: &[Vec<usize>]) -> Vec<u8> {
    let mut at = Vec::new();
    elements(&sample.shape, parts, 0, &mut at);
    let width = sample.dtype.bitsize() / 8;
    at.iter().flat_map(|at| sample.data[at * width..][..width].to_vec()).collect()
}

/// New values for a part, written there.
fn change_part(sample: &mut Sample, parts: &[Vec<usize>], random: &mut Random) -> Sample {
    let value = Sample::new(sample.dtype, &shape_of(&sample.shape, parts), random);
    let mut at = Vec::new();
    elements(&sample.shape, parts, 0, &mut at);
    let width = sample.dtype.bitsize() / 8;
    for (i, at) in at.into_iter().enumerate() {
        sample.data[at * width..][..width].copy_from_slice(&value.data[i * width..][..width]);
    }
    value
}

/// Ranges for some leading dimensions, and the indices that they are.
fn ranges(shape: &[usize], random: &mut Random) -> (Vec<Range>, Vec<Vec<usize>>) {
    let dims = random.below(shape.len() + 1);
    let mut ranges = (Vec::new(), Vec::new());
    for &n in &shape[..dims] {
        let mut end = || match random.below(12) {
            0..=3 => None,
            4 => Some(i64::MIN),
            5 => Some(i64::MAX),
            6 => Some(i64::MIN + 1),
            _ => Some(random.below(4 * n + 1) as i64 - 2 * n as i64),
        };
        let (start, stop) = (end(), end());
        let step = [1, 1, 2, 3, -1, -2, i64::MAX, i64::MIN, -i64::MAX][random.below(9)];
        ranges.0.push(Range::new(start, stop, step));
        ranges.1.push(indices(start, stop, step, n));
    }
    ranges
}

struct Machine {
    random: Random,
    folder: tempfile::TempDir,
    path: PathBuf,
    sharded: bool,
    file: File,
    reader: File,
    state: State,
    reads: State, // what the reader shows
    before: Vec<(Snapshot, State)>,
    owned: Vec<(OwnedView, Vec<u8>)>,
    elsewhere: Vec<(OwnedView, Vec<u8>)>, // of readers that are closed
    olds: Vec<Snapshot>,                  // of the reader
    kept: Vec<(KeptView, String, usize)>, // of the reader, and the number of its file
    copies: Option<(File, Tensors)>,      // copy on write: as it was opened, and written here
    latest: BTreeMap<usize, State>,
    log: Vec<String>,
}

impl Machine {
    fn new(seed: u64, sharded: bool) -> Machine {
        let mut random = Random::new(seed);
        let folder = tempfile::tempdir().unwrap();
        let mut state = State::default();
        for name in &NAMES[..4] {
            state.tensors.insert((*name).to_owned(), sample(&mut random));
        }
        state.metadata.insert("format".to_owned(), "pt".to_owned());
        let mut path = folder.path().join("model.safetensors");
        SaveOptions::new().metadata(state.metadata.clone()).save(&path, &state.tensors).unwrap();
        if sharded {
            let to = folder.path().join("shards");
            reshard(&path, &to, 200).unwrap();
            path = to;
        }
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        let reader = File::open(&path).unwrap();
        state.metadata = file.metadata().into_iter().collect(); // of shards with the totals
        let (reads, first) = (state.clone(), state.clone());
        Machine {
            random,
            folder,
            path,
            sharded,
            file,
            reader,
            state,
            reads,
            before: vec![],
            owned: vec![],
            olds: vec![],
            elsewhere: vec![],
            kept: vec![],
            copies: None,
            latest: BTreeMap::from([(0, first)]),
            log: vec![],
        }
    }

    fn some_name(&mut self, state: &State) -> Option<String> {
        let names: Vec<_> = state.tensors.keys().cloned().collect();
        (!names.is_empty()).then(|| names[self.random.below(names.len())].clone())
    }

    /// One call of a transaction, here and there.
    fn change(&mut self, change: &mut Transaction<'_>, staged: &mut State) {
        let random = &mut self.random;
        let name = NAMES[random.below(NAMES.len())].to_owned();
        match random.below(12) {
            0..=1 => {
                let done = match staged.tensors.get_mut(&name) {
                    None => {
                        let value = sample(random);
                        let error = change.update(&name, &value).unwrap_err();
                        assert_eq!(error.status(), Status::NotFound);
                        assert_eq!(error.tensor(), Some(&*name));
                        return;
                    }
                    Some(old) => {
                        old.data = random.bytes(old.data.len());
                        change.update(&name, &*old)
                    }
                };
                done.unwrap();
                self.log.push(format!("update {name:?}"));
            }
            2 => {
                // another form is refused
                let value = sample(random);
                if let Some(old) = staged.tensors.get(&name) {
                    if (old.dtype, &old.shape) != (value.dtype, &value.shape) {
                        let error = change.update(&name, &value).unwrap_err();
                        assert!(
                            matches!(error.status(), Status::DtypeMismatch | Status::ShapeMismatch),
                            "{error:?}"
                        );
                    }
                }
            }
            3..=5 => {
                let Some(old) = staged.tensors.get_mut(&name).filter(|old| !is_packed(old)) else { return };
                let (ranges, parts) = ranges(&old.shape, random);
                let value = change_part(old, &parts, random);
                change.update_slice(&name, &ranges, &value).unwrap();
                self.log.push(format!("slice {name:?} {ranges:?}"));
            }
            6 => {
                let Some(old) = staged.tensors.get_mut(&name).filter(|old| !is_packed(old)) else { return };
                let n = old.shape.first().map_or(0, |n| *n as i64);
                if n == 0 {
                    return;
                }
                let rows: Vec<i64> =
                    (0..random.below(5)).map(|_| random.below(2 * n as usize) as i64 - n).collect();
                let (ranges, mut parts) = ranges(&old.shape[1..], random);
                parts.insert(0, rows.iter().map(|row| row.rem_euclid(n) as usize).collect());
                let value = change_part(old, &parts, random);
                change.update_rows(&name, &rows, &ranges, &value).unwrap();
                self.log.push(format!("rows {name:?} {rows:?} {ranges:?}"));
            }
            7 => {
                let value = sample(random);
                change.put(&name, &value).unwrap();
                staged.tensors.insert(name.clone(), value);
                self.log.push(format!("put {name:?}"));
            }
            8 => {
                if self.sharded && staged.tensors.len() <= 2 {
                    return;
                }
                match (staged.tensors.remove(&name), change.delete(&name)) {
                    (Some(_), Ok(())) => self.log.push(format!("delete {name:?}")),
                    (None, Err(error)) => assert_eq!(error.status(), Status::NotFound),
                    (was, got) => panic!("{name:?} {was:?} {got:?}"),
                }
            }
            9 => {
                let to = NAMES[random.below(NAMES.len())].to_owned();
                let got = change.rename(&name, &to);
                match (staged.tensors.contains_key(&name), staged.tensors.contains_key(&to)) {
                    (false, _) => assert_eq!(got.unwrap_err().status(), Status::NotFound),
                    (true, true) if name != to => {
                        assert_eq!(got.unwrap_err().status(), Status::DuplicateName)
                    }
                    (true, _) => {
                        if name == to {
                            if let Err(error) = got {
                                assert_eq!(error.status(), Status::DuplicateName);
                            }
                            return;
                        }
                        got.unwrap();
                        let moved = staged.tensors.remove(&name).unwrap();
                        staged.tensors.insert(to.clone(), moved);
                        self.log.push(format!("rename {name:?} {to:?}"));
                    }
                }
            }
            10 => {
                let value = format!("{}\0{name}", random.next());
                change.set_metadata(&name, &value).unwrap();
                staged.metadata.insert(name, value);
                self.log.push("set".to_owned());
            }
            _ => match (staged.metadata.remove(&name), change.remove_metadata(&name)) {
                (Some(_), Ok(())) => self.log.push("remove".to_owned()),
                (None, Err(error)) => assert_eq!(error.status(), Status::NotFound),
                (was, got) => panic!("{name:?} {was:?} {got:?}"),
            },
        }
    }

    fn transaction(&mut self) {
        let mut options = TransactionOptions::new();
        match self.random.below(8) {
            0 => options = options.publish(true),
            1 => options = options.journal_only(true),
            2 => options = options.layout(Layout::Canonical),
            3 => {
                options = options
                    .alignment(8 << self.random.below(9))
                    .header_reserve(self.random.below(5000) as u64)
            }
            4 if self.sharded => options = options.new_names(Duration::ZERO),
            _ => (),
        }
        let file = std::mem::replace(&mut self.file, File::open(&self.path).unwrap());
        let mut change = options.begin(&file).unwrap();
        let mut staged = self.state.clone();
        for _ in 0..self.random.below(6) {
            self.change(&mut change, &mut staged);
        }
        let plan = change.plan().unwrap();
        if self.random.below(5) == 0 {
            drop(change);
            self.log.push("rollback".to_owned());
        } else {
            self.log.push(format!("commit {:?}", plan.kind));
            change.commit().unwrap();
            self.committed(staged, plan.kind, &file);
        }
        self.file = file;
    }

    fn committed(&mut self, mut staged: State, kind: PlanKind, file: &File) {
        if self.sharded {
            for total in ["total_size", "total_parameters"] {
                if let Some(value) = file.metadata_get(total) {
                    staged.metadata.insert(total.to_owned(), value); // it follows
                }
            }
        }
        if kind == PlanKind::Publish {
            staged.file = self.state.file + 1;
        } else {
            // A patch shows where the same file is shown.
            let shown = self.before.iter_mut().map(|(_, state)| state).chain([&mut self.reads]);
            for state in shown.filter(|state| state.file == self.state.file) {
                state.tensors.clone_from(&staged.tensors);
            }
        }
        self.latest.insert(staged.file, staged.clone());
        self.state = staged;
    }

    fn read_of(&mut self, file: &File, state: &State) {
        let Some(name) = self.some_name(state) else { return };
        let sample = &state.tensors[&name];
        if is_packed(sample) {
            return;
        }
        let (ranges, parts) = ranges(&sample.shape, &mut self.random);
        let expected = part_of(sample, &parts);
        let slice = file.slice(&name, &ranges).unwrap();
        assert_eq!(slice.shape(), shape_of(&sample.shape, &parts), "{ranges:?} of {:?}", sample.shape);
        assert_eq!(slice.data_len(), expected.len());
        assert_eq!(slice.read().unwrap(), expected, "{name:?} {ranges:?}");
        let tensors = file.tensors().unwrap();
        let mut all: Vec<_> = tensors.iter().map(|tensor| vec![0; tensor.data_len()]).collect();
        let mut part = vec![0; slice.data_len()];
        let requests = tensors.iter().zip(&mut all).map(|(tensor, to)| tensor.request(to));
        file.read_many(requests.chain([slice.request(&mut part)])).unwrap();
        assert_eq!(part, expected);
        for (tensor, read) in tensors.iter().zip(&all) {
            assert_eq!(*read, state.tensors[tensor.name()].data);
        }
    }

    /// With the bytes that it has. A reader of shards may find that others have replaced them.
    fn own(&self, view: Result<OwnedView>) -> Option<(OwnedView, Vec<u8>)> {
        match view {
            Ok(view) => {
                let now = view.data().to_vec();
                Some((view, now))
            }
            Err(error) => {
                assert!(self.sharded && error.status() == Status::FileChanged, "{error}");
                None
            }
        }
    }

    fn step(&mut self) {
        match self.random.below(26) {
            0..=7 => self.transaction(),
            8 => {
                let map = [Map::Auto, Map::Private, Map::None, Map::CopyOnWrite][self.random.below(4)];
                self.log.push(format!("reopen {map:?}"));
                self.file = OpenOptions::new().write(true).map(map).open(&self.path).unwrap();
            }
            9 => {
                let map = [Map::Auto, Map::Private, Map::None][self.random.below(3)];
                self.log.push(format!("new reader {map:?}"));
                self.elsewhere.append(&mut self.owned);
                self.elsewhere.truncate(40);
                self.olds.clear();
                self.reader = OpenOptions::new().map(map).open(&self.path).unwrap();
                self.reads = self.state.clone();
            }
            10..=11 => {
                self.log.push("refresh".to_owned());
                if !self.owned.is_empty() {
                    assert_eq!(self.reader.refresh().unwrap_err().status(), Status::Unsupported);
                    self.check();
                }
                self.owned.clear();
                self.reader.refresh().unwrap();
                self.reads = self.state.clone();
            }
            12 => {
                if self.before.len() > 4 {
                    self.before.remove(0);
                }
                let snapshot = self.file.snapshot().unwrap();
                self.before.push((snapshot, self.state.clone()));
                self.log.push("snapshot".to_owned());
            }
            13 => {
                if let Some(name) = self.some_name(&self.reads.clone()) {
                    self.log.push(format!("own {name:?}"));
                    self.owned.extend(self.own(self.reader.view_owned(&name)));
                }
            }
            14 => {
                self.log.push("compact".to_owned());
                compact(&self.path).unwrap();
                self.state.file += 1;
                self.latest.insert(self.state.file, self.state.clone());
                self.file.refresh().unwrap();
            }
            15 => self.delta(),
            16 => {
                self.log.push("update one".to_owned());
                if let Some(name) = self.some_name(&self.state.clone()) {
                    let mut staged = self.state.clone();
                    let sample = staged.tensors.get_mut(&name).unwrap();
                    sample.data = self.random.bytes(sample.data.len());
                    let file = std::mem::replace(&mut self.file, File::open(&self.path).unwrap());
                    file.update_bytes(&name, &staged.tensors[&name].data).unwrap();
                    self.committed(staged, PlanKind::Patch, &file);
                    self.file = file;
                }
            }
            17 => {
                let joined = self.folder.path().join("joined.safetensors");
                join(&self.path, &joined).unwrap();
                let (theirs, _) = read_by_them(&joined);
                assert_eq!(theirs.into_iter().collect::<Tensors>(), self.state.tensors);
            }
            18 => {
                let file = File::open(&self.path).unwrap();
                self.read_of(&file, &self.state.clone());
            }
            20 => {
                self.log.push("release".to_owned());
                self.reader.release();
                self.file.release();
            }
            21 => {
                self.log.push("old".to_owned());
                if self.olds.len() > 3 {
                    self.olds.remove(0);
                }
                self.olds.push(self.reader.snapshot().unwrap());
            }
            22 => {
                for old in &self.olds {
                    let names = old.names();
                    assert!(self.sharded || names.is_ok());
                    for name in names.unwrap_or_default() {
                        self.owned.extend(self.own(old.view_owned(name)));
                    }
                }
                self.log.push("own olds".to_owned());
            }
            23 if !self.sharded => {
                self.log.push("keep".to_owned());
                self.kept.truncate(20);
                for name in self.reads.tensors.keys() {
                    // SAFETY: one thread, which looks at it when nothing changes.
                    match unsafe { self.reader.view_kept(name) } {
                        Ok(view) => self.kept.push((view, name.clone(), self.reads.file)),
                        Err(error) => assert_eq!(error.status(), Status::Unsupported),
                    }
                }
            }
            24 => {
                self.log.push("load".to_owned());
                match self.reader.load(None) {
                    Ok(()) => (),
                    Err(error) => assert!(self.sharded && error.status() == Status::FileChanged, "{error}"),
                }
            }
            25 if !self.sharded => {
                if self.copies.is_none() || self.random.below(5) == 0 {
                    let file = OpenOptions::new().map(Map::CopyOnWrite).open(&self.path).unwrap();
                    self.copies = Some((file, self.state.tensors.clone()));
                    self.log.push("copies".to_owned());
                }
                let (file, tensors) = self.copies.as_mut().unwrap();
                for (name, sample) in tensors {
                    if self.random.below(2) == 0 && !sample.data.is_empty() {
                        let i = self.random.below(sample.data.len());
                        // SAFETY: one thread, which changes nothing meanwhile.
                        unsafe { (*file.view_raw(name).unwrap())[i] = 77 };
                        sample.data[i] = 77;
                    }
                }
            }
            _ => verify(&self.path).unwrap(),
        }
    }

    /// What makes another state of this one, done, and undone half of the time.
    fn delta(&mut self) {
        let at = |name: &str| self.folder.path().join(name);
        let (tuned, delta, back) = (at("tuned.safetensors"), at("d.safetensors"), at("back.safetensors"));
        if self.state.tensors.is_empty() {
            return;
        }
        join(&self.path, &tuned).unwrap();
        let mut staged = self.state.clone();
        {
            let other = OpenOptions::new().write(true).open(&tuned).unwrap();
            let mut change = other.begin().unwrap();
            for _ in 0..self.random.below(4) {
                let name = NAMES[self.random.below(NAMES.len())];
                if let Some(old) = staged.tensors.get_mut(name).filter(|_| self.random.below(3) > 0) {
                    if old.data.is_empty() {
                        continue;
                    }
                    let i = self.random.below(old.data.len());
                    old.data[i] ^= 1;
                    change.update(name, &*old).unwrap();
                } else {
                    let value = sample(&mut self.random);
                    change.put(name, &value).unwrap();
                    staged.tensors.insert(name.to_owned(), value);
                }
            }
            change.commit().unwrap();
        }
        diff(&self.path, &tuned, &delta).unwrap();
        let overlay = OpenOptions::new().deltas([&delta]).open(&self.path).unwrap();
        self.read_of(&overlay, &staged);
        drop(overlay);
        let plan = Patch::new().reverse(&back).run_on(&self.file, &delta).unwrap();
        self.log.push(format!("patched {:?}", plan.kind));
        let file = std::mem::replace(&mut self.file, File::open(&self.path).unwrap());
        let old = self.state.clone();
        self.committed(staged, plan.kind, &file);
        self.file = file;
        self.check();
        if self.random.below(2) == 0 {
            let plan = patch(&self.path, &back).unwrap();
            self.log.push(format!("undone {:?}", plan.kind));
            self.file.refresh().unwrap();
            let file = std::mem::replace(&mut self.file, File::open(&self.path).unwrap());
            self.committed(State { file: self.state.file, ..old }, plan.kind, &file);
            self.file = file;
        }
    }

    fn check(&self) {
        check(&self.file, &self.state, "the file");
        let reads = self.reader.snapshot().unwrap();
        if !self.sharded {
            check_snapshot(&reads, &self.reads, false, "the reader");
            for (i, (snapshot, state)) in self.before.iter().enumerate() {
                check_snapshot(snapshot, state, false, &format!("snapshot {i}"));
            }
        }
        for (view, was) in self.owned.iter().chain(&self.elsewhere) {
            assert_eq!(view.data(), was, "an owned view");
        }
        for (view, name, file) in &self.kept {
            assert_eq!(view.data(), self.latest[file].tensors[name].data, "a kept view of {name:?}");
        }
        if let Some((file, tensors)) = &self.copies {
            for (name, sample) in tensors {
                // SAFETY: as above.
                let view = unsafe { file.view(name).unwrap() };
                assert_eq!(view.data(), sample.data, "a copy of {name:?}");
            }
        }
        if !self.sharded {
            let (tensors, metadata) = read_by_them(&self.path);
            assert_eq!(tensors.into_iter().collect::<Tensors>(), self.state.tensors, "the crate");
            assert_eq!(metadata.into_iter().collect::<BTreeMap<_, _>>(), self.state.metadata, "the crate");
        } else {
            check(&File::open(&self.path).unwrap(), &self.state, "another");
        }
    }
}

fn check(file: &File, state: &State, who: &str) {
    check_snapshot(&file.snapshot().unwrap(), state, true, who);
    for (name, sample) in &state.tensors {
        assert_eq!(file.read(name).unwrap(), sample.data, "{who}: {name:?}");
        assert!(file.contains(name).unwrap());
    }
}

fn check_snapshot(snapshot: &Snapshot, state: &State, views: bool, who: &str) {
    let mut names = snapshot.names().unwrap();
    names.sort_unstable();
    assert_eq!(names, state.tensors.keys().collect::<Vec<_>>(), "{who}");
    let metadata: BTreeMap<_, _> =
        snapshot.metadata().into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
    assert_eq!(metadata, state.metadata, "{who}");
    let mut end = (0, 0);
    for tensor in snapshot.tensors().unwrap() {
        let sample = &state.tensors[tensor.name()];
        assert_eq!((tensor.dtype(), tensor.shape()), (ours(sample.dtype), &*sample.shape), "{who}");
        assert_eq!(tensor.read().unwrap(), sample.data, "{who}: {:?}", tensor.name());
        assert!((tensor.shard(), tensor.file_offset()) >= end);
        end = (tensor.shard(), tensor.file_offset() + tensor.data_len() as u64);
        if !views {
            continue; // memory of a file's own shows what others patched after a refresh alone
        }
        // SAFETY: one thread, which changes nothing meanwhile.
        let view = unsafe { tensor.view().unwrap() };
        assert_eq!(view.data(), sample.data, "{who}: a view of {:?}", tensor.name());
    }
}

fn run(sharded: bool) {
    let chosen = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let (seed, steps) = (chosen("LIBST_TEST_SEED").unwrap_or(1), chosen("LIBST_TEST_STEPS").unwrap_or(200));
    let mut machine = Machine::new(seed, sharded);
    for step in 0..steps {
        let done = catch_unwind(AssertUnwindSafe(|| {
            machine.step();
            machine.check();
        }));
        if let Err(payload) = done {
            let from = machine.log.len().saturating_sub(25);
            eprintln!("seed {seed}, step {step}: {:#?}", &machine.log[from..]);
            resume_unwind(payload);
        }
    }
}

#[test]
fn changes_of_one_file_are_those_in_memory() {
    run(false);
}

#[test]
fn changes_of_shards_are_those_in_memory() {
    run(true);
}
