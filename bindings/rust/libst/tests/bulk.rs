//! Bulk reads: the same bytes, in whatever order; loaded memory that nobody else can reach.

mod support;

use std::ops::ControlFlow;
use std::panic::{catch_unwind, AssertUnwindSafe};

use support::*;

#[test]
fn read_many_reads_what_read_reads() {
    for seed in 0..5 {
        let model = Model::random(seed);
        for map in [Map::Auto, Map::None] {
            let options =
                OpenOptions::new().map(map).prefetch(Prefetch::Parallel).io_threads(3).block_size(1 << 16);
            let file = options.open(&model.path).unwrap();
            let tensors: Vec<Tensor> = file.tensors().unwrap().into_iter().rev().collect();
            let mut buffers: Vec<Vec<u8>> = tensors.iter().map(|t| vec![0xEE; t.data_len() + 3]).collect();
            file.read_many(tensors.iter().zip(&mut buffers).map(|(t, buffer)| t.request(buffer))).unwrap();
            for (tensor, buffer) in tensors.iter().zip(&buffers) {
                let (data, rest) = buffer.split_at(tensor.data_len());
                assert_eq!((data, rest), (model.data(tensor.name()), &[0xEE; 3][..]));
            }
        }
    }
    let model = Model::plain();
    let file = File::open(&model.path).unwrap();
    file.read_many([]).unwrap();
}

#[test]
fn parts_and_wholes_are_read_together() {
    let model = Model::plain();
    let file = File::open(&model.path).unwrap();
    let (part, whole) = (file.slice("w", &s![2..60;3, -5..]).unwrap(), file.tensor("b").unwrap());
    let (mut to_part, mut to_whole) = (vec![0; part.data_len()], vec![0; 7]);
    file.read_many([part.request(&mut to_part), whole.request(&mut to_whole)]).unwrap();
    assert_eq!((to_part, &to_whole[..]), (part.read().unwrap(), model.data("b")));
    let info = file.info().unwrap();
    assert!(info.io_threads > 0 && info.block_size > 0 && !info.prefetch_reason.is_empty(), "{info:?}");
    assert!(file.stats().unwrap().read_requests > 0);
}

#[test]
fn requests_that_cannot_be_met_are_errors() {
    let model = Model::plain();
    let (file, other) = (File::open(&model.path).unwrap(), File::open(&model.path).unwrap());
    let tensor = other.tensor("b").unwrap();
    let error = file.read_many([tensor.request(&mut [0; 7])]).unwrap_err();
    assert_eq!(error.status(), Status::InvalidArgument);
    let error = other.read_many([tensor.request(&mut [0; 6])]).unwrap_err();
    assert_eq!((error.status(), error.tensor()), (Status::BufferSize, Some("b")));
    assert_eq!(file.prefetch(Some(&["b", "none"])).unwrap_err().status(), Status::NotFound);
    assert_eq!(file.load(Some(&["none\0"])).unwrap_err().tensor(), Some("none\0"));
}

#[test]
fn tensors_are_looked_up_by_name() {
    let model = Model::plain();
    let file = File::open(&model.path).unwrap();
    let found = file.tensors_by_name(&["w", "b", "w"]).unwrap();
    assert_eq!(found.iter().map(Tensor::name).collect::<Vec<_>>(), ["w", "b", "w"]);
    assert_eq!(found[1].read().unwrap(), model.data("b"));
    assert!(file.tensors_by_name(&[]).unwrap().is_empty());
    let error = file.tensors_by_name(&["b", "none"]).unwrap_err();
    assert_eq!((error.status(), error.tensor()), (Status::NotFound, Some("none")));
}

fn large() -> Model {
    let mut random = Random::new(2);
    let samples = [("x", 9), ("y", 8)].map(|(name, mib): (&str, usize)| {
        (name.to_owned(), Sample::new(safetensors::Dtype::U8, &[mib << 20], &mut random))
    });
    Model::new(samples.into(), Default::default())
}

#[test]
fn what_is_loaded_is_memory_of_the_files_own() {
    let model = large();
    let file = File::open(&model.path).unwrap();
    let mut told = 0;
    let load = LoadOptions::new().direct(true).huge_pages(true).progress(|progress| {
        told = told.max(progress.done);
        ControlFlow::Continue(())
    });
    load.load(&file, None).unwrap();
    assert_eq!(told, 17 << 20);
    let (x, y) = (file.view_owned("x").unwrap(), file.view_owned("y").unwrap());
    assert_eq!((x.data(), y.data()), (model.data("x"), model.data("y")));
    assert!(file.stats().unwrap().bytes_owned >= 17 << 20);
    // Neither a patch nor a truncation reaches it.
    model.writable().update_bytes("x", &vec![0; 9 << 20]).unwrap();
    std::fs::write(&model.path, []).unwrap();
    assert_eq!((x.data(), y.data()), (model.data("x"), model.data("y")));
    assert_eq!(file.view_owned("x").unwrap().data().as_ptr(), x.data().as_ptr(), "read once");
}

