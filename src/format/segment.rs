//! A segment frame: what is added to the segment's tables, then the samples that use them.
//!
//! Its payload is a sequence of sections, each at most once and ascending in kind: u8 kind, u32 length,
//! content. Empty sections are left out, unknown ones are skipped.

use super::error::{FormatError, Problem};
use super::input::Input;
pub use super::matches::Matcher;
use super::payload::Out;
use super::process::{self, MappingTemplate, ProcessRecord, Space, Task};
use super::samples::{self, Clock, Sample};
use super::stacks::{self, ChainEnds};
pub use super::table_sizes::TableSizes;
use super::{addresses, limits, losses, meta, strings};
use crate::event::LossClass;

/// The decoded content of one segment frame. Tables hold only what this frame adds; numbers count on
/// from the frames of the same segment before it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SegmentFrame {
    /// Names, paths: bytes as the kernel gave them.
    pub strings: Vec<Vec<u8>>,
    /// Mapped files.
    pub files: Vec<crate::event::MappedFile>,
    /// Mapping templates.
    pub mappings: Vec<MappingTemplate>,
    /// Mapping lists.
    pub spaces: Vec<Space>,
    /// Process records, in time order for each process.
    pub processes: Vec<ProcessRecord>,
    /// Tasks.
    pub tasks: Vec<Task>,
    /// User addresses, ascending.
    pub user_addresses: Vec<u64>,
    /// Kernel addresses, ascending.
    pub kernel_addresses: Vec<u64>,
    /// Nodes of the user stack trie.
    pub user_nodes: Vec<StackNode>,
    /// Nodes of the kernel stack trie.
    pub kernel_nodes: Vec<StackNode>,
    /// Samples, sorted by (CPU, time).
    pub samples: Vec<Sample>,
    /// Losses since the frame before.
    pub losses: Vec<Loss>,
}

/// A node of a stack trie: the frame `address`, called from the stack `parent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StackNode {
    /// The caller's node; 0 at the root (outermost frame). Always smaller than the node's own number.
    pub parent: u32,
    /// Index into the segment's user or kernel addresses.
    pub address: u32,
}

/// A number of things lost or left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Loss {
    /// What and why.
    pub class: LossClass,
    /// On which CPU; `None` where that has no meaning.
    pub cpu: Option<u32>,
    /// How many.
    pub count: u64,
}

/// The nodes of the frames before: what a reader has of them.
#[derive(Debug, Clone, Copy, Default)]
pub struct KnownNodes<'a> {
    /// User stacks.
    pub user: &'a [StackNode],
    /// Kernel stacks.
    pub kernel: &'a [StackNode],
}

/// The nodes of the frames before: what a writer has of them.
#[derive(Debug, Clone, Default)]
pub struct Matchers {
    /// User stacks.
    pub user: Matcher,
    /// Kernel stacks.
    pub kernel: Matcher,
}

impl Matchers {
    /// Those of `known`.
    pub fn new(known: KnownNodes<'_>) -> Matchers {
        Matchers {
            user: Matcher::new(known.user),
            kernel: Matcher::new(known.kernel),
        }
    }

    /// Forgets all nodes, as a new segment does.
    pub fn clear(&mut self) {
        self.user.clear();
        self.kernel.clear();
    }
}

/// Kinds of sections, in the order they are written in.
mod kind {
    pub const STRINGS: u8 = 1;
    pub const FILES: u8 = 2;
    pub const MAPPINGS: u8 = 3;
    pub const SPACES: u8 = 4;
    pub const PROCESSES: u8 = 5;
    pub const TASKS: u8 = 6;
    pub const USER_ADDRESSES: u8 = 7;
    pub const KERNEL_ADDRESSES: u8 = 8;
    pub const USER_STACKS: u8 = 9;
    pub const KERNEL_STACKS: u8 = 10;
    /// In nanoseconds; not written any more.
    pub const SAMPLES_NS: u8 = 11;
    pub const LOSSES: u8 = 12;
    pub const SAMPLES: u8 = 13;
}

/// How much of a payload has the frame's tables and losses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TablesEnd {
    /// So many bytes from its beginning are needed to know.
    Needs(usize),
    /// They are in its first bytes, so many: samples follow, or nothing.
    At(usize),
    /// They are not all in front of the samples, as before version 1.2.
    Behind,
}

