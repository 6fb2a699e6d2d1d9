//! One sample: whose, when, and its stacks, told apart by the marks in its call chain.

use linux_perf_event_reader::{CpuMode, SampleFormat};

use super::attrs::Attr;
use super::bytes::Bytes;
use crate::event::sample_flags;

/// Addresses from here on are no code but say whose code follows.
const MARKS: u64 = -4095i64 as u64;
const MARK_KERNEL: u64 = -128i64 as u64;
const MARK_USER: u64 = -512i64 as u64;
/// The user stack comes later, in a record of its own.
const MARK_USER_DEFERRED: u64 = -640i64 as u64;
const MARK_HYPERVISOR: u64 = -32i64 as u64;
const READ_TIME_ENABLED: u64 = 1;
const READ_TIME_RUNNING: u64 = 2;
const READ_ID: u64 = 4;
pub(super) const READ_GROUP: u64 = 8;
const READ_LOST: u64 = 16;
const BRANCH_HW_INDEX: u64 = 1 << 17;
/// Frames kept where perf does not say: the kernel's default.
const USUAL_STACK: usize = 127;

/// What all samples of an event have in common.
#[derive(Debug, Clone)]
pub struct Shape {
    sample_type: u64,
    pub(super) read_format: u64,
    branch_format: u64,
    user_regs: u64,
    /// Stack memory was copied, to be unwound later: the call chain has no callers in user code.
    pub dwarf: bool,
    pub has_chain: bool,
    pub has_cpu: bool,
    most: usize,
    ip_register: Option<u32>,
}

impl Shape {
    /// `arch` is the machine's.
    pub fn new(attr: &Attr, arch: &str) -> Shape {
        let most = usize::from(attr.attr.sample_max_stack);
        Shape {
            sample_type: attr.sample_type,
            read_format: attr.read_format,
            branch_format: attr.attr.branch_sample_format.bits(),
            user_regs: attr.attr.sample_regs_user,
            dwarf: attr.has(SampleFormat::STACK_USER) && attr.has(SampleFormat::REGS_USER),
            has_chain: attr.has(SampleFormat::CALLCHAIN),
            has_cpu: attr.has(SampleFormat::CPU),
            most: if most == 0 { USUAL_STACK } else { most },
            ip_register: match arch {
                "x86_64" => Some(8),
                "aarch64" => Some(32),
                _ => None,
            },
        }
    }

    /// Frames of a stack at most.
    pub fn stack_limit(&self) -> u32 {
        self.most as u32
    }

    pub(super) fn has(&self, format: SampleFormat) -> bool {
        self.sample_type & format.bits() != 0
    }
}

/// A sample. The vectors are used again for the next one.
#[derive(Debug, Default)]
pub struct Sample {
    pub pid: u32,
    pub tid: u32,
    pub time: u64,
    pub cpu: u32,
    /// Leaf first.
    pub user: Vec<u64>,
    /// Leaf first.
    pub kernel: Vec<u64>,
    /// [`sample_flags`].
    pub flags: u8,
    /// Taken in a guest, whose addresses mean nothing here.
    pub guest: bool,
}

impl Sample {
    /// Reads a sample's record; `None` when it is not whole.
    pub fn read(&mut self, shape: &Shape, misc: u16, body: &[u8]) -> Option<()> {
        let mut body = Bytes(body);
        let mode = CpuMode::from_misc(misc);
        self.user.clear();
        self.kernel.clear();
        self.flags = 0;
        self.guest = matches!(mode, CpuMode::GuestKernel | CpuMode::GuestUser);
        if shape.has(SampleFormat::IDENTIFIER) {
            body.u64()?;
        }
        let ip = body.u64()?;
        (self.pid, self.tid) = (body.u32()?, body.u32()?);
        self.time = body.u64()?;
        for format in [
            SampleFormat::ADDR,
            SampleFormat::ID,
            SampleFormat::STREAM_ID,
        ] {
            if shape.has(format) {
                body.u64()?;
            }
        }
        self.cpu = 0;
        if shape.has_cpu {
            self.cpu = body.u32()?;
            body.u32()?;
        } else {
            self.flags |= sample_flags::CPU_UNKNOWN;
        }
        if shape.has(SampleFormat::PERIOD) {
            body.u64()?;
        }
        if shape.has(SampleFormat::READ) {
            skip_read(&mut body, shape.read_format)?;
        }
        if mode == CpuMode::Kernel {
            self.flags |= sample_flags::IN_KERNEL;
        }
        if shape.has_chain {
            let count = body.u64()?;
            let bytes = usize::try_from(count).ok()?.checked_mul(8)?;
            self.chain(Bytes(body.take(bytes)?), mode, shape.most);
        }
        if self.guest {
            return Some(());
        }
        let in_user = matches!(mode, CpuMode::User);
        if in_user && self.user.is_empty() {
            self.user.push(ip);
        } else if mode == CpuMode::Kernel && self.kernel.is_empty() {
            self.kernel.push(ip);
        }
        if shape.dwarf {
            self.leaf_only(shape, body, in_user);
        }
        Some(())
    }