#[test]
fn bytes_are_read_to_memory_that_nobody_has_touched() {
    let model = large();
    let file = File::open(&model.path).unwrap();
    let now = file.snapshot().unwrap();
    let (whole, part) = (file.tensor("x").unwrap(), file.slice("y", &s![..;2]).unwrap());
    for of_snapshot in [false, true] {
        let (mut x, mut y) = (Vec::with_capacity(9 << 20), Vec::<u8>::with_capacity(4 << 20));
        let mut told = 0;
        let progress = |progress: Progress| {
            told = progress.done;
            ControlFlow::Continue(())
        };
        let requests =
            [whole.request_uninit(x.spare_capacity_mut()), part.request_uninit(y.spare_capacity_mut())];
        let options = ReadOptions::new().fresh_memory(true).progress(progress);
        match of_snapshot {
            true => options.read_many_in(&now, requests).unwrap(),
            false => options.read_many(&file, requests).unwrap(),
        }
        // SAFETY: they were read.
        unsafe {
            x.set_len(9 << 20);
            y.set_len(4 << 20);
        }
        assert!(x == model.data("x") && y == part.read().unwrap());
        assert!(told >= 13 << 20);
    }
    let mut touched = vec![1; 9 << 20];
    let options = ReadOptions::new().fresh_memory(true).fresh_memory(false).fresh_memory(true);
    options.read_many(&file, [whole.request(&mut touched)]).unwrap();
    assert!(touched == model.data("x"));
}

#[test]
fn a_snapshot_has_the_choices_of_a_file() {
    let model = large();
    let now = OpenOptions::new().map(Map::None).open(&model.path).unwrap().snapshot().unwrap();
    let mut x = vec![0; 9 << 20];
    let tensor = now.tensor("x").unwrap();
    let cancelled = now.read_many_with([tensor.request(&mut x)], |_| ControlFlow::Break(()));
    assert_eq!(cancelled.unwrap_err().status(), Status::Cancelled);
    let cancelled = now.prefetch_with(Some(&["x"]), |_| ControlFlow::Break(()));
    assert_eq!(cancelled.unwrap_err().status(), Status::Cancelled);
    let cancelled = LoadOptions::new().progress(|_| ControlFlow::Break(())).load_in(&now, None);
    assert_eq!(cancelled.unwrap_err().status(), Status::Cancelled);
    LoadOptions::new().load_in(&now, Some(&["y"])).unwrap();
    assert_eq!(now.stats().unwrap().bytes_owned >> 20, 8);
}

#[test]
fn a_view_of_owned_memory_is_read_when_it_is_asked_for() {
    let model = large();
    let file = File::open(&model.path).unwrap();
    let y = file.view_owned("y").unwrap();
    assert_eq!(file.stats().unwrap().bytes_owned >> 20, 8);
    std::fs::write(&model.path, []).unwrap();
    assert_eq!(y.data(), model.data("y"));
    assert_eq!(file.view_owned("x").unwrap_err().status(), Status::FileChanged);
}

#[test]
fn workers_warm_a_file_together() {
    let model = large();
    for count in 1..4 {
        for index in 0..count {
            let options = OpenOptions::new().worker(index, count).direct(Direct::Off).memory_limit(1 << 40);
            let file = options.open(&model.path).unwrap();
            file.prefetch(None).unwrap();
            file.prefetch(Some(&[])).unwrap();
            file.prefetch(Some(&["y"])).unwrap();
        }
    }
    assert_eq!(
        OpenOptions::new().worker(2, 2).open(&model.path).unwrap_err().status(),
        Status::InvalidArgument
    );
}

#[test]
fn progress_of_a_bulk_read_cancels_and_panics() {
    let model = large();
    let file = OpenOptions::new().map(Map::None).open(&model.path).unwrap();
    let tensor = file.tensor("x").unwrap();
    let mut buffer = vec![0; tensor.data_len()];
    let cancelled = file.read_many_with([tensor.request(&mut buffer)], |_| ControlFlow::Break(()));
    assert_eq!(cancelled.unwrap_err().status(), Status::Cancelled);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        file.read_many_with([tensor.request(&mut buffer)], |progress| panic!("at {}", progress.done))
    }));
    assert!(panicked.unwrap_err().downcast::<String>().unwrap().starts_with("at "));
    let panicked = catch_unwind(AssertUnwindSafe(|| file.prefetch_with(None, |_| panic!("prefetching"))));
    assert_eq!(*panicked.unwrap_err().downcast::<&str>().unwrap(), "prefetching");
    let mut told = 0;
    file.read_many_with([tensor.request(&mut buffer)], |progress| {
        told = progress.done;
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!((told, &buffer[..]), (9 << 20, model.data("x")));
}

#[test]
fn a_child_opens_the_file_for_itself() {
    let model = large();
    let file = File::open(&model.path).unwrap();
    file.load(Some(&["x"])).unwrap();
    let before = file.view_owned("x").unwrap();
    let child = Child::fork(|| {
        assert_eq!(before.data(), model.data("x"));
        assert_eq!(file.read("y").unwrap(), model.data("y"));
        assert_eq!(file.view_owned("x").unwrap().data(), model.data("x"));
        assert_eq!(file.view_owned("y").unwrap().data(), model.data("y"));
        assert_eq!(before.data(), model.data("x"));
        assert_eq!(file.stats().unwrap().reopens, 1);
        0
    });
    assert_eq!(child.wait(), 0);
    assert_eq!(file.stats().unwrap().reopens, 0);
}
