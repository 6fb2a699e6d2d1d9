//! From the leaf to the root.

use std::rc::Rc;

use gimli::UnwindContext;

use super::chain::Chain;
use super::copy::StackCopy;
use super::files::Files;
use super::found::{Cache, Found, Named, Place, Way, look};
use super::quick::{Frame, Key, Ordinary, Quick, Reached};
use super::registers::{RBP, Registers};
use super::rule::{Rule, Step, check_up};
use super::tables::Image;
use super::usual::{self, Program, Usual};
use super::{IS_SUPPORTED, eval, interrupted};
use crate::event::{LossClass, MappedFile, MappedKind, Pid, Timestamp};
use crate::record::address_space::{AddressSpace, Mapping};
use crate::record::aside::SharedAside;

/// What code a sampled process ran.
#[derive(Clone, Copy)]
pub struct Code<'s> {
    /// The process, whose files are read while it lives.
    pub process: Pid,
    /// What was mapped, if anything is known of it.
    pub space: Option<&'s AddressSpace>,
    /// When.
    pub time: Timestamp,
    /// How many programs the process had run before.
    pub exec_id: u32,
}

impl Code<'_> {
    fn program(&self) -> Program {
        Program {
            process: self.process,
            exec_id: self.exec_id,
        }
    }
}

/// Why a walk ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// At the first function of the thread.
    Root,
    /// The stack has as many frames as are kept.
    Depth,
    /// At code without unwind information, or where that is of another stack.
    NoInfo,
    /// The stack goes on beyond what was copied.
    Window,
    /// What is said of the caller's frame cannot be true.
    BadFrame,
    /// The return address is in no code known to be mapped.
    Unmapped,
}

impl End {
    /// What is to be counted.
    pub fn loss(self) -> Option<LossClass> {
        match self {
            End::Root | End::Depth => None,
            End::NoInfo => Some(LossClass::UnwindNoInfo),
            End::Window => Some(LossClass::UnwindWindow),
            End::BadFrame => Some(LossClass::UnwindBadFrame),
            End::Unmapped => Some(LossClass::UnwindUnmapped),
        }
    }
}

/// What became of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Walked {
    /// Why it ended.
    pub end: End,
    /// It went through code where only frame pointers could be followed.
    pub by_frame_pointer: bool,
    /// How far up the top of the stack it came, in bytes.
    pub needed: u64,
    /// It came to the other part of the copy.
    pub is_beyond: bool,
    /// It ended in a very large frame: that of the caller begins there, beyond what was copied.
    pub gap: Option<u64>,
    /// From there on it went along what the kernel had found by frame pointers.
    pub went_on: bool,
}

/// Bytes of a frame that is worth to be skipped when stacks are copied.
const LARGE_FRAME: u64 = 16 << 10;

/// Walks stacks.
pub struct Unwinder {
    files: Files,
    cache: Cache,
    quick: Quick,
    /// What the sampling program knows of code, if it can be told.
    pub usual: Option<Usual>,
    context: UnwindContext<usize>,
    /// Of the stack that is walked, frames that called nothing: what a signal interrupted, the code the handler returns to, and
    /// where a stack was made to return to.
    exact: Vec<usize>,
}

impl Unwinder {
    /// `None` where stacks cannot be walked here. Whether a file can be read without waiting for ever is asked `aside`.
    pub fn new(aside: Option<SharedAside>) -> Option<Unwinder> {
        IS_SUPPORTED.then(|| Unwinder {
            files: Files::new(aside),
            cache: Cache::new(),
            quick: Quick::new(),
            usual: None,
            context: UnwindContext::new(),
            exact: Vec::new(),
        })
    }

    /// Gives back what is not needed any more. To be called after each batch.
    pub fn tidy(&mut self) {
        if self.files.are_spoilt() {
            // What was found in such a file must not be used any more.
            self.quick.clear();
        }
        if self.files.tidy() {
            self.quick.tidy();
        }
    }

    /// Tells what is in `file`, which is not opened then: for tests.
    pub fn know(&mut self, file: &Rc<MappedFile>, image: Image) {
        self.files.know(file, image);
    }

