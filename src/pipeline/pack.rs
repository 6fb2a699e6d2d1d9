//! What of a capture's files was hit: what `profiler pack` packs.

use crate::capture::Reader;
use crate::format::packed::FileKey;
use crate::profile::About;
use crate::symbolize::{FilesUsed, HitFile, Options, SymbolsByOffset};

use super::{Counter, Progress};

/// Files that samples have frames in, with the symbols there.
#[derive(Debug)]
pub struct Hits {
    /// What the capture says about itself, damage found on the way included.
    pub about: About,
    /// The files with their sources on this machine.
    pub files: Vec<(HitFile, Option<FilesUsed>)>,
    /// Kernel addresses of which more is known here than the capture has.
    pub kernel: Option<(FileKey, SymbolsByOffset)>,
}

/// Finds all file offsets hit and names them by the files of this machine, not by what is packed already.
pub fn hits(
    reader: &Reader,
    options: Options,
    progress: &mut dyn Progress,
    warn: &mut dyn FnMut(&str),
) -> Hits {
    let options = Options {
        ignore_pack: true,
        lines: true,
        ..options
    };
    let mut counter = Counter::new(reader, options.into(), progress);
    progress.symbolizing();
    counter.resolve(warn);
    progress.done();
    let files = counter.symbolizer.hits(&counter.profile.names);
    let kernel = counter.symbolizer.kernel_hits(&counter.profile.names);
    Hits {
        about: counter.profile.about,
        files: files
            .into_iter()
            .map(|file| {
                let sources = counter.symbolizer.files_used(file.number).cloned();
                (file, sources)
            })
            .collect(),
        kernel,
    }
}
