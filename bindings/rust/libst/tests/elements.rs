//! Elements as Rust types: what is read, and the way back.
#![cfg(target_endian = "little")]

mod support;

use support::*;

fn file_of(tensors: &[(&str, TensorView<'_>)]) -> (tempfile::TempDir, File) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    save(&path, tensors.iter().cloned()).unwrap();
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    (folder, file)
}

fn come_back<T: Element + PartialEq + std::fmt::Debug>(values: [T; 4]) {
    let view = TensorView::of_values(&values, vec![2, 2]).unwrap();
    assert_eq!((view.dtype(), view.data()), (T::DTYPE, bytes_of(&values)));
    let (_folder, file) = file_of(&[("x", view.clone())]);
    assert_eq!(file.read_as::<T>("x").unwrap(), values);
    assert_eq!(file.snapshot().unwrap().read_as::<T>("x").unwrap(), values);
    assert_eq!(file.tensor("x").unwrap().read_as::<T>().unwrap(), values);
    assert_eq!(file.slice("x", &s![1..]).unwrap().read_as::<T>().unwrap(), values[2..]);
    assert_eq!(file.slice("x", &s![2..]).unwrap().read_as::<T>().unwrap(), []);
    let mut unaligned = vec![0];
    unaligned.extend(view.data());
    assert_eq!(TensorView::new(T::DTYPE, vec![4], &unaligned[1..]).unwrap().values::<T>().unwrap(), values);

    let turned = [values[3], values[2], values[1], values[0]];
    file.update_bytes("x", bytes_of(&turned)).unwrap();
    assert_eq!(file.read_as::<T>("x").unwrap(), turned);
    let rows = TensorView::of_values(&values[..2], vec![2, 1]).unwrap();
    file.update_rows("x", &[-1, 0], &s![1..], rows).unwrap();
    assert_eq!(file.read_as::<T>("x").unwrap(), [turned[0], values[1], turned[2], values[0]]);
}

#[test]
fn elements_come_back() {
    come_back([true, false, false, true]);
    come_back([-1_i8, 2, i8::MIN, 4]);
    come_back([1_u8, 2, u8::MAX, 4]);
    come_back([-1_i16, 2, i16::MIN, 4]);
    come_back([1_u16, 2, u16::MAX, 4]);
    come_back([-1_i32, 2, i32::MIN, 4]);
    come_back([1_u32, 2, u32::MAX, 4]);
    come_back([-1_i64, 2, i64::MIN, 4]);
    come_back([1_u64, 2, u64::MAX, 4]);
    come_back([-1.5_f32, 2.0, f32::MIN, f32::INFINITY]);
    come_back([-1.5_f64, 2.0, f64::MIN, f64::INFINITY]);
    come_back([[1_f32, 2.0], [3.0, -4.0], [5.0, 6.0], [0.0, 8.0]]);
}

#[test]
fn elements_of_another_type_are_refused_and_their_bits_are_not() {
    let half = [0x80, 0x3F, 0, 0xC0];
    let (_folder, file) = file_of(&[
        ("bf16", TensorView::new(Dtype::BF16, vec![2], &half).unwrap()),
        ("f4", TensorView::new(Dtype::F4, vec![8], &half).unwrap()),
        ("bool", TensorView::new(Dtype::BOOL, vec![4], &[0, 1, 2, 255]).unwrap()),
    ]);
    assert_eq!(file.read_as::<u16>("bf16").unwrap(), [0x3F80, 0xC000]);
    assert_eq!(file.read_as::<u8>("f4").unwrap(), half);
    assert_eq!(file.read_as::<u8>("bool").unwrap(), [0, 1, 2, 255]);
    assert_eq!(file.read_as::<bool>("bool").unwrap(), [false, true, true, true]);

    let refused = [
        file.read_as::<i16>("bf16").map(drop),
        file.read_as::<u32>("bf16").map(drop),
        file.slice("bf16", &[]).unwrap().read_as::<f32>().map(drop),
        file.read_as::<u16>("f4").map(drop),
        file.read_as::<i8>("f4").map(drop),
        file.read_as::<i8>("bool").map(drop),
    ];
    for error in refused.map(Result::unwrap_err) {
        assert_eq!(error.status(), Status::DtypeMismatch);
        assert!(error.tensor().is_some(), "{error}");
    }
    assert_eq!(file.read_as::<f32>("none").unwrap_err().status(), Status::NotFound);
    let view = TensorView::new(Dtype::BF16, vec![2], &half).unwrap();
    assert_eq!(view.values::<f32>().unwrap_err().status(), Status::DtypeMismatch);
    let short = TensorView::of_values(&[1_f32, 2.0], vec![3]).unwrap_err();
    assert_eq!(short.status(), Status::NbytesMismatch);
}