impl TablesEnd {
    /// That of a payload of `size` bytes which begins with `start`.
    pub fn find(start: &[u8], size: usize) -> TablesEnd {
        let mut at = 0usize;
        while at < size {
            let head = at.saturating_add(5);
            let Some(&[kind, a, b, c, d]) = start.get(at..head) else {
                return match start.len() < size {
                    true => TablesEnd::Needs(head.min(size)),
                    false => TablesEnd::At(size),
                };
            };
            match kind {
                kind::SAMPLES => return TablesEnd::At(at),
                kind::SAMPLES_NS => return TablesEnd::Behind,
                _ => at = head.saturating_add(u32::from_le_bytes([a, b, c, d]) as usize),
            }
        }
        TablesEnd::At(size)
    }
}

impl SegmentFrame {
    /// Appends the frame's payload. `before` are the tables' sizes before it, `matchers` have its nodes and take in the
    /// new ones; gives the sizes after it.
    pub fn encode(
        &self,
        before: &TableSizes,
        matchers: &mut Matchers,
        out: &mut impl Out,
    ) -> Result<TableSizes, FormatError> {
        let error = |problem| FormatError::new(PART, 0, problem);
        let after = before.after(self).map_err(error)?;
        process::check(self, &after).map_err(error)?;
        let mut user_ends = ChainEnds::new(Vec::new(), before.user_nodes);
        let mut kernel_ends = ChainEnds::new(Vec::new(), before.kernel_nodes);
        section(out, kind::STRINGS, self.strings.is_empty(), |out| {
            strings::encode(out.bytes(), &self.strings);
            Ok(())
        })?;
        section(out, kind::FILES, self.files.is_empty(), |out| {
            meta::encode_list(out.bytes(), "file", &self.files)
        })?;
        section(out, kind::MAPPINGS, self.mappings.is_empty(), |out| {
            meta::encode_list(out.bytes(), "mapping", &self.mappings)
        })?;
        section(out, kind::SPACES, self.spaces.is_empty(), |out| {
            meta::encode_list(out.bytes(), "mapping list", &self.spaces)
        })?;
        section(out, kind::PROCESSES, self.processes.is_empty(), |out| {
            meta::encode_list(out.bytes(), "process record", &self.processes)
        })?;
        section(out, kind::TASKS, self.tasks.is_empty(), |out| {
            meta::encode_list(out.bytes(), "task", &self.tasks)
        })?;
        section(
            out,
            kind::USER_ADDRESSES,
            self.user_addresses.is_empty(),
            |out| addresses::encode(out.bytes(), &self.user_addresses),
        )?;
        section(
            out,
            kind::KERNEL_ADDRESSES,
            self.kernel_addresses.is_empty(),
            |out| addresses::encode(out.bytes(), &self.kernel_addresses),
        )?;
        section(out, kind::USER_STACKS, self.user_nodes.is_empty(), |out| {
            let known = before.user_nodes;
            user_ends = stacks::encode(out, &self.user_nodes, known, &mut matchers.user)?;
            Ok(())
        })?;
        section(
            out,
            kind::KERNEL_STACKS,
            self.kernel_nodes.is_empty(),
            |out| {
                let known = before.kernel_nodes;
                kernel_ends = stacks::encode(out, &self.kernel_nodes, known, &mut matchers.kernel)?;
                Ok(())
            },
        )?;
        section(out, kind::LOSSES, self.losses.is_empty(), |out| {
            losses::encode(out.bytes(), &self.losses);
            Ok(())
        })?;
        section(out, kind::SAMPLES, self.samples.is_empty(), |out| {
            samples::encode(
                out,
                &self.samples,
                after.sample_context(user_ends, kernel_ends),
            )
        })?;
        Ok(after)
    }

