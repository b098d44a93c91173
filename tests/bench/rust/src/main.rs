//! bindings-bench SMALL NAME LARGE: for each line "WHAT N" on standard input, prints the nanoseconds of N times
//!   view     libst: a view of the tensor NAME of the file SMALL, which is open
//!   open     libst: open the file LARGE
//!   names    the same, and list the names
//!   crate-open, crate-names     the crate `safetensors`: map LARGE and deserialise it; the same, and list the names
//!
//! bindings-bench WAY ROW FILE COUNT: a shot of reads.rs. WAY: libst, crate, pread; ROW: tensor, read, read_into, and
//! copy, copy_into of what is mapped

mod reads;

use std::fs::File;
use std::hint::black_box;
use std::io::{stdin, BufRead};
use std::time::Instant;

use memmap2::Mmap;
use safetensors::SafeTensors;

fn repeat(n: u64, mut work: impl FnMut()) -> u128 {
    let begin = Instant::now();
    for _ in 0..n {
        work();
    }
    begin.elapsed().as_nanos()
}

fn map(path: &str) -> Mmap {
    let file = File::open(path).expect("the file opens");
    // SAFETY: nobody changes the benchmark's file.
    unsafe { Mmap::map(&file) }.expect("the file can be mapped")
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [way, row, path, count] = &arguments[..] {
        return reads::run(way, row, path, count.parse().expect("COUNT is a number"));
    }
    let [small, name, large] = &arguments[..] else {
        panic!("bindings-bench SMALL NAME LARGE")
    };
    let file = libst::File::open(small).expect("libst opens it");
    for line in stdin().lock().lines().map_while(Result::ok) {
        let (what, n) = line.split_once(' ').expect("WHAT N");
        let n = n.parse().expect("N is a number");
        let took = match what {
            "view" => repeat(n, || {
                // SAFETY: nobody changes the benchmark's file.
                let view = unsafe { file.view(black_box(name)) }.expect("it is there");
                black_box(view.data()); // what get_bench takes, too
            }),
            "open" => repeat(n, || {
                black_box(libst::File::open(large).expect("libst opens it"));
            }),
            "names" => repeat(n, || {
                black_box(
                    libst::File::open(large)
                        .and_then(|file| file.names())
                        .expect("libst opens it")
                        .len(),
                );
            }),
            "crate-open" => repeat(n, || {
                let bytes = map(large);
                black_box(SafeTensors::deserialize(&bytes).expect("it is valid").len());
            }),
            "crate-names" => repeat(n, || {
                let bytes = map(large);
                black_box(
                    SafeTensors::deserialize(&bytes)
                        .expect("it is valid")
                        .names()
                        .len(),
                );
            }),
            _ => panic!("{what}?"),
        };
        println!("{took}");
    }
}
