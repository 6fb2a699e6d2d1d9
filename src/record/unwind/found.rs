//! What is found in the tables of a file for code that is at some place in some way, and a cache of that.

use gimli::UnwindContext;

use super::go::Mark;
use super::rule::{Step, compile};
use super::tables::{Entry, Tables};

/// How code is where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// The instruction there is the next.
    Runs,
    /// It comes next when a call returns.
    Called,
    /// It comes next when a system call returns, if that does.
    InSystemCall,
}

/// Where code is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The address that the processor has, or will have.
    pub ip: u64,
    /// How it is there.
    pub way: Way,
}

impl Place {
    /// A byte of the instruction that has not ended: that behind a call need not belong to the same function.
    #[inline]
    pub fn at(self) -> u64 {
        self.ip.wrapping_sub(u64::from(self.way != Way::Runs))
    }

    /// Whether a call is to return here. No other way has an instruction whose last byte is the one of a call.
    #[inline]
    pub fn is_called(self) -> bool {
        self.way == Way::Called
    }
}

/// Which of the bytes at a place belongs to the function whose step was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named {
    /// As usual: of a call the one before, else the one there.
    Usually,
    /// The one there: nothing has called.
    There,
    /// The one before: the function ends there.
    Before,
}

/// How code gets to its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// The step.
    pub step: Step,
    /// Which code it is.
    pub named: Named,
}

impl From<Step> for Found {
    fn from(step: Step) -> Found {
        Found {
            step,
            named: Named::Usually,
        }
    }
}

/// How the code gets to its caller whose byte [`Place::at`] the file has at `address`.
pub fn look(tables: &Tables, address: u64, way: Way, context: &mut UnwindContext<usize>) -> Found {
    let row = tables.row(address, context, compiled);
    if let Ok((Step::Evaluate, entry)) = row
        && entry.is_signal
    {
        return in_signal(Step::Evaluate, way);
    }
    let instruction = match way {
        Way::Runs => Some(address),
        Way::Called => address.checked_add(1),
        // The instruction has two bytes.
        Way::InSystemCall => address.checked_sub(1),
    };
    // Not all who write such code tell of it, and some tell of it as of a function.
    if instruction.is_some_and(|at| tables.is_sigreturn(at)) {
        return in_signal(Step::Interrupted, way);
    }
    match tables.mark(address) {
        Some(Mark::Switches) => return Step::Switches.into(),
        Some(Mark::Top) => return Step::Root.into(),
        None => {}
    }
    match row {
        Ok((step, entry)) if way == Way::InSystemCall && entry.ends => Found {
            step,
            named: Named::Before,
        },
        Ok((step, _)) => step.into(),
        Err(keeps_frame_pointers) => {
            let by_frame_pointer = if keeps_frame_pointers {
                Step::FramePointer
            } else {
                Step::Unknown
            };
            let begun = begun(tables, address, way, context);
            begun.unwrap_or(by_frame_pointer.into())
        }
    }
}

fn compiled(row: &gimli::UnwindTableRow<usize>, bytes: &[u8], entry: Entry) -> (Step, Entry) {
    let step = if entry.is_signal {
        Step::Evaluate
    } else {
        compile(row, bytes)
    };
    (step, entry)
}

fn in_signal(step: Step, way: Way) -> Found {
    let named = match way {
        Way::Runs => Named::Usually,
        // The handler was not called: it returns to where this code begins.
        Way::Called => Named::There,
        Way::InSystemCall => Named::Before,
    };
    Found { step, named }
}

/// Of what returns to the beginning of a function that it was not called from: that is what goes on, with the stack as it is then.
fn begun(
    tables: &Tables,
    before: u64,
    way: Way,
    context: &mut UnwindContext<usize>,
) -> Option<Found> {
    let address = before.checked_add(1)?;
    if way != Way::Called || tables.may_follow_call(address) {
        return None;
    }
    let (step, entry) = tables.row(address, context, compiled).ok()?;
    let step = match step {
        // It would be looked for in the code before.
        Step::Evaluate => return None,
        _ if tables.leaves_stack(address) => Step::Root,
        step => step,
    };
    entry.begins.then_some(Found {
        step,
        named: Named::There,
    })
}

/// What was found at places that were walked through, each file's by its number.
pub struct Cache(Vec<Option<(u32, u64, Found)>>);

/// Steps kept: 40 bytes each, together 1.25 MiB.
const KEPT_STEPS: usize = 1 << 15;
/// In the offset of a place: a call is to return there.
const CALLED: u64 = 1 << 63;

impl Cache {
    /// An empty one.
    pub fn new() -> Cache {
        Cache(vec![None; KEPT_STEPS])
    }

    /// What tells the code at an offset of a file.
    pub fn key(offset: u64, place: Place) -> u64 {
        offset | if place.is_called() { CALLED } else { 0 }
    }

    fn place(file: u32, key: u64) -> usize {
        let mixed = (key ^ u64::from(file) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 49) as usize
    }

    /// What was found for a key in a file, if it is kept.
    pub fn known(&self, file: u32, key: u64) -> Option<Found> {
        match self.0.get(Self::place(file, key)) {
            Some(Some((of, at, found))) if (*of, *at) == (file, key) => Some(*found),
            _ => None,
        }
    }