    /// Decodes a payload, checking every number against the tables: their sizes before it, and the nodes there are
    /// (as many as those sizes say). Gives the tables' sizes after it.
    pub fn decode(
        payload: &[u8],
        before: &TableSizes,
        known: KnownNodes<'_>,
    ) -> Result<(SegmentFrame, TableSizes), FormatError> {
        let mut input = Input::new(PART, payload);
        let mut frame = SegmentFrame::default();
        let mut sizes = *before;
        let mut user_ends = ChainEnds::new(Vec::new(), before.user_nodes);
        let mut kernel_ends = ChainEnds::new(Vec::new(), before.kernel_nodes);
        let mut last_kind = 0;
        while !input.rest().is_empty() {
            let at = input.clone();
            let kind = input.u8("section kind")?;
            if kind <= last_kind {
                let what = "section out of order, its kind";
                return Err(at.error(Problem::BadValue {
                    what,
                    value: kind.into(),
                }));
            }
            last_kind = kind;
            let len = input.u32("section length")? as usize;
            let mut body = input.section(len, "section")?;
            let body = &mut body;
            match kind {
                kind::STRINGS => frame.strings = strings::decode(body)?,
                kind::FILES => frame.files = meta::decode_list(body, "file", limits::TABLE)?,
                kind::MAPPINGS => {
                    frame.mappings = meta::decode_list(body, "mapping", limits::TABLE)?;
                }
                kind::SPACES => {
                    frame.spaces = meta::decode_list(body, "mapping list", limits::TABLE)?;
                }
                kind::PROCESSES => {
                    frame.processes = meta::decode_list(body, "process record", limits::TABLE)?;
                }
                kind::TASKS => frame.tasks = meta::decode_list(body, "task", limits::TABLE)?,
                kind::USER_ADDRESSES => frame.user_addresses = addresses::decode(body)?,
                kind::KERNEL_ADDRESSES => frame.kernel_addresses = addresses::decode(body)?,
                kind::USER_STACKS => {
                    (frame.user_nodes, user_ends) =
                        stacks::decode(body, known.user, sizes.user_addresses)?;
                }
                kind::KERNEL_STACKS => {
                    (frame.kernel_nodes, kernel_ends) =
                        stacks::decode(body, known.kernel, sizes.kernel_addresses)?;
                }
                kind::SAMPLES_NS | kind::SAMPLES => {
                    if !frame.samples.is_empty() {
                        let what = "second section of samples, its kind";
                        return Err(at.error(Problem::BadValue {
                            what,
                            value: kind.into(),
                        }));
                    }
                    let clock = if kind == kind::SAMPLES {
                        Clock::Units
                    } else {
                        Clock::Nanoseconds
                    };
                    let ends = (
                        std::mem::take(&mut user_ends),
                        std::mem::take(&mut kernel_ends),
                    );
                    let context = sizes.sample_context(ends.0, ends.1);
                    frame.samples = samples::decode(body, clock, context)?;
                }
                kind::LOSSES => frame.losses = losses::decode(body)?,
                // A later minor version's: what is not known is skipped.
                _ => continue,
            }
            body.end("section")?;
            sizes = before.after(&frame).map_err(|p| at.error(p))?;
        }
        process::check(&frame, &sizes).map_err(|p| FormatError::new(PART, payload.len(), p))?;
        Ok((frame, sizes))
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        *self == SegmentFrame::default()
    }

    /// Takes everything out and keeps the memory.
    pub fn clear(&mut self) {
        let SegmentFrame {
            strings,
            files,
            mappings,
            spaces,
            processes,
            tasks,
            user_addresses,
            kernel_addresses,
            user_nodes,
            kernel_nodes,
            samples,
            losses,
        } = self;
        strings.clear();
        files.clear();
        mappings.clear();
        spaces.clear();
        processes.clear();
        tasks.clear();
        user_addresses.clear();
        kernel_addresses.clear();
        // Most stacks are new only once.
        for nodes in [user_nodes, kernel_nodes] {
            nodes.clear();
            nodes.shrink_to(NODES_KEPT);
        }
        samples.clear();
        losses.clear();
    }
}

/// Memory for so many stack nodes is kept for the next frame.
const NODES_KEPT: usize = 4 << 10;
/// What errors call a segment frame's payload.
const PART: &str = "segment frame";

