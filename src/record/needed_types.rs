//! The kernel's types that the sampling program reads, and no others.
//!
//! Where a field is in this kernel libbpf finds in the kernel's own description of all its types (BTF,
//! `/sys/kernel/btf/vmlinux`): a hundred thousand of them, which it checks and searches for longer than all else takes to begin a
//! recording. So it is given a few: those with the name of a type that the program has, with the fields that are named as in
//! any of them, and what these are made of. Where that fails it takes all.
//!
//! The layout is that of `Documentation/bpf/btf.rst`.

use std::collections::{HashMap, HashSet};
use std::ffi::CString;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};

use anyhow::{Context, Result};
use memmap2::MmapOptions;
use rustix::fs::{MemfdFlags, memfd_create};

/// Where the kernel describes its types.
const ALL: &str = "/sys/kernel/btf/vmlinux";
const MAGIC: u16 = 0xeb9f;
/// Bytes of the header, and of a type before what its kind adds.
const HEADER: usize = 24;
const TYPE: usize = 12;
/// Types within types, at most: there are no more than some ten.
const DEEPEST: u32 = 64;

/// Kinds of types.
mod kind {
    pub const INT: u32 = 1;
    pub const PTR: u32 = 2;
    pub const ARRAY: u32 = 3;
    pub const STRUCT: u32 = 4;
    pub const UNION: u32 = 5;
    pub const ENUM: u32 = 6;
    pub const FWD: u32 = 7;
    pub const TYPEDEF: u32 = 8;
    pub const VOLATILE: u32 = 9;
    pub const CONST: u32 = 10;
    pub const RESTRICT: u32 = 11;
    pub const FUNC: u32 = 12;
    pub const FUNC_PROTO: u32 = 13;
    pub const VAR: u32 = 14;
    pub const DATASEC: u32 = 15;
    pub const FLOAT: u32 = 16;
    pub const DECL_TAG: u32 = 17;
    pub const TYPE_TAG: u32 = 18;
    pub const ENUM64: u32 = 19;
}

/// A file that describes the types that are needed; it is there as long as this.
pub struct NeededTypes {
    file: OwnedFd,
}

impl NeededTypes {
    /// Those of this kernel that a program needs which is itself described by `program`.
    pub fn find(program: &[u8]) -> Result<NeededTypes> {
        let all = File::open(ALL).context(ALL)?;
        // The kernel refuses a shared mapping of it.
        // SAFETY: the kernel never changes it.
        let needed = match unsafe { MmapOptions::new().map_copy_read_only(&all) } {
            Ok(mapped) => needed(program, &mapped),
            // Before Linux 6.16.
            Err(_) => needed(program, &std::fs::read(ALL).context(ALL)?),
        };
        let needed = needed.context("types are described in another way")?;
        let file = memfd_create("profiler-types", MemfdFlags::CLOEXEC)?;
        let mut file = File::from(file);
        file.write_all(&needed)?;
        Ok(NeededTypes { file: file.into() })
    }

    /// Where it can be opened by this process.
    pub fn path(&self) -> CString {
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        CString::new(path).unwrap_or_default()
    }
}

/// Described types.
#[derive(Clone, Copy)]
struct Types<'b> {
    types: &'b [u8],
    /// Each with a 0 behind it.
    names: &'b [u8],
}

/// One of them.
#[derive(Clone, Copy)]
struct Type<'b> {
    name: u32,
    info: u32,
    /// Bytes it takes, or the number of the type it refers to.
    size_or_type: u32,
    /// What its kind adds.
    rest: &'b [u8],
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*bytes))
}

