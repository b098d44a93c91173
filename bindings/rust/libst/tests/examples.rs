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
