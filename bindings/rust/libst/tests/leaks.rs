//! What is opened is closed: descriptors, mappings and memory after many rounds of everything. The only test of its
//! process, so that no other blurs the counts.

mod support;

use std::ops::ControlFlow;

use support::*;

fn round(model: &Model, bytes: &[u8], seed: usize) {
    let map = [Map::Shared, Map::Private, Map::None, Map::CopyOnWrite][seed % 4];
    let file = OpenOptions::new().write(true).map(map).log(|_, _| ()).open(&model.path).unwrap();
    let other = file.reopen().unwrap();
    let interrupt = file.interrupt_handle();
    for tensor in file.tensors().unwrap() {
        tensor.read().unwrap();
        // SAFETY: nobody writes meanwhile.
        assert_eq!(unsafe { other.view(tensor.name()).unwrap() }.data().len(), tensor.data_len());
    }
    drop(file.slice("w", &s![..;2]).unwrap());
    assert!(file.read("none").is_err() && File::open("/no/such/file").is_err());
    let mut dropped = TransactionOptions::new().progress(|_| ControlFlow::Continue(())).begin(&file).unwrap();
    dropped.update_bytes("b", &[1; 7]).unwrap();
    drop(dropped);
    let mut change = file.begin().unwrap();
    change.update_bytes("b", &[seed as u8; 7]).unwrap();
    change.commit().unwrap();
    if seed % 16 == 0 {
        publish(model); // syncs many times
    }
    let memory = SafeTensors::deserialize(bytes).unwrap();
    assert_eq!(memory.tensors().len(), 3);
    verify(&model.path).unwrap();
    drop((file, other));
    interrupt.interrupt();
}

fn publish(model: &Model) {
    let new = model.path.with_extension("new");
    save(&new, &model.samples).unwrap();
    let mut file = OpenOptions::new().write(true).open(&new).unwrap();
    let mut change = file.begin().unwrap();
    change.put("b", &model.samples["w"]).unwrap();
    change.rename("w", "weight").unwrap();
    change.plan().unwrap();
    change.commit().unwrap();
    let mut dropped = file.begin().unwrap();
    dropped.put("b", &model.samples["v"]).unwrap();
    drop(dropped);
    file.refresh().unwrap();
    compact(&new).unwrap();
    let mut unfinished = SaveOptions::new().progress(|_| ControlFlow::Continue(())).writer(&new).unwrap();
    unfinished.put("w", &model.samples["w"]).unwrap();
    drop(unfinished);
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn mappings_of(model: &Model) -> usize {
    std::fs::read_to_string("/proc/self/maps").unwrap().matches(model.path.to_str().unwrap()).count()
}

fn resident_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn many_rounds_leave_nothing_behind() {
    let model = Model::plain();
    let bytes = model.bytes();
    (0..100).for_each(|seed| round(&model, &bytes, seed)); // allocators warm up
    let (open, resident) = (descriptors(), resident_kib());
    (0..400).for_each(|seed| round(&model, &bytes, seed));
    assert_eq!((descriptors(), mappings_of(&model)), (open, 0));
    let grown = resident_kib().saturating_sub(resident);
    // Each round holds 100 KiB and more of tensors, so that a leak of any of it would be megabytes.
    // A sanitizer keeps what was freed, and looks for leaks itself.
    let sanitized = std::env::var_os("ASAN_OPTIONS").is_some();
    assert!(sanitized || grown < 4 << 10, "{grown} KiB more after 400 rounds");
    assert!(model.journals().is_empty());
}