    /// Takes the call chain apart.
    fn chain(&mut self, mut chain: Bytes<'_>, mode: CpuMode, most: usize) {
        #[derive(PartialEq)]
        enum Whose {
            Kernel,
            User,
            Nobody,
        }
        let mut whose = match mode {
            CpuMode::Kernel => Whose::Kernel,
            CpuMode::User => Whose::User,
            _ => Whose::Nobody,
        };
        let mut count = 0;
        while let Some(address) = chain.u64() {
            if address < MARKS {
                count += 1;
                match whose {
                    Whose::Kernel => self.kernel.push(address),
                    Whose::User => self.user.push(address),
                    Whose::Nobody => {}
                }
                continue;
            }
            whose = match address {
                MARK_KERNEL => Whose::Kernel,
                MARK_USER => Whose::User,
                MARK_USER_DEFERRED => {
                    self.flags |= sample_flags::USER_UNREADABLE;
                    Whose::Nobody
                }
                MARK_HYPERVISOR => Whose::Nobody,
                // Of a guest, or not known.
                _ => Whose::Nobody,
            };
        }
        if count >= most {
            // One limit holds for both together, and the user's is the root end.
            self.flags |= match self.user.is_empty() {
                true => sample_flags::KERNEL_TRUNCATED,
                false => sample_flags::USER_TRUNCATED,
            };
        }
    }

    /// Only where the user code was is known, from its registers when the sample was taken in the kernel.
    fn leaf_only(&mut self, shape: &Shape, body: Bytes<'_>, in_user: bool) {
        self.user.truncate(1);
        if !in_user && self.user.is_empty() {
            self.user.extend(user_ip(shape, body));
        }
        if !self.user.is_empty() {
            self.flags |= sample_flags::USER_TRUNCATED;
        }
    }
}

/// Passes over the counts that were read with a sample.
fn skip_read(body: &mut Bytes<'_>, format: u64) -> Option<()> {
    let bit = |bit: u64| u64::from(format & bit != 0);
    let times = bit(READ_TIME_ENABLED) + bit(READ_TIME_RUNNING);
    let of_each = 1 + bit(READ_ID) + bit(READ_LOST);
    match format & READ_GROUP != 0 {
        false => body.skip_u64(of_each + times),
        true => {
            let count = body.u64()?;
            body.skip_u64(times.checked_add(count.checked_mul(of_each)?)?)
        }
    }
}

/// The user's instruction pointer among the registers behind the call chain.
fn user_ip(shape: &Shape, mut body: Bytes<'_>) -> Option<u64> {
    let register = shape.ip_register?;
    if shape.has(SampleFormat::RAW) {
        let size = body.u32()?;
        body.take(size as usize)?;
    }
    if shape.has(SampleFormat::BRANCH_STACK) {
        let count = body.u64()?;
        body.skip_u64(u64::from(shape.branch_format & BRANCH_HW_INDEX != 0))?;
        body.skip_u64(count.checked_mul(3)?)?;
    }
    // Without user memory (a kernel thread) there are no registers.
    if body.u64()? == 0 || shape.user_regs >> register & 1 == 0 {
        return None;
    }
    let before = (shape.user_regs & ((1 << register) - 1)).count_ones();
    body.skip_u64(before.into())?;
    body.u64()
}
