//! Some rows of a tensor, of which only their bytes are read: cargo run --example read MODEL.safetensors NAME FIRST LAST

use libst::{s, Dtype, File};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, name, first, last] = &arguments[..] else {
        return Err("read MODEL.safetensors NAME FIRST LAST".into());
    };
    let file = File::open(path)?;
    let (first, last): (i64, i64) = (first.parse()?, last.parse()?);
    let rows = file.slice(name, &s![first..=last])?;
    println!("{} {:?}", rows.dtype(), rows.shape());
    match rows.dtype() {
        Dtype::F32 => rows.read_as::<f32>()?.iter().for_each(|x| println!("{x}")),
        _ => println!("{:02x?}", rows.read()?),
    }
    Ok(())
}
