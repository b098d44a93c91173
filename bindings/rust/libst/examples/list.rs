//! What is in a file: cargo run --example list MODEL.safetensors

use libst::{File, Result};

fn main() -> Result<()> {
    let path = std::env::args().nth(1).expect("list MODEL.safetensors");
    let file = File::open(path)?;
    for tensor in file.tensors()? {
        println!("{}\t{}\t{:?}\t{} bytes", tensor.name(), tensor.dtype(), tensor.shape(), tensor.data_len());
    }
    for (key, value) in file.metadata() {
        println!("{key} = {value}");
    }
    let info = file.info()?;
    println!("{:?} mapping on {}: {}", info.map, info.filesystem, info.reason);
    Ok(())
}
