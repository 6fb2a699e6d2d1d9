//! What only all records together tell, and the beginning of a capture has to say.

use std::collections::{HashMap, HashSet};

use anyhow::Result;
use linux_perf_event_reader::constants::{
    PERF_RECORD_MISC_MMAP_BUILD_ID, PERF_RECORD_MMAP2, PERF_RECORD_SAMPLE,
};

use super::bytes::{Bytes, until_zero};
use super::container::Container;
use super::{OFTEN, Step, Tell};

/// Paths looked at at most; beyond, build IDs of a table are believed as they are.
const PATHS: usize = 1 << 20;

/// A look at all records.
#[derive(Debug, Clone, Default)]
pub struct Survey {
    pub samples: u64,
    /// Time of the latest record.
    pub latest: u64,
    /// Paths at which different files were mapped: perf tells but one build ID for them.
    pub ambiguous: HashSet<Vec<u8>>,
    /// Where the records end before their end.
    pub damage: Option<String>,
}

impl Survey {
    /// Reads all records of `container`.
    pub fn of(container: &mut Container, tell: Tell<'_>) -> Result<Survey> {
        let mut survey = Survey::default();
        let mut files: HashMap<Vec<u8>, [u64; 2]> = HashMap::new();
        let mut records = 0u64;
        while let Some((time, record)) = container.next_of_file() {
            records += 1;
            if records.is_multiple_of(OFTEN) {
                tell(container.progress(Step::Looking));
            }
            survey.latest = survey.latest.max(time);
            match record.kind {
                PERF_RECORD_SAMPLE => survey.samples += 1,
                PERF_RECORD_MMAP2 if record.misc & PERF_RECORD_MISC_MMAP_BUILD_ID == 0 => {
                    let file = || {
                        let mut body = Bytes(&record.body);
                        body.take(32)?;
                        let inode = [body.u64()?, body.u64()?];
                        body.take(16)?;
                        Some((until_zero(body.0), inode))
                    };
                    let Some((path, inode)) = file() else {
                        continue;
                    };
                    match files.get(path) {
                        Some(known) if *known != inode => {
                            survey.ambiguous.insert(path.to_vec());
                        }
                        None if files.len() < PATHS => {
                            files.insert(path.to_vec(), inode);
                        }
                        _ => {}
                    }
                }
                _ => {}
            }
        }
        survey.damage = container.damage();
        Ok(survey)
    }
}
