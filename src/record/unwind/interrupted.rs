//! Where the kernel keeps the registers of what a signal has interrupted: for the sampling program to find its stack, and for walks
//! through code that says nothing of it.

use super::copy::StackCopy;
use super::registers::{DWARF_COUNT, RIP, RSP, Registers};
use super::walk::End;

/// Bytes from where the stack pointer is when a handler has returned (`struct ucontext`) to the saved registers.
const SAVED: u64 = 40;
/// Where the register of a DWARF number is there, in words (`struct sigcontext`).
const PLACES: [u64; DWARF_COUNT] = [13, 12, 14, 11, 9, 8, 10, 15, 0, 1, 2, 3, 4, 5, 6, 7, 16];

/// Goes from the code that a handler returns to, to what the signal has interrupted.
pub fn resume(registers: &mut Registers, copy: &StackCopy<'_>) -> Result<(), End> {
    let saved = registers.sp().checked_add(SAVED).ok_or(End::BadFrame)?;
    let read = |place: u64| copy.read(saved.checked_add(place * 8)?);
    for (register, place) in (0..).zip(PLACES) {
        let value = read(place);
        if value.is_none() && [RSP, RIP].contains(&register) {
            return Err(End::Window);
        }
        registers.set(register, value);
    }
    Ok(())
}

/// Bytes that the kernel takes at the end of a signal handler's own stack for registers other than the ordinary ones (`struct _fpstate`
/// with all that belongs to it), the same for all threads but those that use AMX; 0 where that is not known.
#[cfg(target_arch = "x86_64")]
pub fn saved_registers() -> u32 {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    /// That of sizes of saved registers (XSAVE), with one more leaf for each kind.
    const SIZES: u32 = 0xd;
    /// The kind that is kept for those who ask for it: tiles of AMX, which come last.
    const TILES: u32 = 18;
    /// Behind what is saved there is another mark.
    const MARK: u32 = 4;
    /// Without XSAVE.
    const OLD: u32 = 512;
    /// XSAVE is used by the system.
    const USED: u32 = 1 << 27;
    if __cpuid(0).eax < SIZES || __cpuid(1).ecx & USED == 0 {
        return OLD;
    }
    let all = __cpuid_count(SIZES, 0).ebx;
    let tiles = __cpuid_count(SIZES, TILES);
    let usual = if tiles.eax > 0 {
        all.min(tiles.ebx)
    } else {
        all
    };
    usual + MARK
}

/// Bytes that the kernel takes for registers.
#[cfg(not(target_arch = "x86_64"))]
pub fn saved_registers() -> u32 {
    0
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::{mem, ptr};

    use super::*;

    /// Addresses: of the saved registers, the saved stack pointer, and the context that holds it.
    static SEEN: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

    /// As the kernel's headers have it.
    #[test]
    fn registers_are_where_the_kernel_has_them() {
        let machine = mem::offset_of!(libc::ucontext_t, uc_mcontext);
        let registers = mem::offset_of!(libc::mcontext_t, gregs);
        assert_eq!((machine + registers) as u64, SAVED);
        let places = [
            libc::REG_RAX,
            libc::REG_RDX,
            libc::REG_RCX,
            libc::REG_RBX,
            libc::REG_RSI,
            libc::REG_RDI,
            libc::REG_RBP,
            libc::REG_RSP,
            libc::REG_R8,
            libc::REG_R9,
            libc::REG_R10,
            libc::REG_R11,
            libc::REG_R12,
            libc::REG_R13,
            libc::REG_R14,
            libc::REG_R15,
            libc::REG_RIP,
        ];
        assert_eq!(places.map(|place| place as u64), PLACES);
    }

    extern "C" fn looks(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
        let context: *mut libc::ucontext_t = context.cast();
        // SAFETY: the kernel's, as it hands it to every handler.
        let seen = unsafe {
            let machine = &(*context).uc_mcontext;
            let sp = &raw const machine.gregs[libc::REG_RSP as usize];
            [machine.fpregs as u64, sp as u64, context as u64]
        };
        for (place, seen) in SEEN.iter().zip(seen) {
            place.store(seen, Ordering::SeqCst);
        }
    }

    /// What `interrupted` of `bpf/profiler.bpf.c` believes of a signal's frame is what this kernel puts on a stack.
    #[test]
    fn the_kernel_saves_registers_where_they_are_looked_for() {
        let done = std::thread::spawn(|| {
            let mut stack = vec![0u8; 1 << 16];
            let end = stack.as_ptr() as u64 + stack.len() as u64;
            // SAFETY: a stack of this thread's own, which outlives the signal, and a handler that only stores numbers.
            unsafe {
                let own = libc::stack_t {
                    ss_sp: stack.as_mut_ptr().cast(),
                    ss_flags: 0,
                    ss_size: stack.len(),
                };
                let mut before: libc::stack_t = mem::zeroed();
                assert_eq!(libc::sigaltstack(&own, &mut before), 0);
                let mut action: libc::sigaction = mem::zeroed();
                action.sa_sigaction = looks as *const () as usize;
                action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
                assert_eq!(libc::sigaction(libc::SIGURG, &action, ptr::null_mut()), 0);
                assert_eq!(libc::raise(libc::SIGURG), 0);
                assert_eq!(libc::sigaltstack(&before, ptr::null_mut()), 0);
            }
            end
        });
        let end = done.join().expect("a thread");
        let [registers, sp, context] = [0, 1, 2].map(|at| SEEN[at].load(Ordering::SeqCst));
        assert_eq!((end - u64::from(saved_registers())) & !63, registers);
        assert_eq!(registers - 288, sp);
        // The frame begins with the address that the handler returns to.
        assert_eq!(registers - 456, context - 8);
    }
}
