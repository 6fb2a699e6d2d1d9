//! The neutral model every view takes: interned names, frames and stacks, weights, losses and what is
//! known about how complete all that is.
//!
//! Text here is true: names are as in the files, only invalid UTF-8 is replaced. Each view makes it safe
//! for its own output.

mod about;
mod group;
mod join;
pub mod shown;
mod stacks;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashTable};

pub use about::{About, Event, Selected, counted_event};
pub use group::{By, Group};
pub use join::Joined;
pub use stacks::{Callees, Stacks};

use crate::event::{BuildId, MappedFile, Pid, Timestamp, sample_flags};

/// Number of a string in [`Names`].
pub type NameId = u32;
/// Number of a frame in [`Names`].
pub type FrameId = u32;
/// Number of a stack in [`Stacks`]: that of its leaf node; 0 is the empty stack.
pub type StackId = u32;

/// What a frame is part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FrameKind {
    /// Code of a program.
    User,
    /// Code of the kernel.
    Kernel,
    /// Not a function: callers beyond this point were cut off.
    Truncated,
    /// Not a function either: stands for frames that were not asked for, in whose place samples are counted.
    LeftOut,
}

/// A function in a stack, or the label that stands for one without a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frame {
    /// Function name, or a label in square brackets.
    pub name: NameId,
    /// File name of the module, `[kernel]`, `[vdso]`, ...; empty when there is none.
    pub module: NameId,
    /// What it is part of.
    pub kind: FrameKind,
    /// Was inlined into the frame before it.
    pub inlined: bool,
    /// Where in the source the sample was; `None` also where frames were not asked to differ by it.
    pub source: Option<SourceLine>,
    /// Bytes from the start of the function to the sampled address; `None` for what was inlined, where the start is not known, and where
    /// frames were not asked to differ by it.
    pub address: Option<u64>,
}

impl Frame {
    /// A function, as long as nothing is asked but what it is.
    pub fn new(name: NameId, module: NameId, kind: FrameKind) -> Frame {
        Frame {
            name,
            module,
            kind,
            inlined: false,
            source: None,
            address: None,
        }
    }
}

/// Interned strings and frames.
#[derive(Debug)]
pub struct Names {
    strings: Vec<Box<str>>,
    string_index: HashTable<NameId>,
    frames: Vec<Frame>,
    frame_index: HashMap<Frame, FrameId>,
    hasher: FixedState,
}

impl Default for Names {
    fn default() -> Names {
        let mut names = Names {
            strings: Vec::new(),
            string_index: HashTable::new(),
            frames: Vec::new(),
            frame_index: HashMap::new(),
            hasher: FixedState::with_seed(0x6270_726f_6600),
        };
        names.intern("");
        names
    }
}

impl Names {
    /// Number of the empty string.
    pub const EMPTY: NameId = 0;

    /// The number of `text`.
    pub fn intern(&mut self, text: &str) -> NameId {
        let hash = self.hasher.hash_one(text);
        let strings = &self.strings;
        let same = |id: &NameId| strings.get(*id as usize).is_some_and(|s| **s == *text);
        if let Some(id) = self.string_index.find(hash, same) {
            return *id;
        }
        let id = self.strings.len() as NameId;
        self.strings.push(text.into());
        let (strings, hasher) = (&self.strings, &self.hasher);
        self.string_index
            .insert_unique(hash, id, |id| hasher.hash_one(&*strings[*id as usize]));
        id
    }

    /// The number of the text `bytes`, with invalid UTF-8 replaced by U+FFFD.
    pub fn intern_bytes(&mut self, bytes: &[u8]) -> NameId {
        self.intern(&String::from_utf8_lossy(bytes))
    }

    /// The text of `id`; empty when there is no such number.
    pub fn text(&self, id: NameId) -> &str {
        self.strings.get(id as usize).map_or("", |s| s)
    }

    /// The number of `frame`.
    pub fn frame_id(&mut self, frame: Frame) -> FrameId {
        let next = self.frames.len() as FrameId;
        let id = *self.frame_index.entry(frame).or_insert(next);
        if id == next {
            self.frames.push(frame);
        }
        id
    }

    /// What a frame is called, with what else frames differ by: `main`, `main+0x1c`, `main app.c:12`. True text.
    pub fn frame_text(&self, frame: &Frame) -> Cow<'_, str> {
        let mut text = Cow::Borrowed(self.text(frame.name));
        if let Some(address) = frame.address {
            text.to_mut().push_str(&format!("+{address:#x}"));
        }
        if let Some(source) = frame.source {
            let source = format!(" {}:{}", self.text(source.file), source.line);
            text.to_mut().push_str(&source);
        }
        text
    }

    /// All frames, by number.
    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }
}

/// How often one stack was seen in one group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Index into [`Profile::groups`].
    pub group: u32,
    /// Index into [`About::events`].
    pub event: u8,
    /// Root first: the truncation marker if any, user frames, kernel frames.
    pub stack: StackId,
    /// Samples.
    pub samples: u64,
    /// Sum of their weights.
    pub weight: u64,
}