/// Appends kind, length and what `body` writes; nothing when `empty`.
fn section<O: Out>(
    out: &mut O,
    kind: u8,
    empty: bool,
    body: impl FnOnce(&mut O) -> Result<(), FormatError>,
) -> Result<(), FormatError> {
    if empty {
        return Ok(());
    }
    out.seam();
    let bytes = out.bytes();
    bytes.push(kind);
    let at = bytes.len();
    bytes.extend_from_slice(&[0; 4]);
    let start = bytes.len();
    body(out)?;
    let bytes = out.bytes();
    let len = (bytes.len() - start) as u64;
    let limit = limits::FRAME_CONTENT;
    let too_long = Problem::OverLimit {
        what: "section length",
        value: len,
        limit,
    };
    let len = u32::try_from(len).map_err(|_| FormatError::new(PART, at, too_long))?;
    if let Some(place) = bytes.get_mut(at..start) {
        place.copy_from_slice(&len.to_le_bytes());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Origin, Pid, ProcessKey, Timestamp};

    /// A frame of one sample, and a loss.
    fn frame() -> SegmentFrame {
        SegmentFrame {
            strings: vec![b"sh".to_vec()],
            processes: vec![ProcessRecord::Process {
                key: ProcessKey {
                    tgid: Pid(1),
                    start_time: Timestamp(5),
                },
                parent: Pid(0),
                kernel: false,
                origin: Origin::Sample,
                cgroup: None,
            }],
            tasks: vec![Task {
                process: 0,
                tid: Pid(1),
                exec_id: 1,
                comm: 0,
            }],
            samples: vec![Sample {
                time: Timestamp(512),
                cpu: 0,
                task: 0,
                user_stack: 0,
                kernel_stack: 0,
                weight: 1,
                flags: 0,
                event: 0,
            }],
            losses: vec![Loss {
                class: LossClass::RingFull,
                cpu: None,
                count: 3,
            }],
            ..SegmentFrame::default()
        }
    }

    #[test]
    fn tables_end_where_samples_begin() {
        let mut bytes = Vec::new();
        let mut matchers = Matchers::default();
        let sizes = TableSizes::new(1);
        frame().encode(&sizes, &mut matchers, &mut bytes).unwrap();
        let whole = |bytes: &[u8]| TablesEnd::find(bytes, bytes.len());
        let TablesEnd::At(end) = whole(&bytes) else {
            panic!("{:?}", whole(&bytes));
        };
        assert_eq!(bytes[end], kind::SAMPLES);
        // From nothing on, each answer leads nearer to it.
        let mut have = 0;
        while let TablesEnd::Needs(count) = TablesEnd::find(&bytes[..have], bytes.len()) {
            assert!(count > have && count <= end + 5);
            have = count;
        }
        assert_eq!(
            TablesEnd::find(&bytes[..have], bytes.len()),
            TablesEnd::At(end)
        );
        let known = KnownNodes::default();
        let (tables, _) = SegmentFrame::decode(&bytes[..end], &sizes, known).unwrap();
        let without = SegmentFrame {
            samples: Vec::new(),
            ..frame()
        };
        assert_eq!(tables, without);
        // Samples in nanoseconds come before losses.
        bytes[end] = kind::SAMPLES_NS;
        assert_eq!(whole(&bytes), TablesEnd::Behind);
        // A length that leads out of the payload, and one that is cut.
        bytes[1..5].fill(0xff);
        assert_eq!(whole(&bytes), TablesEnd::At(bytes.len()));
        assert_eq!(TablesEnd::find(&bytes[..3], 3), TablesEnd::At(3));
    }

    #[test]
    fn samples_are_in_one_section_of_either_kind() {
        let before = TableSizes::new(1);
        let known = KnownNodes::default();
        let mut bytes = Vec::new();
        frame()
            .encode(&before, &mut Matchers::default(), &mut bytes)
            .unwrap();
        let decode = |bytes: &[u8]| SegmentFrame::decode(bytes, &before, known).map(|(f, _)| f);
        assert_eq!(decode(&bytes), Ok(frame()));

        let section = |kind, content: &[u8]| {
            let mut out = vec![kind];
            out.extend((content.len() as u32).to_le_bytes());
            out.extend(content);
            out
        };
        // Count, CPUs, the CPU's samples, the unit (2 to the power of 9), the base in it, no period, the columns.
        let columns = [2, 0, 0, 0, 0, 1, 0, 1, 0, 1, 0, 0, 0, 0];
        let units = [&[1, 1, 0, 1, 9, 1, 0][..], &columns].concat();
        let units = section(kind::SAMPLES, &units);
        assert!(bytes.ends_with(&units), "{bytes:?}");
        let losses = section(kind::LOSSES, &[1, 1, 0, 3]);
        let tables = bytes.len() - units.len() - losses.len();
        assert_eq!(bytes[tables..][..losses.len()], losses);
        let nanoseconds = [&[1, 1, 0, 1, 0x80, 4, 0][..], &columns].concat();
        let nanoseconds = section(kind::SAMPLES_NS, &nanoseconds);

        let tables = &bytes[..tables];
        let older = [tables, &nanoseconds, &losses].concat();
        assert_eq!(decode(&older), Ok(frame()));
        let both = [tables, &nanoseconds, &losses, &units].concat();
        assert!(decode(&both).is_err(), "samples twice");
    }
}
