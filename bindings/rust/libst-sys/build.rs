//! Find libst: in the folder that LIBST_DIR names; else what the crate carries, with the feature `bundled`; else through
//! pkg-config. A found library is linked by the file name `libst.so.2` and never by `-lst`, as Debian's State Threads has a
//! `libst.so` too.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

#[cfg(feature = "bundled")]
#[path = "build/bundled.rs"]
mod bundled;

const LIBRARY: &str = "libst.so.2";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=LIBST_DIR");
    if env::var_os("DOCS_RS").is_some() {
        return; // documentation links nothing
    }
    let named = env::var_os("LIBST_DIR").filter(|dir| !dir.is_empty());
    #[cfg(feature = "bundled")]
    if named.is_none() {
        if let Some(include) = bundled::compile() {
            tell_include(&include);
            return;
        }
    }
    println!("cargo:rerun-if-env-changed=LD_LIBRARY_PATH"); // see loader_finds
    let found = match named {
        Some(dir) => in_folder(Path::new(&dir)),
        None => by_pkg_config(),
    };
    match found {
        Ok((folder, include)) => {
            if !loader_finds(&folder) {
                println!(
                    "cargo:warning=programs will not start without {LIBRARY}, which the system does not look for in {0}: set \
                     LD_LIBRARY_PATH={0}, or run `sudo ldconfig` where libst is installed for all",
                    folder.display()
                );
            }
            println!("cargo:rustc-link-search=native={}", folder.display());
            println!("cargo:rustc-link-lib=dylib:+verbatim={LIBRARY}");
            if let Some(include) = include {
                tell_include(&include);
            }
        }
        Err(why) => {
            eprintln!(
                "\nlibst-sys did not find {LIBRARY}: {why}.\nInstall libst (`meson setup build && ninja -C build && \
                 sudo ninja -C build install`), or name the folder that holds {LIBRARY}, or the prefix that it was \
                 installed to, in LIBST_DIR.\n"
            );
            std::process::exit(1);
        }
    }
}

fn tell_include(folder: &Path) {
    println!("cargo:include={}", folder.display()); // DEP_ST_INCLUDE of those who depend on this
    println!("cargo:rustc-env=LIBST_SYS_INCLUDE={}", folder.display());
}

type Found = (PathBuf, Option<PathBuf>); // the library's folder, and that of st/st.h

/// `dir` is a prefix (/usr/local), the library's own folder, or a Meson build tree.
fn in_folder(dir: &Path) -> Result<Found, String> {
    if dir.is_relative() {
        // Cargo runs this in the crate's own folder.
        return Err(format!("LIBST_DIR must be absolute, and is {}", dir.display()));
    }
    let dir = &dir.canonicalize().map_err(|e| format!("LIBST_DIR is {}: {e}", dir.display()))?;
    let multiarch = format!("lib/{}-linux-gnu", env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default());
    let mut folders = ["", "lib", "lib64", &multiarch, "capi"].into_iter().map(|part| dir.join(part));
    let folder = folders.find(|folder| folder.join(LIBRARY).exists()).ok_or_else(|| {
        format!(
            "LIBST_DIR is {}, and neither it nor its lib, lib64, {multiarch} or capi holds it",
            dir.display()
        )
    })?;
    println!("cargo:rerun-if-changed={}", folder.join(LIBRARY).display());
    let include = dir.ancestors().take(4).map(|up| up.join("include")).find(|p| p.join("st/st.h").exists());
    Ok((folder, include))
}

/// Would a program that is started now find the library there?
fn loader_finds(folder: &Path) -> bool {
    let listed = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    if env::split_paths(&listed).any(|path| path.canonicalize().is_ok_and(|path| path == folder)) {
        return true;
    }
    let Ok(cache) = Command::new("/sbin/ldconfig").arg("-p").output() else { return true }; // who knows
    let library = folder.join(LIBRARY).canonicalize().ok();
    let ours = |line: &str| {
        line.rsplit(" => ").next().and_then(|path| Path::new(path).canonicalize().ok()) == library
    };
    String::from_utf8_lossy(&cache.stdout).lines().any(ours)
}

fn by_pkg_config() -> Result<Found, String> {
    let library = pkg_config::Config::new()
        .atleast_version("2.0.0")
        .cargo_metadata(false)
        .probe("libst")
        .map_err(|e| format!("LIBST_DIR is not set, and pkg-config says: {}", e.to_string().trim()))?;
    let folder = library.link_paths.iter().find(|path| path.join(LIBRARY).exists()).ok_or_else(|| {
        format!("pkg-config knows libst, but none of its folders {:?} holds the library", library.link_paths)
    })?;
    Ok((folder.clone(), library.include_paths.into_iter().find(|p| p.join("st/st.h").exists())))
}
