//! Compiles the libst that the crate carries in `bundled/`, by a C++20 compiler alone. `bash tests/dist.sh crates` puts it
//! there when it packs the crate; a clone has none.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// What the feature `remote` wants of the system.
const FOR_URLS: [&str; 3] = ["libcurl", "libcrypto", "pugixml"];

/// As many sources in one file as Meson takes: most of the time goes into the headers that they share.
const TOGETHER: usize = 24;

/// Where `st/st.h` lies; nothing if the crate carries no sources.
pub fn compile() -> Option<PathBuf> {
    let bundled = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR")?).join("bundled");
    if !bundled.join("core").is_dir() {
        return None; // Cargo would build anew each time for a folder that is not there
    }
    println!("cargo:rerun-if-changed={}", bundled.display());
    let (os, bits) = (variable("CARGO_CFG_TARGET_OS"), variable("CARGO_CFG_TARGET_POINTER_WIDTH"));
    if os != "linux" || bits != "64" {
        eprintln!("\nlibst-sys compiles libst for 64-bit Linux; this is {os} with {bits} bits.\n");
        std::process::exit(1);
    }
    let out = PathBuf::from(variable("OUT_DIR"));
    let mut build = cc::Build::new();
    build
        .cpp(true)
        .std("c++20")
        // Also where the crate itself is not optimised: a call needs no more than 64 KiB of stack then.
        .opt_level(2)
        .debug(false)
        .warnings(false)
        .define("NDEBUG", None)
        .define("_GNU_SOURCE", None)
        .define("_FILE_OFFSET_BITS", "64")
        // Another simdjson in the program, of another version, is not taken for this one. The names of zstd have a prefix
        // already.
        .define("simdjson", "simdjson_of_libst")
        .define("ZSTDLIB_VISIBLE", "")
        .define("ZSTDERRORLIB_VISIBLE", "")
        .define("libst_ZSTD_DISABLE_ASM", None)
        .flag("-fvisibility=hidden")
        .flag("-pthread")
        .include(bundled.join("core"))
        .include(bundled.join("capi"))
        .include(bundled.join("include"))
        .include(bundled.join("inside"))
        .include(bundled.join("inside").join("zstd"))
        .file(bundled.join("inside").join("simdjson.cpp"));
    let rooms = entries(&bundled.join("core")).into_iter().filter(|path| path.is_dir());
    let remote = bundled.join("core").join("remote");
    let mut folders: Vec<_> = rooms.filter(|room| *room != remote).chain([bundled.join("capi")]).collect();
    folders.push(bundled.join("core").join("base").join("avx2")); // alone, as it asks for more of a processor
    if cfg!(feature = "remote") {
        build
            .define("ST_REMOTE_INSIDE", None)
            .includes(FOR_URLS.iter().flat_map(|name| of_system(name, false)));
        folders.extend([remote.clone(), remote.join("credentials")]);
    }
    // The C of zstd is C++, too, and so takes no other compiler.
    folders.extend(entries(&bundled.join("inside").join("zstd")).into_iter().filter(|path| path.is_dir()));
    for folder in folders {
        let sources: Vec<_> = entries(&folder)
            .into_iter()
            .filter(|p| p.extension().is_some_and(|e| e == "cpp" || e == "c"))
            .collect();
        for (number, part) in sources.chunks(TOGETHER).enumerate() {
            let name = folder.file_name().expect("a folder has a name").to_string_lossy();
            let together = out.join(format!("{name}-{number}.cpp"));
            let text: String =
                part.iter().map(|source| format!("#include \"{}\"\n", source.display())).collect();
            fs::write(&together, text).unwrap_or_else(|e| panic!("{}: {e}", together.display()));
            build.file(together);
        }
    }
    build.compile("st_bundled");
    if cfg!(feature = "remote") {
        FOR_URLS.iter().for_each(|name| drop(of_system(name, true))); // linked behind what wants them
    }
    Some(bundled.join("include"))
}

/// The folders of its headers. `link`: programs are linked with it.
fn of_system(name: &str, link: bool) -> Vec<PathBuf> {
    match pkg_config::Config::new().cargo_metadata(link).probe(name) {
        Ok(found) => found.include_paths,
        Err(why) => {
            eprintln!(
                "\nlibst-sys did not find {name}, which its feature `remote` wants: {why}\nInstall libcurl, OpenSSL and pugixml \
                 with their headers (Debian: libcurl4-openssl-dev libssl-dev libpugixml-dev).\n"
            );
            std::process::exit(1);
        }
    }
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("Cargo sets {name}"))
}

/// In an order that is the same everywhere.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let listed = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut all: Vec<_> = listed.flatten().map(|entry| entry.path()).collect();
    all.sort();
    all
}
