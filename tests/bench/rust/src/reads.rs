//! One shot of reading each of the tensors of a file once, in random order: libst, or what a program does without it.

use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use safetensors::SafeTensors;

use crate::map;

/// The tensors' names, as bindings.py gives them.
fn names(count: usize) -> Vec<String> {
    let mut names: Vec<String> = (0..count).map(|i| format!("layers.{i}.weight")).collect();
    let mut state = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("it is after 1970")
        .as_nanos() as u64
        | 1;
    for i in (1..names.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        names.swap(i, (state % (i as u64 + 1)) as usize);
    }
    names
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().map(|byte| u64::from(*byte)).sum()
}

/// "NANOSECONDS SUM": of `each` name; and, untimed, the sum of all bytes by another such round.
fn shot(names: &[String], mut each: impl FnMut(&str), mut look: impl FnMut(&str) -> u64) {
    let begin = Instant::now();
    for name in names {
        each(name);
    }
    let took = begin.elapsed().as_nanos();
    println!(
        "{took} {}",
        names.iter().map(|name| look(name)).sum::<u64>()
    );
}

pub(crate) fn run(way: &str, row: &str, path: &str, count: usize) {
    let names = names(count);
    let mut buffer = Vec::new();
    if row.ends_with("_into") {
        let bytes = File::open(path)
            .and_then(|file| file.metadata())
            .expect("the file is there")
            .len();
        buffer.resize(bytes as usize / count, 1); // no tensor is larger
    }
    match way {
        "crate" => of_crate(row, path, &names, buffer),
        "pread" => by_pread(row, path, &names, buffer),
        "libst" => of_libst(row, path, &names, buffer),
        _ => panic!("{way}?"),
    }
}

fn copy_into(buffer: &mut [u8], data: &[u8]) {
    buffer[..data.len()].copy_from_slice(data);
    black_box(buffer);
}

fn of_crate(row: &str, path: &str, names: &[String], mut buffer: Vec<u8>) {
    let bytes = map(path);
    let file = SafeTensors::deserialize(&bytes).expect("it is valid");
    let tensor = |name: &str| file.tensor(name).expect("it is there");
    let look = |name: &str| sum(tensor(name).data());
    match row {
        "tensor" => shot(names, |name| drop(black_box(tensor(name))), look),
        "read" | "copy" => shot(
            names,
            |name| drop(black_box(tensor(name).data().to_vec())),
            look,
        ),
        "read_into" | "copy_into" => shot(
            names,
            |name| copy_into(&mut buffer, tensor(name).data()),
            look,
        ),
        _ => panic!("{row}?"),
    }
}

/// A program that knows from the crate where the tensors lie, and reads them from the file.
fn by_pread(row: &str, path: &str, names: &[String], mut buffer: Vec<u8>) {
    let bytes = map(path);
    let (header, metadata) = SafeTensors::read_metadata(&bytes).expect("it is valid");
    let file = File::open(path).expect("the file opens");
    let place = |name: &str| {
        let (begin, end) = metadata.info(name).expect("it is there").data_offsets;
        (8 + header + begin, end - begin)
    };
    let read = |name: &str| {
        let (begin, size) = place(name);
        let mut data = vec![0; size];
        file.read_exact_at(&mut data, begin as u64)
            .expect("it can be read");
        data
    };
    let look = |name: &str| sum(&read(name));
    match row {
        "read" => shot(names, |name| drop(black_box(read(name))), look),
        "read_into" => {
            let each = |name: &str| {
                let (begin, size) = place(name);
                file.read_exact_at(&mut buffer[..size], begin as u64)
                    .expect("it can be read");
                black_box(&buffer);
            };
            shot(names, each, look)
        }
        _ => panic!("{row}?"),
    }
}

fn of_libst(row: &str, path: &str, names: &[String], mut buffer: Vec<u8>) {
    let file = libst::File::open(path).expect("libst opens it");
    let look = |name: &str| sum(&file.read(name).expect("it is there"));
    // SAFETY: nobody changes the benchmark's file.
    let view = |name: &str| unsafe { file.view(name) }.expect("it is there");
    match row {
        "tensor" => shot(
            names,
            |name| drop(black_box(file.tensor(name).expect("it is there"))),
            look,
        ),
        "read" => shot(
            names,
            |name| drop(black_box(file.read(name).expect("it is there"))),
            look,
        ),
        "read_into" => {
            let each = |name: &str| {
                file.read_into(name, &mut buffer).expect("it is there");
                black_box(&buffer);
            };
            shot(names, each, look)
        }
        "copy" => shot(
            names,
            |name| drop(black_box(view(name).data().to_vec())),
            look,
        ),
        "copy_into" => shot(
            names,
            |name| copy_into(&mut buffer, view(name).data()),
            look,
        ),
        _ => panic!("{row}?"),
    }
}
