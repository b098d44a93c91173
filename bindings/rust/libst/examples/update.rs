//! Zero tensors, in place and all at once: cargo run --example update MODEL.safetensors NAME...

use std::time::Duration;

use libst::{OpenOptions, Status};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("update MODEL.safetensors NAME...")?;
    let file = OpenOptions::new().write(true).lock_timeout(Duration::from_secs(1)).open(path)?;
    let mut change = file.begin()?;
    for name in arguments {
        let zeros = vec![0; file.tensor(&name)?.data_len()];
        change.update_bytes(&name, &zeros)?;
    }
    while let Err(error) = change.try_commit() {
        if error.status() != Status::Busy {
            return Err(error.into());
        }
        eprintln!("{error}"); // another worker holds a lock: try again
    }
    println!("durable: {} bytes in place", file.stats()?.bytes_written);
    Ok(())
}
