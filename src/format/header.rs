//! The file header: what kind of file this is and the facts of the host it was recorded on.

use serde::{Deserialize, Serialize};

use super::error::{FormatError, Problem};
use super::input::Input;
use super::process::check_build_id;
use super::{limits, meta, skippable};
use crate::event::{BuildId, Timestamp, UserStacks};

/// Facts that hold for the whole capture. Never holds argv or environment of other processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Host name (`uname -n`).
    pub host: String,
    /// `/proc/sys/kernel/random/boot_id`; empty when unknown.
    pub boot_id: String,
    /// Kernel release (`uname -r`).
    pub kernel_release: String,
    /// Build ID of the running kernel (`/sys/kernel/notes`).
    pub kernel_build_id: Option<BuildId>,
    /// Machine (`uname -m`).
    pub arch: String,
    /// Bytes per page.
    pub page_size: u32,
    /// `CLK_TCK`: process start ticks per second.
    pub clock_ticks: u32,
    /// CPUs online when recording began.
    pub cpus_online: u32,
    /// Add this to a [`Timestamp`] to get nanoseconds since 1970 (UTC), as of the start of recording.
    pub wall_offset_ns: i64,
    /// When recording began.
    pub start_time: Timestamp,
    /// The events sampled; [`Sample::event`](super::samples::Sample::event) indexes this list.
    pub events: Vec<EventInfo>,
    /// What was to be sampled, in words: `system-wide`, `processes 12,13`, `command`, ...
    pub target: String,
    /// Frames kept of a user stack at most.
    pub user_stack_limit: u32,
    /// Frames kept of a kernel stack at most.
    pub kernel_stack_limit: u32,
    /// Name and version of the program that wrote the file.
    pub tool: String,
    /// What could not be had when recording began, one sentence each (`kernel symbols: hidden by ...`).
    pub degraded: Vec<String>,
    /// How user stacks were walked (1.5).
    #[serde(skip)]
    pub user_stacks: UserStacks,
}

/// One sampled event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventInfo {
    /// `cycles` or `cpu-clock`.
    pub name: String,
    /// How often it was sampled.
    pub sampling: Sampling,
}

/// The rate of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sampling {
    /// Samples a second and CPU, as asked of the kernel.
    Frequency(u64),
    /// One sample each so many events (`cpu-clock`: nanoseconds).
    Period(u64),
}

/// First bytes of the header's content: not text, broken by line-end conversion and by seven-bit transfer.
pub const MAGIC: [u8; 8] = *b"\x89BPROF\r\n";
/// Major version: a reader refuses any other.
pub const MAJOR: u16 = 1;
/// Minor version: a reader accepts any.
pub const MINOR: u16 = 6;
/// Required feature: addresses of stacks may be written as matches.
pub const FEATURE_MATCHES: u64 = 1;
/// Required feature: sections of samples may name their unit of time.
pub const FEATURE_TIME_UNITS: u64 = 2;
/// Required feature: the file holds captures, see [`member`](super::member).
pub const FEATURE_MEMBERS: u64 = 4;
/// Required features of what is recorded.
const RECORDED: u64 = FEATURE_MATCHES | FEATURE_TIME_UNITS;
/// Required features this program knows.
pub const KNOWN_FEATURES: u64 = RECORDED | FEATURE_MEMBERS;
/// Bytes before the facts.
const FIXED: usize = 32;
const PART: &str = "header";
/// The largest content a header's skippable frame may have, in bytes.
pub const MAX_CONTENT: u64 = FIXED as u64 + limits::HEADER_FACTS + 4;

/// Whether a file that starts with `bytes` (16 are enough) is a capture, of any version.
pub fn is_capture(bytes: &[u8]) -> bool {
    bytes.starts_with(&super::skippable::MAGIC.to_le_bytes())
        && bytes
            .get(super::skippable::PREFIX..)
            .is_some_and(|content| content.starts_with(&MAGIC))
}

/// Whether the content of a header that can be decoded is that of a file that holds captures.
pub fn is_merged(content: &[u8]) -> bool {
    const FEATURES: usize = 16;
    let features = content.get(FEATURES..).and_then(|rest| rest.first_chunk());
    features.is_some_and(|bytes| u64::from_le_bytes(*bytes) & FEATURE_MEMBERS != 0)
}

impl Header {
    /// Appends the whole skippable frame.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), FormatError> {
        self.encode_with(RECORDED, out)
    }

    /// As [`Header::encode`], of a file that holds captures.
    pub fn encode_merged(&self, out: &mut Vec<u8>) -> Result<(), FormatError> {
        self.encode_with(FEATURE_MEMBERS, out)
    }

    fn encode_with(&self, required: u64, out: &mut Vec<u8>) -> Result<(), FormatError> {
        let mut facts = Vec::new();
        meta::encode(&mut facts, PART, self)?;
        if self.user_stacks != UserStacks::Untold {
            meta::encode(&mut facts, PART, &self.user_stacks.number())?;
        }
        let value = facts.len() as u64;
        let limit = limits::HEADER_FACTS;
        if value > limit {
            let problem = Problem::OverLimit {
                what: "length of the facts",
                value,
                limit,
            };
            return Err(FormatError::new(PART, 12, problem));
        }
        skippable::encode(out, |out| {
            let start = out.len();
            out.extend_from_slice(&MAGIC);
            out.extend_from_slice(&MAJOR.to_le_bytes());
            out.extend_from_slice(&MINOR.to_le_bytes());
            out.extend_from_slice(&(facts.len() as u32).to_le_bytes());
            out.extend_from_slice(&required.to_le_bytes());
            out.extend_from_slice(&0u64.to_le_bytes());
            out.extend_from_slice(&facts);
            let crc = crc32c::crc32c(out.get(start..).unwrap_or_default());
            out.extend_from_slice(&crc.to_le_bytes());
            Ok(())
        })
    }

    /// Decodes the content of the skippable frame. Facts that are longer than known are a later minor
    /// version's; what follows the known ones is ignored.
    pub fn decode(content: &[u8]) -> Result<Header, FormatError> {
        let whole = Input::new(PART, content);
        let mut input = whole.clone();
        if input
            .take(MAGIC.len(), "magic")
            .map_or(true, |magic| magic != MAGIC)
        {
            return Err(whole.error(Problem::NotACapture));
        }
        let at = input.clone();
        let major = input.u16("version")?;
        if major != MAJOR {
            return Err(at.error(Problem::Version(major)));
        }
        input.u16("minor version")?;
        let len = u64::from(input.u32("length of the facts")?);
        let at = input.clone();
        let required = input.u64("required features")?;
        input.u64("optional features")?;
        let limit = limits::HEADER_FACTS;
        if len > limit {
            let what = "length of the facts";
            return Err(at.error(Problem::OverLimit {
                what,
                value: len,
                limit,
            }));
        }
        let mut facts = input.section(len as usize, "facts")?;
        let checked = content.get(..FIXED + len as usize).unwrap_or_default();
        let crc = input.u32("checksum")?;
        input.end(PART)?;
        if crc != crc32c::crc32c(checked) {
            return Err(whole.error(Problem::Checksum(PART)));
        }
        if required & !KNOWN_FEATURES != 0 {
            return Err(at.error(Problem::RequiredFeatures(required & !KNOWN_FEATURES)));
        }
        let mut header: Header = meta::decode(&mut facts, PART)?;
        if !facts.rest().is_empty() {
            header.user_stacks = UserStacks::of_number(meta::decode(&mut facts, PART)?);
        }
        check_build_id(header.kernel_build_id.as_ref()).map_err(|p| whole.error(p))?;
        Ok(header)
    }
}
