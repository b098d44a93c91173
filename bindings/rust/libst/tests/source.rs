//! A file that is no file: what a source holds.

mod support;

use std::error::Error as _;
use std::io::{self, Cursor};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use support::*;

#[derive(Default)]
struct Asked {
    reads: AtomicUsize,
    fails: Mutex<Option<fn() -> io::Error>>,
    panics: Mutex<bool>,
    gone: AtomicUsize,
}

struct Counting {
    bytes: Vec<u8>,
    asked: Arc<Asked>,
    most_reads: u32,
}

impl Drop for Counting {
    fn drop(&mut self) {
        self.asked.gone.fetch_add(1, Ordering::Relaxed);
    }
}

impl Source for Counting {
    fn size(&self) -> io::Result<u64> {
        Ok(self.bytes.len() as u64)
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.asked.reads.fetch_add(1, Ordering::Relaxed);
        let panics = *self.asked.panics.lock().unwrap();
        assert!(!panics, "told to");
        if let Some(error) = *self.asked.fails.lock().unwrap() {
            return Err(error());
        }
        buffer.copy_from_slice(&self.bytes[offset as usize..][..buffer.len()]);
        Ok(())
    }
    fn most_reads(&self) -> u32 {
        self.most_reads
    }
    fn name(&self) -> String {
        "bucket/model".to_owned()
    }
    fn identity(&self) -> Option<String> {
        Some("v1".to_owned())
    }
}

fn opened(model: &Model, most_reads: u32) -> (File, Arc<Asked>) {
    let asked = Arc::new(Asked::default());
    let source = Counting { bytes: model.bytes(), asked: Arc::clone(&asked), most_reads };
    let options = OpenOptions::new().block_size(1 << 16);
    (options.open_source(source).unwrap(), asked)
}

#[test]
fn it_is_read_as_a_file_is() {
    for seed in 0..5 {
        let model = Model::random(seed);
        let (file, asked) = opened(&model, 3);
        let by_path = File::open(&model.path).unwrap();
        assert_eq!(file.names().unwrap(), by_path.names().unwrap());
        let snapshot = file.snapshot().unwrap();
        for name in file.names().unwrap() {
            let wanted = by_path.read(&name).unwrap();
            assert_eq!(file.read(&name).unwrap(), wanted);
            assert_eq!(file.view_owned(&name).unwrap().data(), wanted);
            assert_eq!(snapshot.read(&name).unwrap(), wanted);
        }
        file.load(None).unwrap();
        assert_eq!(file.reopen().unwrap_err().status(), Status::Unsupported);
        assert_eq!(file.path().as_os_str(), "");
        drop(file);
        assert_eq!(asked.gone.load(Ordering::Relaxed), 0);
        drop(snapshot);
        assert_eq!(asked.gone.load(Ordering::Relaxed), 1);
    }
}

#[test]
fn what_reads_and_seeks_is_a_source() {
    let model = Model::plain();
    let file = File::open_source(Mutex::new(Cursor::new(model.bytes()))).unwrap();
    assert_eq!(file.read("b").unwrap(), model.data("b"));
    let file = File::open_source(Mutex::new(std::fs::File::open(&model.path).unwrap())).unwrap();
    assert_eq!(file.read("b").unwrap(), model.data("b"));
}

#[test]
fn a_source_may_be_chosen_at_run_time_and_shared() {
    let model = Model::plain();
    let asked = Arc::new(Asked::default());
    let source: Arc<dyn Source> =
        Arc::new(Counting { bytes: model.bytes(), asked: Arc::clone(&asked), most_reads: 3 });
    let boxed: Box<dyn Source> = Box::new(Arc::clone(&source));
    assert_eq!((boxed.most_reads(), boxed.identity().as_deref()), (3, Some("v1")));
    for source in [boxed, Box::new(source)] {
        let file = File::open_source(source).unwrap();
        assert_eq!(file.read("b").unwrap(), model.data("b"));
        assert!(file.read("no").unwrap_err().message().contains("bucket/model"));
    }
    assert_eq!(asked.gone.load(Ordering::Relaxed), 1);
}