    /// Puts the stack's addresses behind those in `stack`, leaf first, at most `depth`. All but the leaf are such that the byte before
    /// is in the instruction that has not ended: of a frame that called nothing, the one after its address.
    pub fn walk(
        &mut self,
        copy: &StackCopy<'_>,
        code: Code<'_>,
        depth: usize,
        stack: &mut Vec<u64>,
    ) -> Walked {
        let start = stack.len();
        self.walk_quickly(copy, code, depth, stack)
            .unwrap_or_else(|| {
                stack.truncate(start);
                self.walk_fully(copy, code, depth, stack)
            })
    }

    /// The same of a stack of ordinary code in an address space that stands still, which reaches its root; `None` when it is not, and
    /// what is behind `stack` then is nothing.
    pub fn walk_quickly(
        &mut self,
        copy: &StackCopy<'_>,
        code: Code<'_>,
        depth: usize,
        stack: &mut Vec<u64>,
    ) -> Option<Walked> {
        let space = self.quick.space(code.space?.standing()?);
        let mut walk = Walk::new(code);
        let mut frame = copy.frame();
        let mut step = self.ordinary(&mut walk, space, copy.place())?;
        stack.reserve(depth);
        stack.push(frame.ip);
        let mut frames = 1;
        let start = stack.len();
        let mut usual_frames = 0;
        let end = loop {
            if let Some(chain) = &copy.chain
                && step.is_usual()
                && frame.fp == chain.first
            {
                check_up(frame.sp, frame.fp.checked_add(16)?).ok()?;
                let mut addresses = chain.addresses();
                let last = addresses.next_back()?;
                let room = depth.saturating_sub(frames);
                let many = addresses.len();
                stack.extend(addresses.take(room));
                if !self.is_told_of(code, space) {
                    // The sampling program has taken it for granted.
                    let taken = stack.get(start + frames - 1..).unwrap_or_default();
                    self.are_usual(&mut walk, space, taken)?;
                }
                frames += many.min(room);
                frame = Frame {
                    ip: last,
                    sp: chain.above.from,
                    fp: chain.next,
                };
                if frame.ip == 0 {
                    break End::Root;
                }
                if frames >= depth {
                    break End::Depth;
                }
                let way = Way::Called;
                step = self.ordinary(&mut walk, space, Place { ip: last, way })?;
                stack.push(frame.ip);
                frames += 1;
                if step.is_usual() {
                    // It has not known this one yet.
                    self.tell_usual(&mut walk, space, &[last]);
                }
                continue;
            }
            usual_frames += usize::from(step.is_usual());
            let Reached::Caller(caller) = step.apply(frame, copy)? else {
                break End::Root;
            };
            frame = caller;
            if frame.ip == 0 {
                break End::Root;
            }
            if frames >= depth {
                break End::Depth;
            }
            let place = Place {
                ip: frame.ip,
                way: Way::Called,
            };
            step = self.ordinary(&mut walk, space, place)?;
            stack.push(frame.ip);
            frames += 1;
        };
        if copy.chain.is_none() && usual_frames >= usual::WORTH && copy.top_bytes() >= usual::FROM {
            self.tell_usual(&mut walk, space, stack.get(start..).unwrap_or_default());
        }
        Some(Walked {
            end,
            by_frame_pointer: false,
            needed: frame.sp.saturating_sub(copy.top.from),
            is_beyond: copy.is_beyond(frame.sp),
            gap: None,
            went_on: false,
        })
    }

    /// `None` unless these are return addresses of functions with the usual frame.
    fn are_usual(&mut self, walk: &mut Walk<'_>, space: u64, addresses: &[u64]) -> Option<()> {
        let way = Way::Called;
        addresses.iter().try_for_each(|ip| {
            let step = self.ordinary(walk, space, Place { ip: *ip, way })?;
            step.is_usual().then_some(())
        })
    }

    /// Tells the sampling program which of the return addresses of a stack are of functions with the usual frame.
    fn tell_usual(&mut self, walk: &mut Walk<'_>, space: u64, addresses: &[u64]) {
        let program = walk.code.program();
        let identity = self.quick.identity(space);
        if let Some(usual) = &mut self.usual {
            usual.begin(program, identity);
        }
        for ip in addresses {
            let way = Way::Called;
            let step = self.ordinary(walk, space, Place { ip: *ip, way });
            if step.is_some_and(Ordinary::is_usual)
                && let Some(usual) = &self.usual
            {
                usual.tell(program, *ip);
            }
        }
    }