    /// Keeps what was found, in place of what was there before.
    pub fn keep(&mut self, file: u32, key: u64, found: Found) {
        if let Some(place) = self.0.get_mut(Self::place(file, key)) {
            *place = Some((file, key, found));
        }
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use crate::record::unwind::go::Marked;
    use crate::record::unwind::made::{self, FIRST, Function, PLAIN, SIGNAL};
    use crate::record::unwind::rule::Rule;

    const RETURNS: Step = Step::Rule(Rule::RETURN);

    fn find(code: &[u8], functions: &[Function<'_>], ip: u64, way: Way) -> Found {
        let tables = made::tables(code, functions);
        let place = Place {
            ip: made::CODE + ip,
            way,
        };
        look(&tables, place.at(), way, &mut UnwindContext::new())
    }

    fn found(step: Step, named: Named) -> Found {
        Found { step, named }
    }

    #[test]
    fn what_is_kept_is_small() {
        assert_eq!(size_of::<Option<(u32, u64, Found)>>(), 40);
    }

    #[test]
    fn a_kept_place_is_one_of_one_file_and_way() {
        let mut cache = Cache::new();
        let place = |way| Place { ip: 0x1000, way };
        let [runs, called] = [Way::Runs, Way::Called].map(|way| Cache::key(0x1000, place(way)));
        cache.keep(1, runs, RETURNS.into());
        assert_eq!(cache.known(1, runs), Some(RETURNS.into()));
        assert_eq!((cache.known(1, called), cache.known(2, runs)), (None, None));
    }

    /// `syscall` is the last instruction of the first function, and the second begins right behind.
    #[test]
    fn a_system_call_at_the_end_of_a_function() {
        let code = [0x90; 32];
        let pushed = made::Left::Called(&[0x0e, 0x10]);
        let functions = [(0, 16, pushed), (16, 16, PLAIN)];
        let in_call = find(&code, &functions, 16, Way::InSystemCall);
        let Step::Rule(rule) = in_call.step else {
            panic!("{in_call:?}");
        };
        assert_eq!(rule.cfa, crate::record::unwind::rule::Cfa::Offset(7, 16));
        assert_eq!(in_call.named, Named::Before);
        assert_eq!(find(&code, &functions, 16, Way::Runs), RETURNS.into());
        // In its midst both bytes are of the same function.
        let inside = find(&code, &functions, 12, Way::InSystemCall);
        assert_eq!((inside.step, inside.named), (in_call.step, Named::Usually));
        assert_eq!(
            find(&code, &functions[..1], 16, Way::Runs),
            Step::Unknown.into()
        );
    }

    /// Whatever is told to debuggers of them, if anything is.
    #[test]
    fn functions_that_go_has_marked() {
        let marks = [(0, Mark::Switches), (16, Mark::Top), (32, Mark::Top)];
        let marks = marks.map(|(at, mark)| (made::CODE + at..made::CODE + at + 16, mark));
        let functions = [(0, 16, PLAIN), (16, 16, PLAIN), (48, 16, PLAIN)];
        let tables = made::tables(&[0x90; 64], &functions).marked(Marked::new(marks.into()));
        let step = |ip: u64, way| {
            let ip = made::CODE + ip;
            let place = Place { ip, way };
            look(&tables, place.at(), way, &mut UnwindContext::new()).step
        };
        for way in [Way::Runs, Way::Called, Way::InSystemCall] {
            let found = [8, 24, 40, 56].map(|ip| step(ip, way));
            let expected = [Step::Switches, Step::Root, Step::Root, RETURNS];
            assert_eq!(found, expected, "{way:?}");
        }
    }

    /// As the C library tells of it: from the byte before.
    #[test]
    fn the_code_that_handlers_return_to() {
        let mut code = [0x90; 32];
        code[8..17].copy_from_slice(b"\x48\xc7\xc0\x0f\0\0\0\x0f\x05");
        for (functions, step) in [
            (&[(7, 10, SIGNAL)][..], Step::Evaluate),
            // Nobody tells of it, or as of a function.
            (&[], Step::Interrupted),
            (&[(8, 10, PLAIN)], Step::Interrupted),
            (&[(0, 32, PLAIN)], Step::Interrupted),
        ] {
            let at = |ip, way| find(&code, functions, ip, way);
            assert_eq!(at(8, Way::Called), found(step, Named::There));
            assert_eq!(at(8, Way::Runs), found(step, Named::Usually));
            assert_eq!(at(15, Way::Runs), found(step, Named::Usually));
            assert_eq!(at(17, Way::InSystemCall), found(step, Named::Before));
            assert_ne!(at(17, Way::Runs).step, step, "{functions:?}");
        }
    }

    #[test]
    fn a_function_that_is_returned_to_at_its_first_byte() {
        let mut code = [0x90; 64];
        let at = |code: &[u8], functions: &[Function<'_>]| find(code, functions, 16, Way::Called);
        assert_eq!(
            at(&code, &[(16, 16, FIRST)]),
            found(Step::Root, Named::There)
        );
        assert_eq!(at(&code, &[(16, 16, PLAIN)]), found(RETURNS, Named::There));
        // Something covers the byte before, or it begins elsewhere.
        assert_eq!(
            at(&code, &[(0, 16, PLAIN), (16, 16, FIRST)]),
            RETURNS.into()
        );
        assert_eq!(at(&code, &[(17, 16, FIRST)]), Step::Unknown.into());
        // What only runs there has not returned to what comes next.
        let runs = find(&code, &[(16, 16, FIRST)], 15, Way::Runs);
        assert_eq!(runs, Step::Unknown.into());
        // A call that never returns, in a function of which nothing is told.
        code[11] = 0xe8;
        assert_eq!(at(&code, &[(16, 16, FIRST)]), Step::Unknown.into());
        // A coroutine of the C library.
        code[11] = 0x90;
        code[16..19].copy_from_slice(b"\x48\x89\xdc");
        assert_eq!(
            at(&code, &[(16, 16, PLAIN)]),
            found(Step::Root, Named::There)
        );
    }
}
