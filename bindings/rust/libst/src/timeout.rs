//! How long to wait for a lock, as C takes it.

use std::time::Duration;

use crate::sys;

pub(crate) const DEFAULT_MS: i32 = sys::ST_OPEN_OPTIONS_INIT.lock_timeout_ms;

/// None: for ever. A wait that is not nothing is at least a millisecond.
pub(crate) fn milliseconds(timeout: Option<Duration>) -> i32 {
    match timeout {
        None => sys::ST_TIMEOUT_FOREVER,
        Some(wait) => i32::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_rounded_up_and_saturate() {
        assert_eq!(milliseconds(None), sys::ST_TIMEOUT_FOREVER);
        assert_eq!(milliseconds(Some(Duration::ZERO)), 0);
        assert_eq!(milliseconds(Some(Duration::from_nanos(1))), 1);
        assert_eq!(milliseconds(Some(Duration::from_millis(250))), 250);
        assert_eq!(milliseconds(Some(Duration::from_secs(1 << 40))), i32::MAX);
        assert_eq!(milliseconds(Some(Duration::MAX)), i32::MAX);
    }
}
