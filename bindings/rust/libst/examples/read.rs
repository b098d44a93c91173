//! Some rows of a tensor, of which only their bytes are read: cargo run --example read MODEL.safetensors NAME FIRST LAST

use libst::{s, Dtype, File};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, name, first, last] = &arguments[..] else {
        return Err("read MODEL.safetensors NAME FIRST LAST".into());
    };
    let file = File::open(path)?;
    let rows = file.slice(name, &s![first.parse()?..=last.parse()?])?;
    println!("{} {:?}", rows.dtype(), rows.shape());
    let bytes = rows.read()?;
    match rows.dtype() {
        Dtype::F32 => {
            for x in bytes.chunks_exact(4) {
                println!("{}", f32::from_le_bytes(x.try_into()?));
            }
        }
        _ => println!("{bytes:02x?}"),
    }
    Ok(())
}