    /// Whether all that the sampling program was told of this code is of this space.
    #[inline]
    fn is_told_of(&mut self, code: Code<'_>, space: u64) -> bool {
        let identity = self.quick.identity(space);
        let usual = self.usual.as_mut();
        usual.is_some_and(|usual| usual.is_of(code.program(), identity, code.time))
    }

    /// Begins to load what a walk needs first.
    pub fn prefetch(&mut self, copy: &StackCopy<'_>, code: Code<'_>) {
        if let Some(mappings) = code.space.and_then(AddressSpace::standing) {
            let space = self.quick.space(mappings);
            self.quick.prefetch(space, copy.place());
        }
    }

    /// Lets the sampling program shorten no more copies because of what it has shortened this one: it did not lead to the root.
    #[cold]
    pub fn distrust(&mut self, copy: &StackCopy<'_>, code: Code<'_>) {
        if let Some(usual) = &mut self.usual {
            let addresses = copy.chain.iter().flat_map(Chain::addresses);
            addresses.for_each(|address| usual.distrust(code.program(), address));
        }
    }

    /// How the code at a place in a space, which is mapped, gets to its caller.
    #[inline]
    fn ordinary(&mut self, walk: &mut Walk<'_>, space: u64, place: Place) -> Option<Ordinary> {
        let key = Quick::key(space, place)?;
        match self.quick.known(key) {
            Some(step) => Some(step),
            None => self.learn(walk, key, place),
        }
    }

    #[cold]
    fn learn(&mut self, walk: &mut Walk<'_>, key: Key, place: Place) -> Option<Ordinary> {
        let step = Ordinary::of(self.find(walk, place).ok()?, place.ip);
        self.quick.keep(key, step);
        Some(step)
    }

    /// As [`walk`](Self::walk), whatever the code is.
    pub fn walk_fully(
        &mut self,
        copy: &StackCopy<'_>,
        code: Code<'_>,
        depth: usize,
        stack: &mut Vec<u64>,
    ) -> Walked {
        let mut registers = copy.registers();
        let mut walk = Walk::new(code);
        let start = stack.len();
        self.exact.clear();
        let mut place = copy.place();
        stack.push(place.ip);
        let mut frames = 1;
        let mut ends_before = false;
        let end = loop {
            let found = match self.find(&mut walk, place) {
                Ok(found) => found,
                Err(end) => break end,
            };
            match found.named {
                Named::Usually => {}
                Named::There => self.exact.push(stack.len() - 1),
                // Of the leaf alone.
                Named::Before => ends_before = true,
            }
            let is_signal = match self.step(&mut walk, found.step, place, &mut registers, copy) {
                Ok(is_signal) => is_signal,
                Err(end) => break end,
            };
            place.ip = registers.ip();
            place.way = if is_signal { Way::Runs } else { Way::Called };
            if place.ip == 0 {
                break End::Root;
            }
            // Only now is it known that there is more than is kept.
            if frames >= depth {
                break End::Depth;
            }
            if let Err(end) = self.check(&mut walk, place) {
                break end;
            }
            self.exact.extend(is_signal.then_some(stack.len()));
            stack.push(place.ip);
            frames += 1;
        };
        let found = stack.len();
        let gap = match end {
            End::Window => self.gap(&mut walk, place, &registers, copy),
            _ => None,
        };
        let end = match end {
            End::Window | End::NoInfo if !copy.walked.is_empty() => {
                let own = stack.get(start..).unwrap_or_default();
                let rest = beyond(own, copy.walked);
                self.go_on(&mut walk, end, (frames, depth), rest, stack)
            }
            end => end,
        };
        if ends_before && let Some(leaf) = stack.get_mut(start) {
            *leaf = leaf.wrapping_sub(1);
        }
        let went_on = stack.len() > found;
        for at in self.exact.drain(..) {
            if let Some(address) = stack.get_mut(at) {
                *address = address.wrapping_add(1);
            }
        }
        Walked {
            end,
            by_frame_pointer: walk.by_frame_pointer,
            needed: registers.sp().saturating_sub(copy.top.from),
            is_beyond: copy.is_beyond(registers.sp()),
            gap,
            went_on,
        }
    }