impl<'b> Types<'b> {
    /// `None` when it is nothing of the kind.
    fn parse(bytes: &'b [u8]) -> Option<Types<'b>> {
        let magic = u16::from_ne_bytes(*bytes.first_chunk()?);
        let header = word(bytes, 4)? as usize;
        let section = |at: usize| {
            let start = header.checked_add(word(bytes, at)? as usize)?;
            bytes.get(start..)?.get(..word(bytes, at + 4)? as usize)
        };
        let (types, names) = (section(8)?, section(16)?);
        (magic == MAGIC).then_some(Types { types, names })
    }

    /// The type at this place.
    fn at(&self, place: usize) -> Option<Type<'b>> {
        let info = word(self.types, place + 4)?;
        let many = (info & 0xffff) as usize;
        let more = match info >> 24 & 0x1f {
            kind::INT | kind::VAR | kind::DECL_TAG => 4,
            kind::ARRAY => 12,
            kind::STRUCT | kind::UNION | kind::DATASEC | kind::ENUM64 => 12 * many,
            kind::ENUM | kind::FUNC_PROTO => 8 * many,
            kind::PTR
            | kind::FWD
            | kind::TYPEDEF
            | kind::VOLATILE
            | kind::CONST
            | kind::RESTRICT
            | kind::FUNC
            | kind::FLOAT
            | kind::TYPE_TAG => 0,
            _ => return None,
        };
        Some(Type {
            name: word(self.types, place)?,
            info,
            size_or_type: word(self.types, place + 8)?,
            rest: self.types.get(place + TYPE..)?.get(..more)?,
        })
    }

    /// Gives all to `each`, with their places. `None` when one of them is of an unknown kind.
    fn each(&self, mut each: impl FnMut(usize, &Type<'b>)) -> Option<()> {
        let mut place = 0;
        while place < self.types.len() {
            let this = self.at(place)?;
            each(place, &this);
            place += TYPE + this.rest.len();
        }
        Some(())
    }

    fn name(&self, at: u32) -> &'b [u8] {
        let from = self.names.get(at as usize..).unwrap_or_default();
        from.split(|b| *b == 0).next().unwrap_or_default()
    }
}

impl<'b> Type<'b> {
    fn kind(&self) -> u32 {
        self.info >> 24 & 0x1f
    }

    /// Made of fields.
    fn is_composite(&self) -> bool {
        matches!(self.kind(), kind::STRUCT | kind::UNION)
    }

    fn is_enum(&self) -> bool {
        matches!(self.kind(), kind::ENUM | kind::ENUM64)
    }

    /// Name, type and the rest of each field.
    fn fields(&self) -> impl Iterator<Item = [u32; 3]> + use<'b> {
        let (fields, _) = self.rest.as_chunks::<12>();
        fields.iter().map(|field| {
            let mut words = [0; 3];
            for (word, bytes) in words.iter_mut().zip(field.as_chunks().0) {
                *word = u32::from_ne_bytes(*bytes);
            }
            words
        })
    }
}

/// What `program` needs of `kernel`, described in the same way. `None` when either is described in a way that is not known.
fn needed(program: &[u8], kernel: &[u8]) -> Option<Vec<u8>> {
    let (program, kernel) = (Types::parse(program)?, Types::parse(kernel)?);
    let (mut wanted, mut fields) = (HashSet::new(), HashSet::new());
    program.each(|_, this| {
        if this.is_composite() || this.is_enum() {
            wanted.insert(program.name(this.name));
        }
        if this.is_composite() {
            fields.extend(this.fields().map(|[name, ..]| program.name(name)));
        }
    })?;
    wanted.remove(&b""[..]);
    fields.remove(&b""[..]);
    // Most names differ from all of these in their first byte.
    let mut begins = [false; 256];
    for first in wanted.iter().filter_map(|name| name.first()) {
        if let Some(begins) = begins.get_mut(usize::from(*first)) {
            *begins = true;
        }
    }
    // Number 0 is void.
    let (mut places, mut roots) = (vec![u32::MAX], Vec::new());
    kernel.each(|place, this| {
        if this.is_composite() || this.is_enum() {
            let first = kernel.names.get(this.name as usize).copied();
            let first = usize::from(first.unwrap_or_default());
            if begins.get(first) == Some(&true) && wanted.contains(kernel.name(this.name)) {
                roots.push(places.len() as u32);
            }
        }
        places.push(place as u32);
    })?;
    let mut few = Few {
        kernel,
        places,
        fields,
        numbers: HashMap::new(),
        names: HashMap::new(),
        types: Vec::new(),
        text: vec![0],
    };
    for root in roots {
        few.take(root, DEEPEST)?;
    }
    Some(few.described())
}

/// A few of the kernel's types, with numbers and names of their own.
struct Few<'b> {
    kernel: Types<'b>,
    /// By number.
    places: Vec<u32>,
    /// Names of the fields that are kept.
    fields: HashSet<&'b [u8]>,
    /// Of those that have been taken.
    numbers: HashMap<u32, u32>,
    names: HashMap<u32, u32>,
    types: Vec<u8>,
    text: Vec<u8>,
}