fn large() -> Model {
    let mut random = Random::new(3);
    let samples = [("x".to_owned(), Sample::new(safetensors::Dtype::U8, &[8 << 20], &mut random))];
    Model::new(samples.into(), Default::default())
}

#[test]
fn what_it_answers_is_a_status() {
    for most_reads in [1, 4] {
        let model = large();
        let (file, asked) = opened(&model, most_reads);
        let answers: [(fn() -> io::Error, Status); 5] = [
            (|| io::Error::from_raw_os_error(4), Status::Io),
            (|| io::Error::from_raw_os_error(116), Status::FileChanged),
            (|| io::ErrorKind::PermissionDenied.into(), Status::Permission),
            (|| io::ErrorKind::NotFound.into(), Status::NoFile),
            (|| io::Error::other("lost"), Status::Io),
        ];
        for (fails, status) in answers {
            *asked.fails.lock().unwrap() = Some(fails);
            assert_eq!(file.read("x").unwrap_err().status(), status);
            let error = file.load(None).unwrap_err();
            assert_eq!(error.status(), status);
            assert!(error.message().contains("bucket/model (version v1)"), "{error}");
            assert!(error.os_errno().is_some());
            let cause: &io::Error = error.source().unwrap().downcast_ref().unwrap();
            assert_eq!(cause.to_string(), fails().to_string());
        }
        *asked.fails.lock().unwrap() = None;
        assert_eq!(file.read("x").unwrap(), model.data("x"));
    }
}

/// Asks another file of libst first.
struct Behind {
    bytes: Vec<u8>,
    other: File,
}

impl Source for Behind {
    fn size(&self) -> io::Result<u64> {
        Ok(self.bytes.len() as u64)
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.other.read("w")?;
        buffer.copy_from_slice(&self.bytes[offset as usize..][..buffer.len()]);
        Ok(())
    }
}

#[test]
fn an_error_of_libst_that_it_hands_on_keeps_its_status() {
    let (model, other) = (large(), Model::plain());
    let file =
        File::open_source(Behind { bytes: model.bytes(), other: File::open(&other.path).unwrap() }).unwrap();
    assert_eq!(file.read("x").unwrap(), model.data("x"));
    std::fs::OpenOptions::new().write(true).open(&other.path).unwrap().set_len(100).unwrap();
    let error = file.read("x").unwrap_err();
    assert_eq!(error.status(), Status::FileChanged, "{error}");
}

#[test]
fn a_panic_goes_on_in_the_calling_thread() {
    let model = large();
    let (file, asked) = opened(&model, 1);
    *asked.panics.lock().unwrap() = true;
    let calls: [&dyn Fn(); 3] =
        [&|| drop(file.read("x")), &|| drop(file.load(None)), &|| drop(file.view_owned("x"))];
    for call in calls {
        let payload = catch_unwind(AssertUnwindSafe(call)).unwrap_err();
        assert_eq!(payload.downcast_ref::<&str>(), Some(&"told to"));
    }
    *asked.panics.lock().unwrap() = false;
    assert_eq!(file.read("x").unwrap(), model.data("x"));
    // In threads of the library it is an error, unless the calling thread met one too.
    let (file, asked) = opened(&model, 4);
    *asked.panics.lock().unwrap() = true;
    match catch_unwind(AssertUnwindSafe(|| file.load(None))) {
        Ok(answer) => {
            let error = answer.unwrap_err();
            assert_eq!(error.status(), Status::Io);
            assert_eq!(error.source().unwrap().to_string(), "the source panicked: told to");
        }
        Err(payload) => assert_eq!(payload.downcast_ref::<&str>(), Some(&"told to")),
    }
    *asked.panics.lock().unwrap() = false;
    file.load(None).unwrap();
    assert_eq!(file.read("x").unwrap(), model.data("x"));
}

