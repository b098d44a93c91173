//! A failure, taken from the library's last error of this thread at once, before another call replaces it.

use std::ffi::{c_char, CStr};
use std::{fmt, io};

use crate::{sys, Status};

/// The result of a call into libst.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failed call: what kind, one sentence, and the parts a program may want.
///
/// It prints as the sentence: what failed, where, what to do; with `{:?}`, as a `main` that answers it does, by its status
/// too, and with `{:#?}` in parts. Where the operating system failed a call its error is
/// the [`source`](std::error::Error::source); where a [`Source`](crate::Source) did, what that answered.
///
/// ```
/// # use libst::{File, Status};
/// # use std::error::Error as _;
/// let error = File::open("/no/such/model.safetensors").unwrap_err();
/// assert_eq!(error.status(), Status::NoFile);
/// let os: &std::io::Error = error.source().unwrap().downcast_ref().unwrap();
/// assert_eq!(os.kind(), std::io::ErrorKind::NotFound);
/// ```
pub struct Error(Box<Parts>);

struct Parts {
    status: Status,
    message: String,
    os_errno: Option<i32>,
    source: Option<io::Error>,
    tensor: Option<String>,
    offset: Option<u64>,
    shard: u32,
    holder_pid: Option<u32>,
}

impl Error {
    pub(crate) fn new(status: Status, message: impl Into<String>) -> Error {
        Error(Box::new(Parts {
            status,
            message: message.into(),
            os_errno: None,
            source: None,
            tensor: None,
            offset: None,
            shard: 0,
            holder_pid: None,
        }))
    }

    pub(crate) fn about_tensor(mut self, name: &str) -> Error {
        self.0.tensor = Some(name.to_owned());
        self
    }

    pub(crate) fn caused_by(mut self, cause: io::Error) -> Error {
        self.0.os_errno = self.0.os_errno.or(cause.raw_os_error());
        self.0.source = Some(cause);
        self
    }

    /// The last failure of this thread, whose status was `code`.
    #[cold]
    fn last(code: sys::st_status) -> Error {
        let mut info = sys::st_error_info::default();
        // SAFETY: `info` is set up; its strings are copied before this thread makes another call.
        unsafe {
            sys::st_last_error_info(&mut info);
            Error(Box::new(Parts {
                status: Status::from_code(code),
                message: text(info.message),
                os_errno: (info.os_errno != 0).then_some(info.os_errno),
                source: (info.os_errno != 0).then(|| io::Error::from_raw_os_error(info.os_errno)),
                tensor: (!info.tensor.is_null()).then(|| {
                    let bytes = std::slice::from_raw_parts(info.tensor.cast::<u8>(), info.tensor_len);
                    String::from_utf8_lossy(bytes).into_owned()
                }),
                offset: (info.offset != u64::MAX).then_some(info.offset),
                shard: info.shard,
                holder_pid: u32::try_from(info.holder_pid).ok().filter(|pid| *pid != 0),
            }))
        }
    }

    /// What kind of failure.
    pub fn status(&self) -> Status {
        self.0.status
    }

    /// One sentence: what, where, what to do.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// `errno` of the system call that failed, if one did.
    pub fn os_errno(&self) -> Option<i32> {
        self.0.os_errno
    }

    /// The name of the tensor that the failure is about.
    pub fn tensor(&self) -> Option<&str> {
        self.0.tensor.as_deref()
    }

    /// The offset in the file that the failure is about.
    pub fn offset(&self) -> Option<u64> {
        self.0.offset
    }

    /// The number of the file in a sharded checkpoint; else 0.
    pub fn shard(&self) -> u32 {
        self.0.shard
    }

    /// With [`Status::Busy`]: the process that holds the lock, where that is known.
    pub fn holder_pid(&self) -> Option<u32> {
        self.0.holder_pid
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() {
            let parts = &self.0;
            return f
                .debug_struct("Error")
                .field("status", &parts.status)
                .field("message", &parts.message)
                .field("source", &parts.source)
                .field("tensor", &parts.tensor)
                .field("offset", &parts.offset)
                .field("shard", &parts.shard)
                .field("holder_pid", &parts.holder_pid)
                .finish();
        }
        write!(f, "{} ({})", self.0.message, self.0.status)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|e| e as _)
    }
}

/// For programs whose functions answer errors of the system: of its kind, or of what comes nearest to the status. The
/// error itself is in it.
impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        let of_the_file = Status::HeaderTooSmall.code()..=Status::DeltaBase.code();
        let kind = match (error.os_errno(), error.status()) {
            (Some(errno), _) => io::Error::from_raw_os_error(errno).kind(),
            (_, Status::NoFile) => io::ErrorKind::NotFound,
            (_, Status::Permission) => io::ErrorKind::PermissionDenied,
            (_, Status::NoMemory) => io::ErrorKind::OutOfMemory,
            (_, Status::InvalidArgument) => io::ErrorKind::InvalidInput,
            (_, Status::Unsupported | Status::LockUnsupported) => io::ErrorKind::Unsupported,
            (_, status) if of_the_file.contains(&status.code()) => io::ErrorKind::InvalidData,
            _ => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}

/// What a call answered, which must have been made by this thread just now.
#[inline]
pub(crate) fn check(status: sys::st_status) -> Result<()> {
    if status == sys::ST_OK {
        Ok(())
    } else {
        Err(Error::last(status))
    }
}

/// A C string of the library as a string of our own.
///
/// # Safety
/// `s` is NULL or ends in a NUL.
pub(crate) unsafe fn text(s: *const c_char) -> String {
    if s.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(s) }.to_string_lossy().into_owned()
}
