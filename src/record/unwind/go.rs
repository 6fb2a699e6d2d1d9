//! Functions of Go that leave the stack they were called on, or that nothing called. What debuggers are told of these is not true
//! everywhere: it does not know of the switch.

use std::ops::Range;

use crate::elf_file::go::{GoFunctions, flags};

/// Some dozens there are.
const MOST: usize = 1 << 12;

/// What Go says of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// Nothing called it.
    Top,
    /// It goes to another stack, and what called it is on the one it has left.
    Switches,
}

/// Such functions of a file, in the order of their addresses.
#[derive(Debug, Default)]
pub struct Marked(Vec<(Range<u64>, Mark)>);

impl Marked {
    /// Those of an ELF image.
    pub fn of(image: &[u8]) -> Marked {
        let Some(functions) = GoFunctions::of(image) else {
            return Marked::default();
        };
        let marked = functions.iter().filter_map(|function| {
            let mark = mark(function.flags, || functions.name(&function))?;
            Some((function.start..functions.end(&function), mark))
        });
        Marked::new(marked.take(MOST).collect())
    }

    /// These.
    pub fn new(mut marked: Vec<(Range<u64>, Mark)>) -> Marked {
        marked.sort_by_key(|(range, _)| range.start);
        marked.shrink_to_fit();
        Marked(marked)
    }

    /// What Go says of the function at an address, if it is one of these.
    pub fn at(&self, address: u64) -> Option<Mark> {
        let behind = self.0.partition_point(|(range, _)| range.start <= address);
        let (range, mark) = self.0.get(behind.checked_sub(1)?)?;
        range.contains(&address).then_some(*mark)
    }
}

/// Go ends its own stacks at the code that the kernel calls for a signal; what that has interrupted is known here.
const HANDLERS: [&[u8]; 2] = [b"runtime.sigtramp", b"runtime.cgoSigtramp"];

fn mark<'n>(of: u8, name: impl FnOnce() -> &'n [u8]) -> Option<Mark> {
    if of & flags::TOP_FRAME != 0 {
        (!HANDLERS.contains(&name())).then_some(Mark::Top)
    } else if of & flags::SP_WRITE != 0 {
        Some(Mark::Switches)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_functions_that_are_not_ordinary_are_marked() {
        let marks = [0, 4, 1, 5, 2, 6, 3, 7].map(|of| mark(of, || b"runtime.any"));
        let (top, switches) = (Some(Mark::Top), Some(Mark::Switches));
        assert_eq!(marks, [None, None, top, top, switches, switches, top, top]);
        assert_eq!(mark(5, || b"runtime.sigtramp"), None);
    }

    #[test]
    fn a_mark_is_of_one_function() {
        let marked = Marked::new(vec![(0x40..0x60, Mark::Switches), (0x10..0x20, Mark::Top)]);
        let at = [0, 0xf, 0x10, 0x1f, 0x20, 0x3f, 0x40, 0x5f, 0x60, u64::MAX];
        let (top, switches) = (Some(Mark::Top), Some(Mark::Switches));
        let expected = [
            None, None, top, top, None, None, switches, switches, None, None,
        ];
        assert_eq!(at.map(|at| marked.at(at)), expected);
        assert_eq!(Marked::of(b"no such file").at(0), None);
    }
}
