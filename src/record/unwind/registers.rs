//! Registers as DWARF numbers them on x86-64 (psABI, figure 3.36), as far as they are known in a frame.

/// Registers there are, the return address included.
pub const DWARF_COUNT: usize = 17;
/// Those of that number.
pub const RBP: u8 = 6;
/// The stack pointer.
pub const RSP: u8 = 7;
/// The return address, in a frame that runs the instruction pointer.
pub const RIP: u8 = 16;
/// What a called function gives back unchanged, beside the stack pointer.
pub const KEPT: [u8; 6] = [3, RBP, 12, 13, 14, 15];

/// Values of registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registers {
    values: [u64; DWARF_COUNT],
    /// Bit n: the value of register n is known.
    known: u32,
}

impl Registers {
    /// All of them known.
    pub fn new(values: [u64; DWARF_COUNT]) -> Registers {
        Registers {
            values,
            known: (1 << DWARF_COUNT) - 1,
        }
    }

    /// The value of a register, if it is known.
    pub fn get(&self, register: u8) -> Option<u64> {
        let value = self.values.get(usize::from(register))?;
        (self.known & 1 << register != 0).then_some(*value)
    }

    /// The stack pointer, which is always known.
    pub fn sp(&self) -> u64 {
        self.get(RSP).unwrap_or(0)
    }

    /// The instruction pointer or return address, which is always known.
    pub fn ip(&self) -> u64 {
        self.get(RIP).unwrap_or(0)
    }

    /// Sets a register; `None` makes it unknown.
    pub fn set(&mut self, register: u8, value: Option<u64>) {
        let Some(place) = self.values.get_mut(usize::from(register)) else {
            return;
        };
        match value {
            Some(value) => {
                *place = value;
                self.known |= 1 << register;
            }
            None => self.known &= !(1 << register),
        }
    }

    /// Forgets what a called function need not give back.
    pub fn keep_kept(&mut self) {
        let kept = KEPT.iter().fold(0, |mask, register| mask | 1 << register);
        self.known &= kept;
    }

    /// Forgets all but the frame pointer.
    pub fn keep_frame_pointer(&mut self) {
        self.known &= 1 << RBP;
    }

    /// Goes on in the caller: its stack and instruction pointer.
    pub fn enter(&mut self, sp: u64, ip: u64) {
        self.set(RSP, Some(sp));
        self.set(RIP, Some(ip));
    }
}
