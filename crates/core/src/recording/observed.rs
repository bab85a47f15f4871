// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What every kind of record tells of itself: when it was observed, by which source, and what it refers to. It is
//! declared beside the kind, with [`observed!`].

use super::{CgroupId, DevId, FileId, ProcId, Source};
use crate::stats::Span;

/// Something that is described by a record of its own, before others refer to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reference {
    Process(ProcId),
    Cgroup(CgroupId),
    Device(DevId),
    /// A filesystem, which may have no device.
    Filesystem(DevId),
    File(FileId),
}

impl From<ProcId> for Reference {
    fn from(id: ProcId) -> Self {
        Self::Process(id)
    }
}

impl From<CgroupId> for Reference {
    fn from(id: CgroupId) -> Self {
        Self::Cgroup(id)
    }
}

impl From<DevId> for Reference {
    fn from(device: DevId) -> Self {
        Self::Device(device)
    }
}

impl From<FileId> for Reference {
    fn from(id: FileId) -> Self {
        Self::File(id)
    }
}

/// What a record tells of itself.
pub(super) trait Observed {
    /// The range of time that it belongs to; `None` for facts.
    fn range(&self) -> Option<Span> {
        None
    }

    /// The source that it comes from; `None` if that may be any.
    fn source(&self) -> Option<Source> {
        None
    }

    /// What must have been described before.
    fn references(&self) -> Vec<Reference> {
        Vec::new()
    }
}

/// Declares what the records of a type tell of themselves: `over` a range of time or `at` a time, `from` a source, and
/// references `to` others, each an [`IntoIterator`].
macro_rules! observed {
    (
        $it:ident: $type:ident
        $(over $t0:ident..$t1:ident)?
        $(at $t:ident)?
        $(, from $source:expr)?
        $(; to $($reference:expr),+)?
    ) => {
        impl $crate::recording::observed::Observed for $type {
            $(
                fn range(&self) -> Option<$crate::stats::Span> {
                    Some($crate::stats::Span::new(self.$t0, self.$t1))
                }
            )?
            $(
                fn range(&self) -> Option<$crate::stats::Span> {
                    Some($crate::stats::Span::at(self.$t))
                }
            )?
            $(
                fn source(&self) -> Option<$crate::recording::Source> {
                    let $it = self;
                    let _ = $it;
                    Some($source)
                }
            )?
            $(
                fn references(&self) -> Vec<$crate::recording::observed::Reference> {
                    let $it = self;
                    let mut references = Vec::new();
                    $(
                        references.extend(
                            IntoIterator::into_iter($reference)
                                .map($crate::recording::observed::Reference::from),
                        );
                    )+
                    references
                }
            )?
        }
    };
}

pub(super) use observed;
