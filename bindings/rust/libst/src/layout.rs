//! In which order a file has its tensors.

use crate::info::numbered;
use crate::sys;

numbered! {
    /// In which order a new file has its tensors.
    Layout {
        /// As given; of a transaction: as in the file, new ones at the end.
        Keep = ST_LAYOUT_KEEP,
        /// Descending dtype, then name, as stock writers do.
        Canonical = ST_LAYOUT_CANONICAL,
        /// Of [`SaveOptions`](crate::SaveOptions) only: canonical, and byte for byte what safetensors 0.8 writes.
        Stock = ST_LAYOUT_STOCK,
    }
}