/// Everything a view of counts needs.
#[derive(Debug, Default)]
pub struct Profile {
    /// What the capture says about itself.
    pub about: About,
    /// Strings and frames.
    pub names: Names,
    /// Stacks.
    pub stacks: Stacks,
    /// What the rows are grouped by.
    pub by: By,
    /// The groups. A process is one for each name it had.
    pub groups: Vec<Group>,
    /// Counts, in the order of groups; no two rows have the same group, event and stack.
    pub rows: Vec<Row>,
    /// How many frames have names.
    pub naming: Naming,
    /// What would have to be brought to name the others, most samples first; empty where it was not asked for.
    pub missing: Vec<Missing>,
}

impl Profile {
    /// Sum of all weights.
    pub fn total_weight(&self) -> u64 {
        self.rows
            .iter()
            .fold(0, |sum, row| sum.saturating_add(row.weight))
    }

    /// The true text of a group's root frame; `None` where stacks have no root frame.
    pub fn root(&self, group: u32) -> Option<&str> {
        let group = self.groups.get(group as usize)?;
        (self.by != By::None).then(|| self.names.text(group.label))
    }
}

/// Why a frame has no name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The process's program is not known: an exec was not seen, or the sample was taken amid one.
    UnknownImage,
    /// The process's mappings could not be read.
    MapsUnreadable,
    /// Nothing was known to be mapped at the address.
    NotMapped,
    /// Memory without a file and no JIT symbol for it.
    Anonymous,
    /// A memfd, shared memory or another thing that has a name but no path.
    NoPath,
    /// There is no such file here.
    FileMissing,
    /// The file here has another build ID, or none.
    BuildIdDiffers,
    /// The file here has another size or modification time.
    VersionDiffers,
    /// The capture has neither build ID nor size and time to compare the file with.
    NothingToCompare,
    /// The capture has no build ID of the file, and only files with one are to be believed.
    NoBuildId,
    /// There is something else than a regular file.
    NotRegular,
    /// The file cannot be read.
    Unreadable,
    /// The file is no ELF file, or a broken one.
    NotElf,
    /// The file has no symbol that covers the address.
    NoSymbol,
    /// The capture has no vdso image.
    NoVdso,
    /// The capture has no kernel symbol that covers the address.
    NoKernelSymbol,
    /// The capture has more distinct addresses than one of its size can honestly have: further ones are not kept apart.
    TooMany,
}

impl Reason {
    /// What people read.
    pub fn label(self) -> &'static str {
        match self {
            Reason::UnknownImage => "program unknown (exec)",
            Reason::MapsUnreadable => "maps unreadable",
            Reason::NotMapped => "not mapped",
            Reason::Anonymous => "anonymous memory",
            Reason::NoPath => "memory without a path",
            Reason::FileMissing => "file missing",
            Reason::BuildIdDiffers => "build ID differs",
            Reason::VersionDiffers => "size or time differs",
            Reason::NothingToCompare => "file not identified",
            Reason::NoBuildId => "no build ID",
            Reason::NotRegular => "not a regular file",
            Reason::Unreadable => "file unreadable",
            Reason::NotElf => "not ELF",
            Reason::NoSymbol => "no symbol",
            Reason::NoVdso => "no vdso image",
            Reason::NoKernelSymbol => "no kernel symbol",
            Reason::TooMany => "more addresses than are kept",
        }
    }
}

/// How frames were named. Counts are frames of samples, by what the samples count for: one stack of 10 frames seen in 5 samples
/// is 50, and 100 where each of them counts for 2. Inlined functions do not count.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Naming {
    /// User frames with a name.
    pub user_named: u64,
    /// User frames.
    pub user_total: u64,
    /// Kernel frames with a name.
    pub kernel_named: u64,
    /// Kernel frames.
    pub kernel_total: u64,
    /// User frames named by a file without a build ID, believed by its size and time.
    pub unverified: u64,
    /// Frames without a name.
    pub unnamed: BTreeMap<Reason, u64>,
    /// Files that could not name their frames, most frames first.
    pub files: Vec<FileProblem>,
    /// What samples count for whose user stack has no caller at all, or was ended where the frame-pointer walk had left the program's
    /// code: what it took for return addresses lies in no executable mapping.
    pub ended_early: u64,
    /// What samples count for inside `execve` whose user stack is left out: it is that of the program before.
    pub before_exec: u64,
}

impl Naming {
    /// Share of user frames that have names, in percent; `None` without user frames.
    pub fn user_percent(&self) -> Option<f64> {
        (self.user_total > 0).then(|| self.user_named as f64 * 100.0 / self.user_total as f64)
    }
}

