//! The same file through libst and through the `safetensors` crate: same names, dtypes, shapes and bytes.

mod support;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use support::*;

fn map_of(file: &File) -> BTreeMap<String, (String, Vec<usize>, Vec<u8>)> {
    let read =
        |t: Tensor| (t.name().to_owned(), (t.dtype().to_string(), t.shape().to_vec(), t.read().unwrap()));
    file.tensors().unwrap().into_iter().map(read).collect()
}

fn map_of_theirs(bytes: &[u8]) -> BTreeMap<String, (String, Vec<usize>, Vec<u8>)> {
    let theirs = safetensors::SafeTensors::deserialize(bytes).unwrap();
    let tensors = theirs.tensors().into_iter();
    tensors.map(|(name, t)| (name, (t.dtype().to_string(), t.shape().to_vec(), t.data().to_vec()))).collect()
}

#[test]
fn random_files_of_all_dtypes_are_the_same() {
    for seed in 0..40 {
        let model = Model::random(seed);
        let theirs = map_of_theirs(&model.bytes());
        for map in [Map::Auto, Map::Shared, Map::Private, Map::None, Map::CopyOnWrite] {
            let file = OpenOptions::new().map(map).open(&model.path).unwrap();
            assert_eq!(map_of(&file), theirs, "seed {seed}");
            assert_eq!(file.len(), theirs.len());
            for (name, (dtype, shape, data)) in &theirs {
                assert!(file.contains(name).unwrap());
                // SAFETY: nobody writes to this file.
                let view = unsafe { file.view(name).unwrap() };
                assert_eq!(
                    (view.dtype().name(), view.shape(), view.data()),
                    (dtype.as_str(), &shape[..], &data[..])
                );
            }
            let pairs: HashMap<String, String> = file.metadata().into_iter().collect();
            assert_eq!(pairs, model.metadata);
            for (key, value) in &model.metadata {
                assert_eq!(file.metadata_get(key).as_ref(), Some(value));
            }
            assert_eq!(file.metadata_get("no such key"), None);
        }
    }
}

#[test]
fn tensors_come_in_the_order_of_their_offsets() {
    let model = Model::random(3);
    let file = File::open(&model.path).unwrap();
    let tensors = file.tensors().unwrap();
    let offsets: Vec<u64> = tensors.iter().map(|t| t.file_offset()).collect();
    assert!(offsets.windows(2).all(|pair| pair[0] <= pair[1]));
    assert_eq!(file.names().unwrap(), tensors.iter().map(Tensor::name).collect::<Vec<_>>());
    let now = file.snapshot().unwrap();
    // SAFETY: nobody writes to this file.
    let viewed: Vec<&str> = unsafe { now.views() }.map(|v| v.unwrap().0).collect();
    assert_eq!(file.names().unwrap(), viewed);
    assert_eq!((now.names().unwrap(), tensors.len()), (viewed, file.len()));
}

#[test]
fn names_with_nul_are_names() {
    let model = Model::random(1);
    let file = File::open(&model.path).unwrap();
    for name in ["nul\0inside", "\0", ""] {
        assert_eq!(file.tensor(name).unwrap().name(), name);
        assert_eq!(file.read(name).unwrap(), model.data(name));
    }
    assert_eq!(file.tensor("nul").unwrap_err().status(), Status::NotFound);
    let missing = file.tensor("nul\0outside").unwrap_err();
    assert_eq!(missing.tensor(), Some("nul\0outside"));
}

#[test]
fn scalars_and_tensors_of_nothing_are_read_viewed_and_sliced() {
    let model = Model::random(1);
    let file = File::open(&model.path).unwrap();
    let scalar = file.tensor("scalar").unwrap();
    assert_eq!((scalar.shape(), scalar.data_len()), (&[][..], 8));
    assert_eq!(scalar.slice(&[]).unwrap().read().unwrap(), model.data("scalar"));
    let nothing = file.tensor("nothing").unwrap();
    assert_eq!((nothing.shape(), nothing.data_len()), (&[3, 0, 2][..], 0));
    assert!(nothing.read().unwrap().is_empty());
    assert!(nothing.slice(&s![1..]).unwrap().read().unwrap().is_empty());
    // SAFETY: nobody writes to this file.
    assert!(unsafe { nothing.view().unwrap() }.data().is_empty());
}

#[test]
fn files_in_memory_speak_as_the_safetensors_crate_does() {
    for seed in 0..10 {
        let model = Model::random(seed);
        let bytes = model.bytes();
        let theirs = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let ours = SafeTensors::deserialize(&bytes).unwrap();
        assert_eq!((ours.len(), ours.is_empty()), (theirs.len(), theirs.is_empty()));
        let names = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect::<BTreeSet<_>>();
        assert_eq!(names(ours.names()), names(theirs.names()));
        for (name, view) in theirs.iter() {
            let mine = ours.tensor(name).unwrap();
            assert_eq!((mine.shape(), mine.data()), (view.shape(), view.data()));
            let copied = !mine.data().is_empty() && mine.data().as_ptr() != view.data().as_ptr();
            assert!(!copied, "{name:?}");
        }
        let mut outlives = ours.tensors();
        drop(ours);
        outlives.sort_by(|a, b| a.0.cmp(&b.0));
        let mut tensors = theirs.tensors();
        tensors.sort_by(|a, b| a.0.cmp(&b.0));
        for ((name, mine), (their_name, view)) in outlives.iter().zip(&tensors) {
            assert_eq!((name, mine.shape(), mine.data()), (their_name, view.shape(), view.data()));
        }
    }
}

