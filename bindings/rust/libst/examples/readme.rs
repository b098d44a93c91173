//! Read some rows, change a tensor in place, then several at once.

use libst::{s, Dtype, OpenOptions, TensorView};

fn main() -> libst::Result<()> {
    let file = OpenOptions::new().write(true).open("model.safetensors")?;
    let rows = file.slice("lm_head.weight", &s![..4])?.read()?; // reads only the bytes it needs
    let zeros = vec![0; file.tensor("model.norm.weight")?.data_len()];
    file.update_bytes("model.norm.weight", &zeros)?; // in place; durable when it returns

    let mut change = file.begin()?; // all of it, or nothing
    change.put("head", TensorView::new(Dtype::U8, vec![rows.len()], &rows)?)?; // any dtype and shape
    change.rename("lm_head.weight", "output.weight")?;
    change.commit()?;
    Ok(())
}
