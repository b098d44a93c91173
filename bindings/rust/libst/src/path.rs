//! Paths on their way to C.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::{Error, Result, Status};

pub(crate) fn c_path(path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| {
        Error::new(Status::InvalidArgument, format!("the path {path:?} holds a NUL, which no path can"))
    })
}
