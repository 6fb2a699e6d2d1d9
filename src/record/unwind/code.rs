//! What the instructions of a file say where nothing else does (x86-64).

use super::tables::Tables;

/// `mov $15, %rax` and `mov $15, %eax`: 15 is `rt_sigreturn`.
const MOVES: [&[u8]; 2] = [&[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0], &[0xb8, 0x0f, 0, 0, 0]];
/// `syscall`.
const SYSTEM_CALL: [u8; 2] = [0x0f, 0x05];
/// `endbr64`, with which functions begin that may be jumped to.
const MARK: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa];
/// `mov %rbx, %rsp`.
const OTHER_STACK: &[u8] = &[0x48, 0x89, 0xdc];

impl Tables {
    /// Whether a call ends right before `address`, or the bytes there are not known.
    pub fn may_follow_call(&self, address: u64) -> bool {
        if !self.is_code(address) {
            return true;
        }
        // In front of the first byte there is none.
        let before = (2..=7)
            .rev()
            .find_map(|n| self.code(address.checked_sub(n)?, n));
        before.is_some_and(ends_with_call)
    }

    /// Whether the code at `address` gives back what a signal has interrupted: one of the two instructions that all such code
    /// consists of.
    pub fn is_sigreturn(&self, address: u64) -> bool {
        MOVES.iter().any(|code| {
            let length = code.len() as u64;
            let [at_move, at_call] = [Some(address), address.checked_sub(length)].map(|start| {
                let all = self.code(start?, length + 2)?;
                all.strip_prefix(*code).map(|rest| *rest == SYSTEM_CALL)
            });
            at_move == Some(true) || at_call == Some(true)
        })
    }

    /// Whether the code at `address` goes to another stack at once, as coroutines of the C library end: what lies above is of nobody.
    pub fn leaves_stack(&self, address: u64) -> bool {
        let begins = |address, code: &[u8]| self.code(address, code.len() as u64) == Some(code);
        let marked = address.saturating_add(MARK.len() as u64);
        begins(address, OTHER_STACK) || begins(address, MARK) && begins(marked, OTHER_STACK)
    }
}

/// Whether the last instruction may be a call.
fn ends_with_call(before: &[u8]) -> bool {
    let from_end = |n: usize| before.len().checked_sub(n).and_then(|at| before.get(at..));
    let relative = from_end(5).is_some_and(|code| code.first() == Some(&0xe8));
    // call r/m64: its lengths are 2, 3, 4, 6 and 7.
    let indirect = (2..=7).any(|n| {
        from_end(n).is_some_and(|code| matches!(code, [0xff, modrm, ..] if modrm >> 3 & 7 == 2))
    });
    relative || indirect
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use crate::record::unwind::made;

    #[test]
    fn code_that_ends_a_signal_is_known_by_what_it_does() {
        let mut code = vec![0x90; 64];
        code[8..17].copy_from_slice(b"\x48\xc7\xc0\x0f\0\0\0\x0f\x05");
        code[24..31].copy_from_slice(b"\xb8\x0f\0\0\0\x0f\x05");
        // Other calls.
        code[40..47].copy_from_slice(b"\xb8\x0e\0\0\0\x0f\x05");
        code[48..55].copy_from_slice(b"\xb9\x0f\0\0\0\x0f\x05");
        let tables = made::tables(&code, &[]);
        let found: Vec<u64> = (0..64)
            .filter(|at| tables.is_sigreturn(made::CODE + at))
            .collect();
        assert_eq!(found, [8, 15, 24, 29]);
        assert!(!tables.is_sigreturn(0) && !tables.is_sigreturn(u64::MAX));
    }

    #[test]
    fn code_that_goes_to_another_stack() {
        let mut code = vec![0x90; 32];
        code[8..11].copy_from_slice(OTHER_STACK);
        code[16..20].copy_from_slice(MARK);
        code[20..23].copy_from_slice(OTHER_STACK);
        let tables = made::tables(&code, &[]);
        let found: Vec<u64> = (0..32)
            .filter(|at| tables.leaves_stack(made::CODE + at))
            .collect();
        assert_eq!(found, [8, 16, 20]);
        assert!(!tables.leaves_stack(u64::MAX));
    }

    #[test]
    fn calls_end_where_they_end() {
        let mut code = vec![0x90; 64];
        code[8..13].copy_from_slice(b"\xe8\x01\x02\x03\x04");
        code[30..32].copy_from_slice(b"\xff\xd0");
        let tables = made::tables(&code, &[]);
        let may = |at: u64| tables.may_follow_call(made::CODE + at);
        assert!(may(13) && may(32));
        assert!(!may(12) && !may(14) && !may(31));
        // Not code of the file.
        assert!(tables.may_follow_call(1 << 40));
    }
}