    /// Where the frame of the caller of a function with a very large one begins.
    fn gap(
        &mut self,
        walk: &mut Walk<'_>,
        place: Place,
        registers: &Registers,
        copy: &StackCopy<'_>,
    ) -> Option<u64> {
        let Step::Rule(rule) = self.find(walk, place).ok()?.step else {
            return None;
        };
        let frame = rule.frame(registers, copy).ok()?;
        (frame - registers.sp() >= LARGE_FRAME).then_some(frame)
    }

    /// From the function that a place is in to its caller. Whether that was interrupted by a signal.
    fn step(
        &mut self,
        walk: &mut Walk<'_>,
        step: Step,
        place: Place,
        registers: &mut Registers,
        copy: &StackCopy<'_>,
    ) -> Result<bool, End> {
        walk.follows_call = false;
        match step {
            Step::Rule(rule) => rule.apply(registers, copy).map(|()| false),
            // Its unwind information is of the stack it has left.
            Step::Switches => Err(End::NoInfo),
            Step::Interrupted => interrupted::resume(registers, copy).map(|()| true),
            Step::Root => Err(End::Root),
            Step::Unknown if is_entry(registers, copy) => Err(End::Root),
            Step::Unknown => Err(End::NoInfo),
            Step::FramePointer => {
                walk.by_frame_pointer = true;
                walk.follows_call = true;
                by_frame_pointer(registers, copy).map(|()| false)
            }
            Step::Evaluate => {
                let (process, at) = (walk.code.process, place.at());
                let mapping = walk.mapping(at).ok_or(End::Unmapped)?;
                let (_, tables) = self.files.get(process, mapping).ok_or(End::NoInfo)?;
                let address = tables.address_at(offset_in(mapping, at));
                let address = address.ok_or(End::NoInfo)?;
                let done = tables.row(address, &mut self.context, |row, bytes, entry| {
                    let is_signal = entry.is_signal;
                    eval::apply(row, bytes, is_signal, registers, copy).map(|()| is_signal)
                });
                done.unwrap_or(Err(End::NoInfo))
            }
        }
    }

    /// How the function that a place is in gets to its caller.
    fn find(&mut self, walk: &mut Walk<'_>, place: Place) -> Result<Found, End> {
        let at = place.at();
        let mapping = walk.mapping(at).ok_or(End::Unmapped)?;
        let offset = offset_in(mapping, at);
        let key = Cache::key(offset, place);
        if let Some(number) = walk.number
            && let Some(found) = self.cache.known(number, key)
        {
            return Ok(found);
        }
        let kind = mapping.file.kind;
        match kind {
            MappedKind::File | MappedKind::Vdso | MappedKind::Memfd => {}
            // Each of its functions is a system call and a return.
            MappedKind::Vsyscall => return Ok(Step::Rule(Rule::RETURN).into()),
            MappedKind::Anonymous | MappedKind::Special => return Ok(Step::FramePointer.into()),
        }
        let (number, tables) = self
            .files
            .get(walk.code.process, mapping)
            .ok_or(End::NoInfo)?;
        walk.number = Some(number);
        if let Some(found) = self.cache.known(number, key) {
            return Ok(found);
        }
        let address = match (tables.address_at(offset), kind) {
            (Some(address), _) => address,
            // Generated code need not look like a file.
            (None, MappedKind::Memfd) => offset,
            (None, _) => return Err(End::NoInfo),
        };
        let found = look(tables, address, place.way, &mut self.context);
        self.cache.keep(number, key, found);
        Ok(found)
    }

    /// Goes on, with `frames` of `depth` found, along what the kernel has found by frame pointers: where unwind information says
    /// that there are some, and in code that has none.
    fn go_on(
        &mut self,
        walk: &mut Walk<'_>,
        ended: End,
        (frames, depth): (usize, usize),
        rest: &[u64],
        stack: &mut Vec<u64>,
    ) -> End {
        let Some(last) = stack.last().copied() else {
            return ended;
        };
        // A leaf that only runs somewhere says nothing of its frame pointer.
        let is_leaf = frames == 1;
        let mut place = Place {
            ip: last,
            way: if is_leaf { Way::Runs } else { Way::Called },
        };
        let mut taken = 0;
        for next in rest {
            if frames + taken >= depth {
                return End::Depth;
            }
            let mut untold = false;
            let is_told = match self.find(walk, place).map(|found| found.step) {
                Ok(Step::Rule(rule)) => rule.is_frame_pointer(),
                Ok(Step::FramePointer | Step::Unknown) | Err(End::NoInfo) => {
                    untold = true;
                    !is_leaf || taken > 0
                }
                Ok(Step::Root) => return End::Root,
                _ => false,
            };
            walk.follows_call = true;
            let next = Place {
                ip: *next,
                way: Way::Called,
            };
            if !is_told || self.check(walk, next).is_err() {
                return ended;
            }
            walk.by_frame_pointer |= untold;
            stack.push(next.ip);
            place = next;
            taken += 1;
        }
        match self.find(walk, place).map(|found| found.step) {
            Ok(Step::Root) if taken > 0 => End::Root,
            _ => ended,
        }
    }

