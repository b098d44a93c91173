//! The examples do what they say.

mod support;

use std::path::Path;
use std::process::Command;

use support::*;

/// Cargo builds the examples beside the tests.
fn run(example: &str, arguments: &[&str], path: &Path) -> (bool, String) {
    let here = std::env::current_exe().unwrap();
    let program = here.parent().unwrap().parent().unwrap().join("examples").join(example);
    let output = Command::new(&program).arg(path).args(arguments).output();
    let output = output.unwrap_or_else(|e| {
        panic!("{}: {e}; `cargo test` builds it, with --test it does not", program.display())
    });
    let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    (output.status.success(), text)
}

#[test]
fn list_read_and_update_run() {
    let model = Model::plain();
    let (fine, said) = run("list", &[], &model.path);
    assert!(
        fine && said.contains("w\tF32\t[64, 96]\t24576 bytes") && said.contains("made by = a test"),
        "{said}"
    );

    let (fine, said) = run("read", &["w", "2", "3"], &model.path);
    let row: Vec<String> = model.data("w")[2 * 96 * 4..4 * 96 * 4]
        .chunks_exact(4)
        .map(|x| f32::from_le_bytes(x.try_into().unwrap()).to_string())
        .collect();
    assert!(fine && said == format!("F32 [2, 96]\n{}\n", row.join("\n")), "{said}");

    let (fine, said) = run("update", &["w", "b"], &model.path);
    assert!(fine && said.contains("durable"), "{said}");
    assert!(model.holds(&[("w", &[0; 24576]), ("b", &[0; 7]), ("v", model.data("v"))]));

    let (fine, said) = run("update", &["none"], &model.path);
    assert!(!fine && said.contains("none"), "{said}");
}

#[test]
fn the_text_of_the_readme_runs() {
    let example = include_str!("../examples/readme.rs");
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../README.md");
    match std::fs::read_to_string(&readme) {
        Ok(text) => {
            let section = text.split("\n## In Rust\n").nth(1).expect("the README has a section \"In Rust\"");
            let code = section.split("```rust\n").nth(1).unwrap().split("```").next().unwrap();
            assert_eq!(code, example, "README.md and examples/readme.rs differ");
        }
        Err(e) => eprintln!("not compared: {} is only in the repository ({e})", readme.display()),
    }

    let mut random = Random::new(1);
    let samples = [
        ("lm_head.weight", Sample::new(safetensors::Dtype::F32, &[8, 2], &mut random)),
        ("model.norm.weight", Sample::new(safetensors::Dtype::BF16, &[16], &mut random)),
    ];
    let samples = samples.map(|(name, sample)| (name.to_owned(), sample));
    let model = Model::new(samples.into(), Default::default());
    let program =
        Path::new(&std::env::current_exe().unwrap()).ancestors().nth(2).unwrap().join("examples/readme");
    let output = Command::new(program).current_dir(model.path.parent().unwrap()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let head = &model.data("lm_head.weight")[..4 * 2 * 4];
    let output = model.data("lm_head.weight");
    assert!(model.holds(&[("head", head), ("output.weight", output), ("model.norm.weight", &[0; 32])]));
    assert_eq!(model.now().0.len(), 3);
}