/// A file that could not name the frames in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileProblem {
    /// Path as recorded.
    pub path: String,
    /// Recorded build ID.
    pub build_id: Option<BuildId>,
    /// Why.
    pub reason: Reason,
    /// Frames of samples in it.
    pub frames: u64,
    /// What was found instead, one clause; `None` where there is nothing to add.
    pub detail: Option<String>,
}

/// Code that frames without a name are in, and that a file could name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// What it is.
    pub kind: MissingKind,
    /// Path as recorded, or a label in square brackets.
    pub path: String,
    /// Recorded build ID.
    pub build_id: Option<BuildId>,
    /// Why there are no names.
    pub reason: Reason,
    /// What samples count for that have at least one frame without a name in it.
    pub samples: u64,
    /// Frames of samples without a name in it.
    pub frames: u64,
}

/// What code without names is part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MissingKind {
    /// A mapped file.
    File,
    /// The kernel.
    Kernel,
    /// The vdso.
    Vdso,
}

impl MissingKind {
    /// What people and scripts read.
    pub fn label(self) -> &'static str {
        match self {
            MissingKind::File => "file",
            MissingKind::Kernel => "kernel",
            MissingKind::Vdso => "vdso",
        }
    }
}

/// A place in source text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceLine {
    /// Path.
    pub file: NameId,
    /// Line, 0 when unknown.
    pub line: u32,
}

/// A function at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SymbolFrame {
    /// Which.
    pub frame: FrameId,
    /// Where in the source, when known.
    pub source: Option<SourceLine>,
}

/// What an address stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolution {
    /// The function, then those inlined at the address down to the innermost. Never empty. A function without a name has the label of
    /// its beginning, where that is known.
    pub chain: Box<[SymbolFrame]>,
    /// Bytes from the beginning of the function to the address as printed.
    pub offset: Option<u64>,
    /// What the function is called where addresses are told apart, if that is not its name and the offset: `[app+0x11a9]`.
    pub exact: Option<NameId>,
    /// Why there is no name; `None` when there is one.
    pub unnamed: Option<Reason>,
    /// The name comes from a file that has no build ID to compare.
    pub unverified: bool,
}

/// One sample with all its names, for the view that prints each.
#[derive(Debug, Clone, Copy)]
pub struct SampleView<'a> {
    /// When.
    pub time: Timestamp,
    /// CPU; `None` where it is not known.
    pub cpu: Option<u32>,
    /// Process number.
    pub pid: Pid,
    /// Thread number.
    pub tid: Pid,
    /// Thread name.
    pub comm: &'a str,
    /// Process name.
    pub process: &'a str,
    /// Label of its group: see [`Group::label`].
    pub group: &'a str,
    /// Index into [`About::events`].
    pub event: u8,
    /// [`crate::event::sample_flags`].
    pub flags: u8,
    /// Weight.
    pub weight: u64,
    /// Kernel frames, leaf first.
    pub kernel: &'a [SampleFrame<'a>],
    /// User frames, leaf first.
    pub user: &'a [SampleFrame<'a>],
}

impl SampleView<'_> {
    /// Where the marker for missing callers stands: (of the user stack, of the kernel stack). There is one at most.
    pub fn cuts(&self) -> (bool, bool) {
        let flag = |flag: u8| self.flags & flag != 0;
        let user = flag(sample_flags::USER_TRUNCATED) && !self.user.is_empty();
        let kernel = flag(sample_flags::KERNEL_TRUNCATED) && !self.kernel.is_empty() && !user;
        (user, kernel)
    }
}

/// A frame of a sample.
#[derive(Debug, Clone, Copy)]
pub struct SampleFrame<'a> {
    /// As sampled.
    pub address: u64,
    /// Number of what the address stands for: all frames with one number have the same resolution.
    pub place: u32,
    /// What it stands for.
    pub resolution: &'a Resolution,
    /// The file it is in, and the offset that its name was looked up at; `None` where it is in no file.
    pub file: Option<(&'a MappedFile, u64)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_things_have_one_number() {
        let mut names = Names::default();
        let (a, b) = (names.intern("main"), names.intern("leaf"));
        assert_eq!(names.intern("main"), a);
        assert_ne!(a, b);
        assert_eq!(names.text(b), "leaf");
        assert_eq!(names.intern(""), Names::EMPTY);
        assert_eq!(names.intern_bytes(b"x\xff"), names.intern("x\u{fffd}"));
        assert_eq!(names.text(99), "");

        let frame = |name| Frame::new(name, 0, FrameKind::User);
        let (main, leaf) = (names.frame_id(frame(a)), names.frame_id(frame(b)));
        let mut stacks = Stacks::default();
        let root = stacks.push(0, main);
        let top = stacks.push(root, leaf);
        assert_eq!(stacks.push(root, leaf), top);
        assert_eq!(stacks.frames(top).collect::<Vec<_>>(), [leaf, main]);
        assert_eq!(stacks.frames(0).count(), 0);
        assert_eq!(stacks.len(), 2);
    }
}