impl Few<'_> {
    /// The number here of one of the kernel's types, taken in with what it is made of. What it points to is not taken: who
    /// follows a pointer names what is there.
    fn take(&mut self, number: u32, deepest: u32) -> Option<u32> {
        if number == 0 {
            return Some(0);
        }
        if let Some(known) = self.numbers.get(&number) {
            return Some(*known);
        }
        let deepest = deepest.checked_sub(1)?;
        let this = self
            .kernel
            .at(*self.places.get(number as usize)? as usize)?;
        let (mut info, mut size_or_type) = (this.info, this.size_or_type);
        let mut rest = Vec::new();
        let mut put = |word: u32| rest.extend_from_slice(&word.to_ne_bytes());
        match this.kind() {
            kind::PTR => size_or_type = 0,
            kind::TYPEDEF | kind::VOLATILE | kind::CONST | kind::RESTRICT | kind::TYPE_TAG => {
                size_or_type = self.take(size_or_type, deepest)?;
            }
            kind::ARRAY => {
                put(self.take(word(this.rest, 0)?, deepest)?);
                put(self.take(word(this.rest, 4)?, deepest)?);
                put(word(this.rest, 8)?);
            }
            kind::STRUCT | kind::UNION => {
                let mut kept = 0;
                for [name, of, place] in this.fields() {
                    // Fields of what has no name are found as fields of what it is in.
                    let text = self.kernel.name(name);
                    if text.is_empty() || self.fields.contains(text) {
                        put(self.name(name));
                        put(self.take(of, deepest)?);
                        put(place);
                        kept += 1;
                    }
                }
                info = info & !0xffff | kept;
            }
            kind::ENUM | kind::ENUM64 => {
                let size = if this.kind() == kind::ENUM { 8 } else { 12 };
                for value in this.rest.chunks_exact(size) {
                    put(self.name(word(value, 0)?));
                    for at in (4..size).step_by(4) {
                        put(word(value, at)?);
                    }
                }
            }
            kind::INT | kind::FLOAT | kind::FWD => rest.extend_from_slice(this.rest),
            // Not what fields are.
            _ => return None,
        }
        for word in [self.name(this.name), info, size_or_type] {
            self.types.extend_from_slice(&word.to_ne_bytes());
        }
        self.types.extend_from_slice(&rest);
        let own = self.numbers.len() as u32 + 1;
        self.numbers.insert(number, own);
        Some(own)
    }

    fn name(&mut self, at: u32) -> u32 {
        let text = self.kernel.name(at);
        if text.is_empty() {
            return 0;
        }
        let next = self.text.len() as u32;
        let own = *self.names.entry(at).or_insert(next);
        if own == next {
            self.text.extend_from_slice(text);
            self.text.push(0);
        }
        own
    }

    /// The description.
    fn described(&self) -> Vec<u8> {
        let (types, text) = (self.types.len() as u32, self.text.len() as u32);
        let mut all = Vec::with_capacity(HEADER + self.types.len() + self.text.len());
        all.extend_from_slice(&MAGIC.to_ne_bytes());
        // Version and flags.
        all.extend_from_slice(&[1, 0]);
        for word in [HEADER as u32, 0, types, types, text] {
            all.extend_from_slice(&word.to_ne_bytes());
        }
        all.extend_from_slice(&self.types);
        all.extend_from_slice(&self.text);
        all
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use libbpf_rs::btf::types::{Composite, Enum, MemberAttr, Struct};
    use libbpf_rs::btf::{Btf, BtfType};

    use super::*;
    use crate::record::bpf::with_own_types;

    /// Name and place in bits of each field of a type, those of parts without a name among them, with kind and size.
    fn fields(btf: &Btf<'_>, of: Composite<'_>, from: u32, all: &mut BTreeMap<String, String>) {
        for field in of.iter() {
            let (place, bits) = match field.attr {
                MemberAttr::Normal { offset } => (offset, 0),
                MemberAttr::BitField { size, offset } => (offset, size),
            };
            let of: BtfType<'_> = btf.type_by_id(field.ty).unwrap();
            let of = of.skip_mods_and_typedefs();
            let name = field.name.map(|name| name.to_str().unwrap().to_owned());
            match name.filter(|name| !name.is_empty()) {
                Some(name) => {
                    let of = format!("{:?} at {} of {bits} bits", of.kind(), from + place);
                    all.insert(name, of);
                }
                None => fields(btf, Composite::try_from(of).unwrap(), from + place, all),
            }
        }
    }

    fn fields_of(btf: &Btf<'_>, name: &str) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        let of = btf.type_by_name::<Struct<'_>>(name).expect("it is there");
        fields(btf, of.into(), 0, &mut all);
        all
    }

    /// As libbpf reads both: this kernel's types and the few taken of them.
    #[test]
    fn what_the_program_reads_is_where_it_is_in_all_of_the_kernels_types() {
        let types = with_own_types(NeededTypes::find).unwrap().unwrap();
        let path = types.path();
        let few = Btf::from_path(path.to_str().unwrap()).unwrap();
        let all = Btf::from_path(ALL).unwrap();
        assert!(
            few.len() * 100 < all.len(),
            "{} of {}",
            few.len(),
            all.len()
        );
        let read = [
            (
                "task_struct",
                &[
                    "mm",
                    "flags",
                    "pid",
                    "tgid",
                    "group_leader",
                    "start_boottime",
                ][..],
            ),
            ("task_struct", &["signal", "self_exec_id"]),
            ("mm_struct", &["start_stack"]),
            ("signal_struct", &["pids"]),
            ("pid", &["numbers"]),
            ("upid", &["nr"]),
        ];
        for (name, read) in read {
            let (few, all) = (fields_of(&few, name), fields_of(&all, name));
            for field in read {
                assert_eq!(few[*field], all[*field], "{field} of {name}");
            }
            for (field, place) in few {
                assert_eq!(all.get(&field), Some(&place), "{field} of {name}");
            }
        }
        let values = |btf: &Btf<'_>| {
            let of = btf.type_by_name::<Enum<'_>>("pid_type").unwrap();
            let values = of.iter().map(|value| format!("{value:?}"));
            values.collect::<Vec<_>>()
        };
        assert!(values(&few).len() > 3);
        assert_eq!(values(&few), values(&all));
    }

    /// Types of a program and of a kernel, and what is there of the kernel's.
    fn description(types: &[&[u32]], names: &str) -> Vec<u8> {
        let types = types.concat();
        let size = types.len() as u32 * 4;
        let head = [HEADER as u32, 0, size, size, names.len() as u32];
        let words = head.iter().chain(&types).flat_map(|w| w.to_ne_bytes());
        let start = [0x9f, 0xeb, 1, 0];
        start
            .into_iter()
            .chain(words)
            .chain(names.bytes())
            .collect()
    }

    const fn info(kind: u32, many: u32) -> u32 {
        kind << 24 | many
    }

    #[test]
    fn only_what_is_named_as_in_the_program_is_taken() {
        let program = description(&[&[1, info(kind::STRUCT, 1), 4, 6, 0, 0]], "\0task\0pid\0");
        // task { int other; struct { int pid; }; }, rest { int pid; }, and what cannot be a field.
        let names = "\0task\0pid\0other\0rest\0int\0";
        let kernel = |with: &[u32]| {
            let int: &[u32] = &[21, info(kind::INT, 0), 4, 32];
            let inner: &[u32] = &[0, info(kind::STRUCT, 1), 4, 6, 1, 0];
            let task: &[u32] = &[1, info(kind::STRUCT, 2), 8, 10, 1, 0, 0, 2, 32];
            let rest: &[u32] = &[16, info(kind::STRUCT, 1), 4, 6, 1, 0];
            description(&[int, inner, task, rest, with], names)
        };
        let few = needed(&program, &kernel(&[])).unwrap();
        let expected: &[&[u32]] = &[
            &[5, info(kind::INT, 0), 4, 32],
            &[0, info(kind::STRUCT, 1), 4, 1, 1, 0],
            &[9, info(kind::STRUCT, 1), 8, 0, 2, 32],
        ];
        assert_eq!(few, description(expected, "\0pid\0int\0task\0"));
        // Kinds to come.
        assert_eq!(needed(&program, &kernel(&[0, info(31, 0), 0])), None);
        let whole = kernel(&[]);
        for end in 0..whole.len() {
            assert_eq!(needed(&program, &whole[..end]), None, "cut at {end}");
        }
        // A type of itself.
        let endless: &[u32] = &[1, info(kind::STRUCT, 1), 4, 6, 1, 0];
        assert_eq!(needed(&program, &description(&[endless], names)), None);
    }
}
