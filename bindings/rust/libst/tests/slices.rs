//! What `random.rs` does not take of slices: inclusive ranges, and what is refused.

mod support;

use support::*;

/// The indices from `start` to `last`, which is one of them.
fn indices_to(start: Option<i64>, last: i64, step: i64, n: i64) -> Vec<i64> {
    let from_front = |end: i64| if end < 0 { end + n } else { end };
    let last = from_front(last);
    let all: Vec<i64> = if step < 0 { (0..n).rev().collect() } else { (0..n).collect() };
    let is_before = |a: i64, b: i64| if step < 0 { a > b } else { a < b };
    let behind_start =
        all.into_iter().filter(|i| start.map_or(true, |start| !is_before(*i, from_front(start))));
    behind_start.step_by(step.unsigned_abs() as usize).filter(|i| !is_before(last, *i)).collect()
}

#[test]
fn an_inclusive_range_holds_its_last_element_whichever_way_it_goes() {
    let mut samples = Samples::new();
    for n in 0..6 {
        let data = (0..n as u8).collect();
        samples.insert(n.to_string(), Sample { dtype: safetensors::Dtype::U8, shape: vec![n], data });
    }
    let model = Model::new(samples, Default::default());
    let file = File::open(&model.path).unwrap();
    let read = |n: i64, range: Range| file.slice(&n.to_string(), &[range]).unwrap().read().unwrap();
    assert_eq!(read(5, s![4..=2;-1][0]), [4, 3, 2]);
    assert_eq!(read(5, s![..=0;-1][0]), [4, 3, 2, 1, 0]);
    assert_eq!(read(5, s![..=-1;-1][0]), [4]);
    for n in 0..6 {
        for (last, step) in (-8..8).flat_map(|last| [1, 2, 3, -1, -2, -3].map(|step| (last, step))) {
            for start in (-8..9).map(|start| (start < 8).then_some(start)) {
                let range = start.map_or(Range::from(..=last), |start| Range::from(start..=last));
                let expected: Vec<u8> =
                    indices_to(start, last, step, n).into_iter().map(|i| i as u8).collect();
                assert_eq!(read(n, range.step(step)), expected, "{start:?}..={last};{step} of {n}");
            }
        }
    }
}

#[test]
fn what_no_slice_can_be_is_an_error() {
    let mut samples = Samples::new();
    let mut random = Random::new(1);
    samples.insert("half".to_owned(), Sample::new(safetensors::Dtype::F4, &[2, 4], &mut random));
    let model = Model::new(samples, Default::default());
    let file = File::open(&model.path).unwrap();
    let status = |ranges: &[Range]| file.slice("half", ranges).unwrap_err().status();
    assert_eq!(status(&s![..; 0]), Status::InvalidArgument);
    assert_eq!(status(&s![.., .., ..]), Status::OutOfRange);
    assert_eq!(status(&s![.., 1..2]), Status::Subbyte);
    assert_eq!(file.slice("none", &s![..]).unwrap_err().status(), Status::NotFound);
    assert_eq!(file.slice("half", &s![1..]).unwrap().read().unwrap(), model.data("half")[2..]);
    let whole = file.slice("half", &[]).unwrap();
    let error = whole.read_into(&mut [0; 3]).unwrap_err();
    assert_eq!(error.status(), Status::BufferSize);
    let mut roomy = [0xAA; 6];
    whole.read_into(&mut roomy).unwrap();
    assert_eq!((&roomy[..4], &roomy[4..]), (model.data("half"), &[0xAA; 2][..]));
}