#[test]
fn what_cannot_be_opened_is_an_error() {
    let model = Model::plain();
    let source = || Mutex::new(Cursor::new(model.bytes()));
    let refused = |options: OpenOptions| options.open_source(source()).unwrap_err().status();
    assert_eq!(refused(OpenOptions::new().write(true)), Status::Unsupported);
    assert_eq!(refused(OpenOptions::new().deltas(["d"])), Status::Unsupported);
    let cut = model.bytes()[..20].to_vec();
    assert!(File::open_source(Mutex::new(Cursor::new(cut))).is_err());
    let file = File::open_source(source()).unwrap();
    assert_eq!(file.begin().unwrap_err().status(), Status::ReadOnly);
}

/// A file of one tensor, "t", of so many zeros.
struct Vast {
    head: Vec<u8>,
    tensor: u64,
}

impl Vast {
    fn new(tensor: u64) -> Vast {
        let header = format!(r#"{{"t":{{"dtype":"U8","shape":[{tensor}],"data_offsets":[0,{tensor}]}}}}"#);
        Vast { head: [&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat(), tensor }
    }
}

impl Source for Vast {
    fn size(&self) -> io::Result<u64> {
        Ok(self.head.len() as u64 + self.tensor)
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        if let Some(head) = self.head.get(offset as usize..) {
            let n = head.len().min(buffer.len());
            buffer[..n].copy_from_slice(&head[..n]);
        }
        Ok(())
    }
}

#[test]
fn a_tensor_that_is_larger_than_memory_is_an_error() {
    let file = File::open_source(Vast::new(1 << 60)).unwrap();
    assert_eq!(file.read("t").unwrap_err().status(), Status::NoMemory);
    let part = file.slice("t", &s![1..]).unwrap();
    let error = part.read().unwrap_err();
    assert_eq!(
        (error.status(), error.message()),
        (Status::NoMemory, "there is no memory for 1152921504606846975 bytes")
    );
    assert_eq!(file.slice("t", &s![-3..]).unwrap().read().unwrap(), [0; 3]);
}

/// Each read interrupts the call that it is for.
struct Interrupting {
    of: Vast,
    interrupt: Arc<Mutex<Option<Interrupt>>>,
}

impl Source for Interrupting {
    fn size(&self) -> io::Result<u64> {
        self.of.size()
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        if let Some(interrupt) = self.interrupt.lock().unwrap().as_ref() {
            interrupt.interrupt();
        }
        self.of.read_at(buffer, offset)
    }
}

#[test]
fn what_outlives_its_file_can_be_interrupted() {
    let interrupt = Arc::new(Mutex::new(None));
    let source = Interrupting { of: Vast::new(64 << 20), interrupt: Arc::clone(&interrupt) };
    let file = File::open_source(source).unwrap();
    let (now, tensor) = (file.snapshot().unwrap(), file.tensor("t").unwrap());
    let of_file = file.interrupt_handle();
    drop(file);
    let handles = [(of_file, false), (now.interrupt_handle(), true), (tensor.interrupt_handle(), true)];
    for (handle, reaches) in handles {
        *interrupt.lock().unwrap() = Some(handle);
        let calls = [now.read("t").map(drop), tensor.read().map(drop)];
        for answer in calls {
            assert_eq!(
                answer.map_err(|error| error.status()),
                if reaches { Err(Status::Interrupted) } else { Ok(()) }
            );
        }
    }
}

/// Ends what waits for it, also where a panic comes first.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_drop_closes_the_file_while_another_thread_interrupts_it() {
    let model = Model::plain();
    let interrupt: Mutex<Option<Interrupt>> = Mutex::new(None);
    let (is_over, rounds) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let handle = interrupt.lock().unwrap().clone();
                rounds.fetch_add(1, Ordering::SeqCst);
                (0..1000).for_each(|_| handle.iter().for_each(Interrupt::interrupt));
            }
        });
        let is_left_open = |_: &i32| {
            let (file, asked) = opened(&model, 1);
            *interrupt.lock().unwrap() = Some(file.interrupt_handle());
            let is_interrupted = rounds.load(Ordering::SeqCst) + 2; // the first may be of the file before
            while rounds.load(Ordering::SeqCst) < is_interrupted {
                std::thread::yield_now();
            }
            drop(file);
            asked.gone.load(Ordering::Relaxed) == 0
        };
        let _over = Over(&is_over);
        assert_eq!((0..100).filter(is_left_open).count(), 0);
    });
}