    /// Whether the caller's address can be one.
    fn check(&mut self, walk: &mut Walk<'_>, place: Place) -> Result<(), End> {
        let follows_call = walk.follows_call;
        let process = walk.code.process;
        let at = place.at();
        let mapping = walk.mapping(at).ok_or(End::Unmapped)?;
        if follows_call
            && matches!(mapping.file.kind, MappedKind::File)
            && let Some((_, tables)) = self.files.get(process, mapping)
        {
            let place = tables.address_at(offset_in(mapping, at));
            let place = place.map(|at| at.wrapping_add(1));
            if !place.is_some_and(|place| tables.may_follow_call(place)) {
                return Err(End::BadFrame);
            }
        }
        Ok(())
    }
}

/// Where in its file `at` is.
fn offset_in(mapping: &Mapping, at: u64) -> u64 {
    at.saturating_sub(mapping.start)
        .saturating_add(mapping.file_offset)
}

/// Frames the kernel may have missed: it sees no leaf's caller where the leaf has no frame.
const MISSED: usize = 2;

/// What the kernel found beyond the last frame of `own`: nothing unless it found the same up to there, but for the first
/// frames.
fn beyond<'k>(own: &[u64], by_kernel: &'k [u64]) -> &'k [u64] {
    let rest = (0..=MISSED).find_map(|missed| {
        let common = own.len().checked_sub(missed)?;
        let (same, rest) = by_kernel.split_at_checked(common)?;
        // The leaf alone proves nothing.
        let is_proof = missed == 0 || common > 1;
        let agrees = same.first() == own.first() && same.get(1..) == own.get(1 + missed..);
        (is_proof && agrees).then_some(rest)
    });
    rest.unwrap_or_default()
}

struct Walk<'s> {
    code: Code<'s>,
    /// The one that was looked up last: the next address is often in it.
    mapping: Option<&'s Mapping>,
    /// That of its file in the cache, once it has been asked for.
    number: Option<u32>,
    by_frame_pointer: bool,
    /// The last step was by a frame pointer that may be something else: what it found must come after a call.
    follows_call: bool,
}

impl<'s> Walk<'s> {
    fn new(code: Code<'s>) -> Walk<'s> {
        Walk {
            code,
            mapping: None,
            number: None,
            by_frame_pointer: false,
            follows_call: false,
        }
    }

    fn mapping(&mut self, address: u64) -> Option<&'s Mapping> {
        let covers = |m: &&'s Mapping| (m.start..m.end).contains(&address);
        if self.mapping.filter(covers).is_none() {
            let space = self.code.space?;
            self.mapping = space.at(address, self.code.time);
            self.number = None;
        }
        self.mapping
    }
}

/// Whether this is what the kernel has entered: nothing of the stack lies above, and the frame pointer is as the kernel set it.
/// Loaders say nothing of their first function.
fn is_entry(registers: &Registers, copy: &StackCopy<'_>) -> bool {
    registers.sp() == copy.end() && registers.get(RBP) == Some(0)
}

/// By the frame pointer, in code that keeps one. What else it keeps is not known.
fn by_frame_pointer(registers: &mut Registers, copy: &StackCopy<'_>) -> Result<(), End> {
    let frame = registers.get(RBP).ok_or(End::BadFrame)?;
    if frame == 0 {
        // As the psABI marks the outermost frame.
        return Err(End::Root);
    }
    let sp = frame.checked_add(16).ok_or(End::BadFrame)?;
    check_up(registers.sp(), sp)?;
    let (saved, address) = (copy.read(frame), copy.read(frame + 8));
    let (saved, address) = saved.zip(address).ok_or(End::Window)?;
    registers.keep_frame_pointer();
    registers.set(RBP, Some(saved));
    registers.enter(sp, address);
    Ok(())
}