#[test]
fn what_the_crate_refuses_libst_refuses() {
    let good = Model::plain().bytes();
    let mut damaged = Vec::new();
    for cut in [0, 7, 8, 40, good.len() - 1] {
        damaged.push(good[..cut].to_vec());
    }
    let mut longer = good.clone();
    longer.push(0);
    damaged.push(longer);
    let mut random = Random::new(5);
    for _ in 0..2000 {
        let mut bytes = good.clone();
        let at = random.below(200);
        bytes[at] = random.next() as u8;
        damaged.push(bytes);
    }
    let mut refused = 0;
    for bytes in damaged {
        let (theirs, ours) =
            (safetensors::SafeTensors::deserialize(&bytes), SafeTensors::deserialize(&bytes));
        // Names that stand twice are the one difference.
        let doubled = matches!(&ours, Err(e) if e.status() == Status::DuplicateName);
        assert!(doubled || theirs.is_ok() == ours.is_ok(), "{theirs:?} but {ours:?}");
        refused += usize::from(ours.is_err());
    }
    assert!(refused > 1000);
}

/// The corpus that `tests/differential/corpus.py FOLDER >FOLDER/cases` writes, in the folder that LIBST_TEST_CORPUS names.
#[test]
fn the_malformed_corpus_gets_the_same_verdicts() {
    let Some(folder) = std::env::var_os("LIBST_TEST_CORPUS").map(std::path::PathBuf::from) else {
        // The script that brings the real model brings the corpus, too.
        assert!(std::env::var_os("LIBST_TEST_MODEL").is_none(), "LIBST_TEST_CORPUS is not set");
        eprintln!("skipped: LIBST_TEST_CORPUS is not set");
        return;
    };
    let cases = std::fs::read_to_string(folder.join("cases")).unwrap();
    let mut count = 0;
    for case in cases.lines() {
        let mut words = case.split_whitespace();
        let (Some(name), Some(expected)) = (words.next(), words.next()) else { continue };
        let path = folder.join(name).with_extension("safetensors");
        let Ok(bytes) = std::fs::read(&path) else { continue };
        let verdict = |error: Option<Error>| error.map_or("ST_OK", |error| error.status().name());
        assert_eq!(verdict(File::open(&path).err()), expected, "{case}");
        assert_eq!(verdict(verify(&path).err()), expected, "{case}");
        assert_eq!(verdict(SafeTensors::deserialize(&bytes).err()), expected, "{case}");
        // In a debug build their reader panics where a sum overflows.
        let theirs =
            std::panic::catch_unwind(|| safetensors::SafeTensors::deserialize(&bytes).map(|t| t.len()));
        let theirs = theirs.unwrap_or(Err(safetensors::SafeTensorError::ValidationOverflow));
        let explained = case.ends_with("[the reference accepts]");
        assert_eq!(theirs.is_ok(), expected == "ST_OK" || explained, "{case}");
        if let (Ok(theirs), "ST_OK") = (theirs, expected) {
            assert_eq!(map_of(&File::open(&path).unwrap()).len(), theirs);
        }
        count += 1;
    }
    assert!(count > 100, "{count} cases");
}

#[test]
fn the_real_model_is_the_same() {
    let (_folder, path) = real_model();
    let theirs = map_of_theirs(&std::fs::read(&path).unwrap());
    let file = File::open(&path).unwrap();
    assert_eq!(map_of(&file), theirs);
    verify(&path).unwrap();

    // Change its largest tensor, and let the crate read the whole.
    let (name, (_, _, data)) = theirs.iter().max_by_key(|(_, t)| t.2.len()).unwrap();
    let halved: Vec<u8> = data.iter().map(|b| b / 2).collect();
    let writer = OpenOptions::new().write(true).open(&path).unwrap();
    writer.update_bytes(name, &halved).unwrap();
    let mut expected = theirs.clone();
    expected.get_mut(name).unwrap().2 = halved;
    assert_eq!(map_of_theirs(&std::fs::read(&path).unwrap()), expected);
    assert_eq!(map_of(&file), expected, "seen through a handle that was open before");
    verify(&path).unwrap();
}

#[cfg(feature = "safetensors")]
#[test]
fn types_convert_into_those_of_the_crate_and_back() {
    for &theirs in THEIR_DTYPES {
        let ours = Dtype::try_from(theirs).unwrap();
        assert_eq!((ours.name(), ours.bitsize()), (theirs.to_string().as_str(), theirs.bitsize()));
        assert_eq!(safetensors::Dtype::try_from(ours).unwrap(), theirs);
    }
    assert!(safetensors::Dtype::try_from(Dtype::Other(99)).is_err());
    let model = Model::random(2);
    let bytes = model.bytes();
    for (_, view) in SafeTensors::deserialize(&bytes).unwrap().iter() {
        let theirs = safetensors::tensor::TensorView::try_from(view.clone()).unwrap();
        assert_eq!((theirs.shape(), theirs.data()), (view.shape(), view.data()));
        assert_eq!(TensorView::try_from(theirs).unwrap(), view);
    }
}
